"""What the categories and names of all profiler versions mean.

Kineto's categories are its ``ActivityType`` names; before 2022 they were ``Kernel``, ``Memcpy``, ``Operator``...
ROCm's tracer uses the same categories with HIP's function names. Accelerator work is identified by its category alone:
stream numbers, flow arrows and correlation identifiers also appear on host events, and are missing on device events.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
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
    MODULE: Final = 15


LAST_DEVICE_KIND = Kind.MEMSET

KIND_OF_CATEGORY: dict[str, int] = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
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
    "runtime": Kind.CALL,
    "driver": Kind.CALL,
    "Runtime": Kind.CALL,
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
}

MODULE_PREFIX = "nn.Module: "
"""Of the Python functions that are a module's forward; class and number of the instance follow: ``Linear_3``."""

STEP_NAME = re.compile(r"ProfilerStep#?\s*(\d+)")
ANNOTATING_OPERATOR = re.compile(
    r"ProfilerStep|enumerate\((?:DataLoader|DataPipe)\)#|Optimizer\.\w+#|DistributedDataParallel\.|nccl:|\[pl\]"
)
"""Spans that old profilers wrote as operators although they are none: most of their time is Python."""

COMMUNICATION_ON_HOST = re.compile(
    r"^(?:c10d::|_?c10d_functional::|symm_mem::|deep_ep::|nccl:|rccl:|xccl:|gloo:|mpi:|ucc:|record_param_comms)"
)
"""Operators and marks of collectives alone. ``DistributedDataParallel.forward`` spans the whole forward pass."""

LOADER = re.compile(
    r"^enumerate\((?:DataLoader|DataPipe)\)#"
    r"|torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data)"
    r"|torch/utils/data/datapipes/\S+\(\d+\): __(?:next|iter)__"
    r"|torchdata/\S+\(\d+\): (?:__next__|_next_data|next)$"
    r"|nvidia/dali/(?:plugin/\S+|pipeline)\.py\(\d+\): (?:__next__|_get_outputs|outputs|share_outputs)"
    r"|webdataset/\S+\(\d+\): (?:__next__|__iter__|iterator\w*|run)$"
    r"|\btrain_dataloader_next$"
)
"""Waiting for a batch: the loaders of torch and torchdata, DataPipes, DALI's iterators, and WebDataset's stages, which
are generators that resume for each sample."""

COMPILATION = re.compile(
    r"^(?:hip|cuda|cu)(?:ModuleLoad\w*|LibraryLoad\w*|LinkComplete\w*|GraphInstantiate\w*|StreamBeginCapture\w*"
    r"|StreamEndCapture\w*|GraphExecUpdate\w*|GraphUpload\w*)$"
    r"|(?:^|[/ ])torch/_dynamo/convert_frame\.py\(\d+\): "
    r"|(?:^|[/ ])torch/_inductor/(?:compile_fx|async_compile|codecache|standalone_compile)\.py\(\d+\): "
    r"(?!compiled)\w*(?:compile|wait)\w*$"
    r"|(?:^|[/ ])torch/_inductor/runtime/triton_heuristics\.py\(\d+\): "
    r"(?:\w*precompile\w*|autotune_to_one_config|benchmark_all_configs|coordinate_descent_tuning)$"
    r"|(?:^|[/ ])torch/_inductor/cudagraph_trees\.py\(\d+\): (?:record_function|_record)$"
    r"|(?:^|[/ ])torch/_functorch/(?:aot_autograd|_aot_autograd/\w+)\.py\(\d+\): "
    r"(?:create_aot_\w+|_create_aot_\w+|aot_module\w*|aot_function|aot_stage\d_\w+|aot_dispatch_\w+)$"
    r"|(?:^|[/ ])triton/(?:compiler/compiler\.py\(\d+\): compile|runtime/\w+\.py\(\d+\): (?:_do_compile|_bench))$"
    r"|\(dynamo_timed\)$|^(?:compile_fx|_compile\.|backward_compile|entire_frame_compile|TORCHDYNAMO$)",
)
"""Functions that run only during compilation or capture. Dynamo's ``compile_wrapper``, its cache look-up and the
wrappers of compiled functions run on every call and do not count."""

BACKWARD = re.compile(r"^autograd::engine::evaluate_function")

_NODE_OF_BACKWARD = re.compile(r"^\w+Backward\d*$")
"""Old versions name the nodes of the backward pass by themselves."""


