"""What the categories and names of all profiler versions mean.

Kineto's categories are its ``ActivityType`` names; before 2022 they were ``Kernel``, ``Memcpy``, ``Operator``...
ROCm's tracer uses the same categories with HIP's function names. Accelerator work is known by its category alone:
stream numbers, flow arrows and correlation identifiers also appear on host events, and are missing on device events.
"""

from __future__ import annotations

import re
import sys
from typing import Final


class Kind:
    """What an event is. Kinds up to ``MEMSET`` are work of an accelerator, those from ``CALL`` on are the host's.

    Plain numbers: comparing members of an enumeration takes several times as long, and there are millions.
    """

    KERNEL: Final = 0
    COPY: Final = 1
    MEMSET: Final = 2
    CALL: Final = 10
    OPERATOR: Final = 11
    ANNOTATION: Final = 12
    PYTHON: Final = 13
    OVERHEAD: Final = 14


LAST_DEVICE_KIND = Kind.MEMSET

KIND_OF_CATEGORY: dict[str, int] = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "Memcpy": Kind.COPY,
    "gpu_memset": Kind.MEMSET,
    "Memset": Kind.MEMSET,
    "cuda_runtime": Kind.CALL,
    "cuda_driver": Kind.CALL,
    "hip_runtime": Kind.CALL,
    "xpu_runtime": Kind.CALL,
    "xpu_driver": Kind.CALL,
    "mtia_runtime": Kind.CALL,
    "privateuse1_runtime": Kind.CALL,
    "privateuse1_driver": Kind.CALL,
    "Runtime": Kind.CALL,
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
}

STEP_NAME = re.compile(r"ProfilerStep#?\s*(\d+)")
ANNOTATING_OPERATOR = re.compile(
    r"ProfilerStep|enumerate\(DataLoader\)#|Optimizer\.\w+#|DistributedDataParallel\.|nccl:|\[pl\]"
)
"""What old profilers wrote as operators without their being any: Python runs in most of such a span."""

COMMUNICATION_ON_HOST = re.compile(r"^(?:c10d::|nccl:|rccl:|gloo:|mpi:|record_param_comms|DistributedDataParallel\.)")

LOADER = re.compile(
    r"^enumerate\(DataLoader\)#|torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data)"
    r"|\btrain_dataloader_next$"
)
COMPILATION = re.compile(
    r"^(?:hip|cuda|cu)(?:ModuleLoad\w*|LibraryLoad\w*|LinkComplete\w*|GraphInstantiate\w*|StreamBeginCapture\w*"
    r"|StreamEndCapture\w*|GraphExecUpdate\w*|GraphUpload\w*)$"
    r"|(?:^|[/ ])torch/_(?:dynamo|inductor|functorch)/(?!eval_frame\.py\(\d+\): (?:_fn|__call__))\S*\(\d+\): "
    r"(?:compile\w*|_compile\w*|transform|codegen\w*)"
    r"|^(?:TorchDynamo|compile_fx|_compile\.|Inductor|backward_compile|entire_frame_compile)",
)

BACKWARD = re.compile(r"^autograd::engine::evaluate_function")

SYNCHRONISATION = re.compile(r"^(?:cuda|hip|cu)(?:\w*Synchronize\w*)$")
BLOCKING_COPY = re.compile(r"^(?:cudaMemcpy(?:2D|3D|ToSymbol|FromSymbol)?|cuMemcpy(?:HtoD|DtoH|DtoD)?(?:_v2)?"
                           r"|hipMemcpy(?:2D|3D|HtoD|DtoH|DtoD)?|hipMemcpyWithStream)$")  # fmt: skip
LAUNCH = re.compile(r"^(?:cuda|hip|cu)\w*Launch(?:Cooperative)?Kernel\w*$")
GRAPH_LAUNCH = re.compile(r"^(?:cuda|hip|cu)GraphLaunch\w*$")

_DIRECTIONS = (
    ("HtoD", re.compile(r"HtoD|Host ?To ?Device|H2D", re.IGNORECASE)),
    ("DtoH", re.compile(r"DtoH|Device ?To ?Host|D2H", re.IGNORECASE)),
    ("DtoD", re.compile(r"DtoD|PtoP|Device ?To ?Device|Peer ?To ?Peer|D2D|P2P", re.IGNORECASE)),
    ("HtoH", re.compile(r"HtoH|Host ?To ?Host", re.IGNORECASE)),
)


