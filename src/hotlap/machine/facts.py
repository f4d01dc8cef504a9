"""Facts about this machine, without importing torch, starting a process, or touching a device.

The measured part comes later: :mod:`hotlap.machine.ceilings` runs in a child, and :func:`with_ceilings` adds its
result, replacing what instruction sets claim by what was measured.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import msgspec
import psutil

from hotlap import allocators
from hotlap.machine import control_groups, isolation, processor
from hotlap.machine.accelerators import accelerators
from hotlap.machine.doctor import advice
from hotlap.records import Accelerator, Ceilings, Machine

# Multiplying in a dtype without instructions for it means converting to float32 and multiplying that: it cannot be
# faster than float32 itself. A rate that is higher by more than timing noise is therefore proof of real instructions,
# and a flag without such a rate (emulation, a throttled unit, a library that does not use it) is worth nothing.
CLEARLY_FASTER = 1.25

_LIBRARIES = ("torch", "triton", "numpy", "torchvision", "transformers", "accelerate", "lightning", "pytorch-lightning")
_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "MALLOC_MMAP_MAX_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_COMPILE_DISABLE",
    "TORCHDYNAMO_DISABLE",
)


def machine_facts(root: Path = Path("/"), *, environment: Mapping[str, str] | None = None) -> Machine:
    """The facts, with ``warnings`` about what slows training down here and no ceilings yet.

    ``root`` is the folder of ``proc``, ``sys`` and ``dev``, and ``environment`` the variables that the training will
    have; by default both are this process's own. Never raises: what cannot be read stays empty.
    """
    variables = os.environ if environment is None else environment
    visible = processor.visible_cores()
    machine = Machine(
        processor=processor.name(root),
        cores=processor.cores_available(root, visible),
        physical_cores=processor.physical_cores(root, visible),
        visible_cores=len(visible),
        memory_bytes=_memory_bytes(root),
        shared_memory_bytes=_shared_memory_bytes(root),
        native_dtypes=processor.claimed_dtypes(processor.flags(root)),
        accelerators=accelerators(root, variables),
        system=platform.platform(),
        python_version=platform.python_version(),
        library_versions=tuple(_library_versions()),
        transparent_huge_pages=_transparent_huge_pages(root),
        kernel_settings=tuple(isolation.kernel_settings(root)),
        container=isolation.container(root, variables),
        allocators=tuple(allocators.installed(root)),
        environment=tuple((name, variables[name]) for name in _VARIABLES if name in variables),
    )
    return _with_warnings(machine)


def with_ceilings(machine: Machine, ceilings: Ceilings, *, busy: bool = False) -> Machine:
    """The machine with its measured rates, its native dtypes confirmed or refuted by them, and fresh warnings.
    ``busy``: other programs used the processor meanwhile."""
    first = machine.accelerators[0] if machine.accelerators else None
    devices = tuple(_confirmed_device(it, ceilings, like=first) for it in machine.accelerators)
    return _with_warnings(
        msgspec.structs.replace(
            machine,
            ceilings=ceilings,
            native_dtypes=confirmed(machine.native_dtypes, "cpu", ceilings, shared=busy),
            accelerators=devices,
        )
    )


def confirmed(claimed: tuple[str, ...], device: str, ceilings: Ceilings, *, shared: bool = False) -> tuple[str, ...]:
    """The dtypes that ``device`` (``cpu``, ``cuda``) multiplies in hardware.

    Where a dtype was measured, its rate decides (see :data:`CLEARLY_FASTER`); otherwise the instruction sets do. A
    measurement that other programs disturbed, as those on a ``shared`` device do, confirms a dtype but refutes none:
    a device that takes turns with others reaches any rate below its own.
    """
    rates = {
        key.removeprefix(f"{device}:"): rate
        for key, rate in ceilings.matmul_flops_per_second
        if key.startswith(f"{device}:")
    }
    reference = rates.pop("float32", None)
    if reference is None:
        return claimed
    proven = [dtype for dtype, rate in rates.items() if rate >= CLEARLY_FASTER * reference]
    disturbed = shared or device in dict(ceilings.doubts)
    kept = [it for it in claimed if (disturbed or it not in rates) and it not in ("float32", *proven)]
    return ("float32", *proven, *kept)


def _confirmed_device(device: Accelerator, ceilings: Ceilings, *, like: Accelerator | None) -> Accelerator:
    """Only the first device is measured; its result holds for those of the same model."""
    if like is None or (device.kind, device.name) != (like.kind, like.name):
        return device
    torch_name = "cuda" if device.kind == "rocm" else device.kind
    dtypes = confirmed(device.native_dtypes, torch_name, ceilings, shared=like.other_processes > 0)
    return msgspec.structs.replace(device, native_dtypes=dtypes)


def _with_warnings(machine: Machine) -> Machine:
    warnings = tuple(it.text for it in advice(machine) if it.level != "note")
    return msgspec.structs.replace(machine, warnings=warnings)


def _memory_bytes(root: Path) -> int:
    """What this process may use: the machine's memory, or its control group's limit."""
    found = re.search(r"^MemTotal:\s+(\d{1,18}) kB$", _read(root / "proc/meminfo"), re.MULTILINE)
    total = int(found.group(1)) * 1024 if found else int(psutil.virtual_memory().total)
    limit = control_groups.limits(root).memory_bytes
    return total if limit is None else min(total, limit)


def _shared_memory_bytes(root: Path) -> int:
    """The size of the memory file system through which loader workers pass their batches."""
    try:
        size = os.statvfs(root / "dev/shm")
    except OSError:
        return 0
    return size.f_frsize * size.f_blocks


def _transparent_huge_pages(root: Path) -> str:
    """``always``, ``madvise`` or ``never``: the word in brackets."""
    found = re.search(r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return found.group(1) if found else ""


def _library_versions() -> Iterator[tuple[str, str]]:
    """Installed versions of packages that affect training speed; ``cuda`` and ``hip`` are what torch was built for."""
    for library in _LIBRARIES:
        try:
            yield library, metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    yield from _built_for()


def _built_for() -> Iterator[tuple[str, str]]:
    """Read torch's generated ``version.py``, since importing torch would take seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return
    try:
        tree = ast.parse(_read(Path(found.origin).with_name("version.py")))
    except SyntaxError:
        return
    for node in tree.body:
        if isinstance(node, ast.AnnAssign):
            target: ast.expr = node.target
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
        else:
            continue
        named = isinstance(target, ast.Name) and target.id in {"cuda", "hip"}
        if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield ast.unparse(target), node.value.value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