def is_backward(operator: str) -> bool:
    """Whether an operator's name is that of a node of the backward pass, in any version."""
    return bool(BACKWARD.search(operator) or _NODE_OF_BACKWARD.match(operator))


SYNCHRONISATION = re.compile(r"^(?:cuda|hip|cu)(?:\w*Synchronize\w*)$")
BLOCKING_COPY = re.compile(r"^(?:cudaMemcpy(?:2D|3D|ToSymbol|FromSymbol)?|cuMemcpy(?:HtoD|DtoH|DtoD)?(?:_v2)?"
                           r"|hipMemcpy(?:2D|3D|HtoD|DtoH|DtoD)?|hipMemcpyWithStream)$")  # fmt: skip
COPY_CALL = re.compile(r"^(?:cuda|hip|cu)Memcpy")
SETTING_UP = re.compile(
    r"^(?:cuda|hip|cu)(?:Init|Malloc|Free|Host|Get|Set|Driver|Ctx|Func|Occupancy|Ipc|PointerGet|Mem(?!cpy|set)"
    r"|Device(?:Get|Set|Enable|Primary)|Stream(?:Create|Get)|EventCreate)"
)
"""Calls that neither launch nor wait: they take microseconds, except when they initialise something on first use."""

LAUNCH = re.compile(r"^(?:cuda|hip|cu)\w*Launch(?:Cooperative)?Kernel\w*$")
GRAPH_LAUNCH = re.compile(r"^(?:cuda|hip|cu)GraphLaunch\w*$")

_DIRECTIONS = (
    ("HtoD", re.compile(r"HtoD|Host ?To ?Device|H2D", re.IGNORECASE)),
    ("DtoH", re.compile(r"DtoH|Device ?To ?Host|D2H", re.IGNORECASE)),
    ("DtoD", re.compile(r"DtoD|PtoP|Device ?To ?Device|Peer ?To ?Peer|D2D|P2P", re.IGNORECASE)),
    ("HtoH", re.compile(r"HtoH|Host ?To ?Host", re.IGNORECASE)),
)


def copy_direction(name: str) -> str:
    """``HtoD``, ``DtoH``, ``DtoD`` or ``HtoH`` by a copy's name, else ``unknown``."""
    return next((direction for direction, pattern in _DIRECTIONS if pattern.search(name)), "unknown")


def copy_memory(name: str) -> str:
    """The host memory of a copy: ``pageable``, ``pinned``, ``device`` (no host memory) or ``unknown``."""
    if "pageable" in name.lower():
        return "pageable"
    if "pinned" in name.lower():
        return "pinned"
    return "device" if copy_direction(name) == "DtoD" else "unknown"


_COLLECTIVES = ("nccl", "rccl", "msccl", "nvshmem", "cross_device_reduce", "quickreduce", "deep_ep", "deepep",
                "userbuffers", "hcom_")  # fmt: skip
_COLLECTIVE_WORDS = re.compile(
    r"(?<!block)(?<!block_)(?<!warp)(?<!warp_)all_?reduce|all_?gather|reduce_?scatter|all_?(?:to_?|2_?)all"
)
_FUSED_BY_INDUCTOR = re.compile(r"^triton_(?:poi|red|per|tem|for|mm|unk)_")
"""Kernels named after fused operators, next to which a collective may have run."""


def is_collective(kernel: str) -> bool:
    """Whether a kernel's name is that of communication between devices.

    The kernels of libraries other than NCCL name the collective (``multimem_all_reduce_kernel``,
    ``allreduce_fusion_kernel``) or the library (quickreduce, DeepEP). Reductions within a block or a warp do not count.
    """
    name = kernel.lower()
    if _FUSED_BY_INDUCTOR.match(name):
        return False
    return any(it in name for it in _COLLECTIVES) or bool(_COLLECTIVE_WORDS.search(name))


# Plain words first: kernels' names are long, and searching one for a pattern takes as long as for all of these.
_MATRIX_INSTRUCTIONS = ("hmma", "imma", "gmma", "wmma", "warpgroup", "mfma", "xdlops", "_xdl", "_gtcx", "nvjet",
                        "marlin", "s1688", "h1688", "s16816", "h16816", "s884", "h884")  # fmt: skip
