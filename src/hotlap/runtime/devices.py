"""On which device a model computes and in which type, what of it this process holds, and the precision of its float32
matrix products."""

from __future__ import annotations

from collections import Counter
from typing import Any

_HOST = ("cpu", "meta")
_LEGACY_NAMES = {"tf32": "high", "bf16": "medium"}
_FIRST_CAPABILITY_WITH_TF32 = (8, 0)


def device_kind(root: Any) -> str:
    """The kind of device that holds most of a model's parameters by their bytes. The result is the host only where no
    accelerator holds any: a large model may keep an embedding there, and not the smallest part."""
    from torch.nn.parameter import is_lazy

    held: Counter[str] = Counter()
    for it in root.parameters():
        held[str(it.device.type)] += 0 if is_lazy(it) else it.numel() * it.element_size()
    away = [kind for kind in held if kind not in _HOST]
    return max(away, key=lambda kind: held[kind], default="cpu")


def weights_dtype(root: Any) -> str:
    """The type of most of a model's numbers, ``float32``: integers among its parameters (the state of a generator of
    random numbers in Keras, packed weights) are not what it computes in. Empty without parameters."""
    from torch.nn.parameter import is_lazy

    parameters = list(root.parameters())
    numbers: Counter[Any] = Counter()
    for it in parameters:
        if it.is_floating_point() or it.is_complex():
            numbers[it.dtype] += 0 if is_lazy(it) else it.numel()
    found = max(numbers, key=lambda dtype: numbers[dtype], default=parameters[0].dtype if parameters else "")
    return str(found).removeprefix("torch.")


def local_part(tensor: Any) -> Any:
    """The part of a tensor that this process holds, where processes share it (a ``DTensor`` of FSDP or of tensor
    parallelism); any other tensor unchanged. NumPy reads no ``DTensor``, and many operators have no rule for one."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def matmul_precision(torch: Any, kind: str) -> str:
    """``highest``, ``high`` or ``medium``, as torch's older switch calls them. A script that has used the newer ones
    (``torch.backends.cuda.matmul.fp32_precision`` and its like, since torch 2.9) may not read the older one any more:
    torch raises an error."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        backend = torch.backends.mkldnn if kind == "cpu" else torch.backends.cuda
        return _LEGACY_NAMES.get(str(backend.matmul.fp32_precision), "highest")


def cudnn_tf32(torch: Any, kind: str) -> bool:
    """Whether cuDNN may compute float32 convolutions and recurrent layers in TensorFloat-32 here: the device can, and
    the script allows it, as torch does by itself."""
    if kind != "cuda" or torch.version.hip or torch.cuda.get_device_capability() < _FIRST_CAPABILITY_WITH_TF32:
        return False
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # after the newer switches, as above
        return str(torch.backends.cudnn.conv.fp32_precision) == "tf32"