def copy_direction(name: str) -> str:
    """``HtoD``, ``DtoH``, ``DtoD`` or ``HtoH`` of a copy's name; ``unknown`` where it does not say."""
    return next((direction for direction, pattern in _DIRECTIONS if pattern.search(name)), "unknown")


def copy_memory(name: str) -> str:
    """The host memory of a copy: ``pageable``, ``pinned``, ``device`` (no host memory) or ``unknown``."""
    if "pageable" in name.lower():
        return "pageable"
    if "pinned" in name.lower():
        return "pinned"
    return "device" if copy_direction(name) == "DtoD" else "unknown"


_COLLECTIVES = ("nccl", "rccl", "msccl", "nvshmem", "cross_device_reduce")
_REDUCTION_BY_SHOTS = re.compile(r"(?:one|two)_?shot_?all_?reduce")


def is_collective(kernel: str) -> bool:
    """Whether a kernel's name is that of communication between devices."""
    name = kernel.lower()
    return any(it in name for it in _COLLECTIVES) or ("shot" in name and bool(_REDUCTION_BY_SHOTS.search(name)))


# Plain words first: kernels' names are long, and searching one for a pattern takes as long as for all of these.
_MATRIX_INSTRUCTIONS = ("tensorop", "hmma", "imma", "gmma", "warpgroup", "mfma",
                        "s1688", "h1688", "s16816", "h16816", "s884", "h884")  # fmt: skip
_MATRIX_HINTS = ("884", "168", "xmma", "_mi")
_MATRIX_SHAPE = re.compile(
    r"(?:^|_)[hsi]?(?:884|1688|16816|16832)(?:gemm|cudnn|fprop|dgrad|wgrad|_|$)"
    r"|xmma_\w*(?:tf32|f16|bf16|e4m3|e5m2|i8)|_mi\d+x\d+x"
)
_PLAIN_INSTRUCTIONS = ("sgemm", "dgemm", "scudnn", "simt", "_ffma", "implicit_convolve_sgemm")
_PLAIN_SHAPE = re.compile(r"xmma_\w*f32f32_f32f32")


def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a kernel runs on matrix units, as far as its name tells; None where it does not.

    cuBLAS, cuDNN and CUTLASS name their kernels after the instruction; hipBLASLt writes ``MI`` and its shape.
    """
    name = kernel.lower()
    if any(it in name for it in _MATRIX_INSTRUCTIONS):
        return True
    if any(it in name for it in _MATRIX_HINTS) and _MATRIX_SHAPE.search(name):
        return True
    if any(it in name for it in _PLAIN_INSTRUCTIONS) or ("xmma" in name and _PLAIN_SHAPE.search(name)):
        return False
    return None


_LIBRARY_PATH = re.compile(
    r"site-packages|dist-packages|lib/python3|^<|^torch/|^nn\.Module|(?:^|/)hotlap/(?:runtime|levers)/|"
    r"^(?:numpy|transformers|accelerate|lightning|pytorch_lightning|torchvision|torchaudio|timm|datasets|deepspeed|"
    r"PIL|pandas|scipy)/"
)
_PLACE = re.compile(r"^(?P<file>.+?)\(\d+\): \S+")
_NO_PLACES = ("<", "nn.Module: ")


def is_users_frame(name: str) -> bool:
    """Whether a Python frame's name (``train.py(30): main``) belongs to the user rather than to a library."""
    if _LIBRARY_PATH.search(name):
        return False
    found = _PLACE.match(name)
    if not found:
        return False
    first = found["file"].replace("\\", "/").split("/")[0].removesuffix(".py")
    return first not in sys.stdlib_module_names


def is_useful_frame(name: str) -> bool:
    """Whether an analysis can make use of a Python frame: it is the user's, the data loader's, or compilation."""
    if name.startswith(_NO_PLACES):
        return False
    if "torch/" in name and (LOADER.search(name) or COMPILATION.search(name)):
        return True
    return is_users_frame(name)
