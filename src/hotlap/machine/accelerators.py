"""The accelerators of this machine, as their drivers describe them.

Nothing here initialises CUDA or imports torch: this process starts the trials, and a CUDA context of its own would take
memory from them. What a driver does not report is left empty.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from hotlap.records import Accelerator, TorchDevice

_T = TypeVar("_T")


def accelerators(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> tuple[Accelerator, ...]:
    """Every accelerator that a training process would see, NVIDIA's first."""
    variables = os.environ if environment is None else environment
    return (*(it for _, it in _nvidia(variables)), *_amd(root), *_apple())


def as_torch_sees_them(
    devices: Sequence[TorchDevice], known: Sequence[Accelerator], environment: Mapping[str, str] | None = None
) -> tuple[Accelerator, ...]:
    """The devices in torch's order, with memory and capability as torch reports them, and everything else from the
    driver. ``known`` are those of :func:`accelerators`, which are kept where torch sees none."""
    if not devices:
        return tuple(known)
    told = {_bare(uuid): it for uuid, it in _nvidia(os.environ if environment is None else environment) if uuid}
    in_order = known if len(known) == len(devices) else (None,) * len(devices)
    return tuple(
        _with_torchs_facts(it, told.get(_bare(it.uuid)) or like) for it, like in zip(devices, in_order, strict=True)
    )


def _with_torchs_facts(device: TorchDevice, like: Accelerator | None) -> Accelerator:
    major, _, minor = device.capability.partition(".")
    is_number = device.kind == "cuda" and major.isdecimal() and minor.isdecimal()
    # A slice's name starts with its device's; AMD's driver has device names of its own.
    if like is None or (device.kind == "cuda" and not device.name.startswith(like.name)):
        like = Accelerator(kind=device.kind, name=device.name, memory_bytes=0)
    return msgspec.structs.replace(
        like,
        kind=device.kind,
        name=device.name,
        memory_bytes=device.memory_bytes,
        capability=device.capability,
        native_dtypes=claimed_dtypes((int(major), int(minor))) if is_number else like.native_dtypes,
    )


# ---------------------------------------------------------------------------------------------
# NVIDIA, through its management library
# ---------------------------------------------------------------------------------------------


def claimed_dtypes(capability: tuple[int, int]) -> tuple[str, ...]:
    """The dtypes that tensor cores of that CUDA compute capability multiply; a claim, to be confirmed by measurement.

    Source: CUDA C++ Programming Guide, "Compute Capabilities".
    """
    since = {"float16": (7, 0), "tf32": (8, 0), "bfloat16": (8, 0), "float8": (8, 9)}
    return ("float32", *(dtype for dtype, first in since.items() if capability >= first))