_MATRIX_HINTS = ("tensorop", "884", "168", "xmma", "_mi")
_MATRIX_SHAPE = re.compile(
    r"(?<!sub)tensorop|(?:^|_)[hsi]?(?:884|1688|16816|16832)(?:gemm|cudnn|fprop|dgrad|wgrad|_|$)"
    r"|xmma_\w*(?:tf32|f16|bf16|e4m3|e5m2|i8)|_mi\d+x\d+x"
)
_PLAIN_INSTRUCTIONS = ("sgemm", "dgemm", "cgemm", "zgemm", "scudnn", "simt", "_ffma", "implicit_convolve_sgemm", "gemv",
                       "dgrad_engine", "wgrad_alg0_engine", "wgrad_alg1_engine")  # fmt: skip
_PLAIN_SHAPE = re.compile(r"xmma_\w*f32f32_f32f32")
_ATTENTION_HINTS = ("flash", "fmha")
_ATTENTION_BESIDE = re.compile(r"combine|dot_do_o|convert_d|preprocess|postprocess|\breduce|delta_bwd|ograddoto")
"""Attention kernels that do not multiply: sums, conversions, joining of parts."""

_ATTENTION = re.compile(r"flash_?(?:attn\w*?_?)?(?:fwd|bwd)|flash_(?:fprop|bprop)|fmha\w*?(?:fwd|bwd|kernel|sm\d)")
_MEMORY_EFFICIENT = re.compile(r"fmha_cutlass[fb]_(?P<type>f32|f16|bf16)\w*_sm(?P<chip>\d+)")


def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a kernel runs on matrix units, by its name; None if the name does not show it.

    cuBLAS, cuDNN and CUTLASS name their kernels after the instruction; hipBLASLt writes ``MI`` and its shape,
    Composable Kernel ``xdl``, MIOpen ``gtcx``. cuBLAS's ``nvjet`` kernels are products for the matrix units of Hopper
    and later. FlashAttention takes only 16 and 8 bit types, and multiplies by matrix instructions. MIOpen's
    ``SubTensorOp`` is element-wise.
    """
    name = kernel.lower()
    if any(it in name for it in _ATTENTION_HINTS):
        known = _attention_uses_tensor_cores(name)
        if known is not None:
            return known
    if any(it in name for it in _MATRIX_INSTRUCTIONS):
        return True
    if any(it in name for it in _MATRIX_HINTS) and _MATRIX_SHAPE.search(name):
        return True
    if any(it in name for it in _PLAIN_INSTRUCTIONS) or ("xmma" in name and _PLAIN_SHAPE.search(name)):
        return False
    return None


def _attention_uses_tensor_cores(name: str) -> bool | None:
    """Attention kernels that multiply. torch's memory-efficient ones are compiled for each type and chip: 16
    bit types use matrix units from compute capability 7.0 on, 32 bit ones (as three TF32 products) from 8.0 on."""
    found = _MEMORY_EFFICIENT.search(name)
    if found:
        return int(found["chip"]) >= (80 if found["type"] == "f32" else 70)
    if _ATTENTION_BESIDE.search(name):
        return False
    return True if _ATTENTION.search(name) else None


_LIBRARY_PATH = re.compile(
    r"site-packages|dist-packages|lib/python3|^<|^torch/|^nn\.Module|(?:^|/)hotlap/(?:runtime|levers)/|"
    r"^(?:numpy|transformers|accelerate|lightning|pytorch_lightning|torchvision|torchaudio|timm|datasets|deepspeed|"
    r"PIL|pandas|scipy|torchdata|webdataset|nvidia/dali|triton)/|"
    # What Inductor generates is named after the hash of its text.
    r"(?:^|/)c[a-z2-7]{51}\.py\("
)
_PLACE = re.compile(r"^(?P<file>.+?)\(\d+\): \S+")
_LOADING_OR_COMPILING = ("torch", "triton/", "nvidia/dali/", "webdataset/")
_NO_PLACES = ("<", MODULE_PREFIX)


def is_users_frame(name: str, libraries: Collection[str] = ()) -> bool:
    """Whether a Python frame's name (``train.py(30): main``) belongs to the user rather than to a library.

    ``libraries`` are the packages that are known to be installed where the trace was made, besides common ones.
    """
    if _LIBRARY_PATH.search(name):
        return False
    found = _PLACE.match(name)
    if not found:
        return False
    first = found["file"].replace("\\", "/").split("/")[0].removesuffix(".py")
    return first not in sys.stdlib_module_names and first not in libraries


def is_useful_frame(name: str) -> bool:
    """Whether an analysis uses a Python frame: the user's, the data loader's, or compilation."""
    if name.startswith(_NO_PLACES):
        return False
    if any(it in name for it in _LOADING_OR_COMPILING) and (LOADER.search(name) or COMPILATION.search(name)):
        return True
    return is_users_frame(name)