def _nvidia(environment: Mapping[str, str]) -> Iterator[tuple[str, Accelerator]]:
    """The visible devices with their identifiers, which are empty where this driver reports none."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, hence no device
        return
    try:
        for handle in _visible_handles(nvml, environment.get("CUDA_VISIBLE_DEVICES")):
            yield _identifier(nvml, handle), _describe_nvidia(nvml, handle)
    finally:
        nvml.nvmlShutdown()


def _bare(identifier: str) -> str:
    """The UUID as torch writes it, without what the driver puts before it."""
    return identifier.removeprefix("GPU-").removeprefix("MIG-").lower()


def _visible_handles(nvml: Any, visible: str | None) -> Iterator[Any]:
    """The devices that ``CUDA_VISIBLE_DEVICES`` leaves; as in CUDA, the first wrong entry hides all that follow."""
    count = _asked(nvml, nvml.nvmlDeviceGetCount, default=0)
    if visible is None:
        entries = [str(number) for number in range(count)]
    else:
        entries = [entry.strip() for entry in visible.split(",")]
    for entry in entries:
        handle = _handle(nvml, entry, count)
        if handle is None:
            return
        yield handle


def _handle(nvml: Any, entry: str, count: int) -> Any | None:
    if entry.isascii() and entry.isdecimal() and len(entry) < 6:
        number = int(entry)
        return _asked(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(number), default=None) if number < count else None
    if entry.startswith("MIG-"):
        return _asked(nvml, lambda: nvml.nvmlDeviceGetHandleByUUID(entry), default=None)
    if not entry.startswith("GPU-"):
        return None
    return next((it for it in _every_handle(nvml, count) if _identifier(nvml, it).startswith(entry)), None)


def _every_handle(nvml: Any, count: int) -> Iterator[Any]:
    handles = (_handle(nvml, str(number), count) for number in range(count))
    return (it for it in handles if it is not None)


def _identifier(nvml: Any, handle: Any) -> str:
    """``GPU-`` and a UUID; CUDA takes any unique beginning of it."""
    return _text(_asked(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), default=""))


def _describe_nvidia(nvml: Any, handle: Any) -> Accelerator:
    capability = _asked(nvml, lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)), default=(0, 0))
    memory = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle), default=None)
    milliwatts = _asked(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), default=None)
    return Accelerator(
        kind="cuda",
        name=_text(_asked(nvml, lambda: nvml.nvmlDeviceGetName(handle), default="NVIDIA device")),
        memory_bytes=int(memory.total) if memory is not None else 0,
        capability=f"{capability[0]}.{capability[1]}" if capability != (0, 0) else "",
        driver=_text(_asked(nvml, nvml.nvmlSystemGetDriverVersion, default="")),
        native_dtypes=claimed_dtypes(capability) if capability != (0, 0) else (),
        power_limit_watts=None if milliwatts is None else milliwatts / 1000,
        pcie=_pcie(nvml, handle),
        other_processes=_other_processes(nvml, handle),
        used_bytes=int(memory.used) if memory is not None else 0,
        throttled=_throttle_reasons(nvml, handle),
    )


def _pcie(nvml: Any, handle: Any) -> str:
    """``generation 4 x16``: the maximum of device and slot together (an idle link clocks down)."""
    generation = _asked(nvml, lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), default=None)
    width = _asked(nvml, lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle), default=None)
    return f"generation {generation} x{width}" if generation and width else ""


def _other_processes(nvml: Any, handle: Any) -> int:
    running: list[Any] = _asked(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), default=[])
    return sum(process.pid != os.getpid() for process in running)


def _throttle_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Why the clocks are reduced now. Idling and clocks that a user fixed are not throttling."""
    held: int = _asked(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), default=0)
    names = {
        "power cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
        "hardware slowdown": nvml.nvmlClocksThrottleReasonHwSlowdown,
        "temperature (driver)": nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
        "temperature (hardware)": nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }
    return tuple(name for name, bit in names.items() if held & bit)


def _asked(nvml: Any, question: Callable[[], _T], default: _T) -> _T:
    """The library's answer, or the default where this device or driver has none."""
    try:
        return question()
    except nvml.NVMLError:
        return default


def _text(answer: str | bytes) -> str:
    """Older versions of the library answer in bytes."""
    return answer.decode("utf-8", errors="replace") if isinstance(answer, bytes) else answer


# ---------------------------------------------------------------------------------------------
# AMD, from the kernel's compute driver
# ---------------------------------------------------------------------------------------------


def _amd(root: Path) -> Iterator[Accelerator]:
    """Every node of the kernel's compute topology that has compute units (a processor's node has none)."""
    driver = _read(root / "sys/module/amdgpu/version").strip()
    for node in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*"), key=lambda path: path.name.zfill(8)):
        properties = _numbers(node / "properties")
        if not properties.get("simd_count"):
            continue
        banks = (_numbers(bank / "properties") for bank in (node / "mem_banks").glob("*"))
        yield Accelerator(
            kind="rocm",
            name=_read(node / "name").strip() or "AMD device",
            memory_bytes=sum(bank.get("size_in_bytes", 0) for bank in banks),
            capability=_graphics_target(properties.get("gfx_target_version", 0)),
            driver=driver,
        )


def _graphics_target(version: int) -> str:
    """``gfx90a`` for 90010: two decimal digits each for minor and stepping, the last two written in hexadecimal."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if version else ""


def _numbers(path: Path) -> dict[str, int]:
    """A file of ``name number`` lines."""
    return {key: int(number) for key, number in re.findall(r"^(\w+) (\d{1,20})$", _read(path), re.MULTILINE)}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# ---------------------------------------------------------------------------------------------
# Apple
# ---------------------------------------------------------------------------------------------


def _apple() -> Iterator[Accelerator]:
    """The device of Apple's own chips, which shares the machine's memory."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        yield Accelerator(kind="mps", name="Apple silicon", memory_bytes=int(psutil.virtual_memory().total))
