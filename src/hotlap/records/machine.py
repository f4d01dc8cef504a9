"""The machine, and the rates that it reached."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.protection import Protection


class Accelerator(Record, frozen=True, kw_only=True):
    """One device, as its driver describes it.

    ``other_processes`` counts the processes that computed on it, ``used_bytes`` is what they held of its memory, and
    ``throttled`` has the reasons why its clocks were held down, all at the moment of the query.
    """

    kind: str
    name: str
    memory_bytes: int
    capability: str = ""
    driver: str = ""
    native_dtypes: tuple[str, ...] = ()
    power_limit_watts: float | None = None
    pcie: str = ""
    other_processes: int = 0
    used_bytes: int = 0
    throttled: tuple[str, ...] = ()


class TorchDevice(Record, frozen=True, kw_only=True):
    """One device as torch sees it (with MIG, the slice). ``uuid`` is empty where this torch does not report it."""

    kind: Literal["cuda", "rocm"]
    name: str
    memory_bytes: int
    capability: str = ""
    uuid: str = ""


class SizedRate(Record, frozen=True, kw_only=True):
    """The rate of products of two square matrices of ``side`` rows, the best of several tries.

    ``key`` is ``device:dtype`` as in :class:`Ceilings`. ``conversion_seconds`` is what converting one float32 matrix of
    that side to the dtype and one back took together; 0 for a format that takes float32 matrices as they are.
    """

    key: str
    side: int
    flops_per_second: float
    conversion_seconds: float = 0.0


ShortSide: TypeAlias = Literal["rows", "common"]


class FlatRate(Record, frozen=True, kw_only=True):
    """The rate of products of matrices of which one side is short, the best of several tries.

    With short ``rows`` a matrix of ``short_side`` rows and ``side`` columns is multiplied by a square one; with a short
    ``common`` side both have ``side`` rows or columns, and ``short_side`` numbers are summed for each element.
    """

    key: str
    short: ShortSide
    short_side: int
    side: int
    flops_per_second: float


class AttentionRate(Record, frozen=True, kw_only=True):
    """The time of attention, forward and backward, with ``tokens`` and heads of ``head_width``: by its definition
    (eager) and by torch's fused operator, each the best of several tries. ``key`` is ``device:dtype`` as in
    :class:`Ceilings`. ``threads`` is how many a processor worked with; 0 where that is not known, and on other devices.
    """

    key: str
    tokens: int
    head_width: int
    eager_seconds: float
    fused_seconds: float
    threads: int = 0


class Ceilings(Record, frozen=True, kw_only=True):
    """Rates that this machine reached in a short test, the best of several tries.

    Keys of ``matmul_flops_per_second`` are ``device:dtype`` (``cpu:float32``, ``cuda:bfloat16``); ``matmul_by_size``
    has the rates of each size, smallest first, ``flat`` those of products with a short side, and ``attention`` what a
    fused operator takes. ``autocast_seconds_per_layer`` has, by the same keys, what autocast adds to a forward and
    backward pass of one layer, however small. ``fresh_memory_seconds_per_byte`` is what using memory for the first time
    takes longer than using it again. ``doubts`` are pairs of a device and a sentence that says why the rates of its
    products are unreliable, although they were measured more than once. ``threads`` is with how many threads the
    processor's products were measured (0: not known). Other programs kept ``other_load`` cores busy meanwhile.
    """

    matmul_flops_per_second: tuple[tuple[str, float], ...] = ()
    matmul_by_size: tuple[SizedRate, ...] = ()
    flat: tuple[FlatRate, ...] = ()
    attention: tuple[AttentionRate, ...] = ()
    autocast_seconds_per_layer: tuple[tuple[str, float], ...] = ()
    memory_bytes_per_second: float | None = None
    fresh_memory_seconds_per_byte: float | None = None
    host_to_device_pageable_bytes_per_second: float | None = None
    host_to_device_pinned_bytes_per_second: float | None = None
    other_load: float = 0.0
    doubts: tuple[tuple[str, str], ...] = ()
    threads: int = 0


class MeasuredRates(Record, frozen=True, kw_only=True):
    """What the child that measures ceilings writes: the rates, and the devices that torch sees, in torch's order."""

    ceilings: Ceilings
    devices: tuple[TorchDevice, ...] = ()


class Machine(Record, frozen=True, kw_only=True):
    """This machine, and how much of it hotlap may use.

    ``cores`` are those really available (affinity and cgroup quota, whichever is less);
    ``native_dtypes`` those the processor multiplies in hardware, as measured.
    ``visible_cores`` are those that programs see, and size their thread pools by (affinity without
    quota; 0 where not looked at). ``environment`` holds the variables that change how training runs.
    ``kernel_settings`` are those that decide how trials can be isolated, by their names for sysctl(8), with
    ``lsm`` (the active security modules) and ``cap_sys_admin`` (1 where this process may mount).
    ``container`` is what runs the container that this is (``docker``, ``kubernetes``), empty outside of one.
    ``suspends_devices`` says that device memory of a process that waits can be moved to the host.
    ``protection`` is how trials are isolated (None where none was prepared).
    ``allocators`` are those that are installed and can be preloaded in place of the C library's.
    """

    processor: str = ""
    cores: int = 1
    physical_cores: int = 1
    memory_bytes: int = 0
    shared_memory_bytes: int = 0
    native_dtypes: tuple[str, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    system: str = ""
    python_version: str = ""
    library_versions: tuple[tuple[str, str], ...] = ()
    visible_cores: int = 0
    transparent_huge_pages: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    ceilings: Ceilings = Ceilings()
    warnings: tuple[str, ...] = ()
    kernel_settings: tuple[tuple[str, str], ...] = ()
    container: str = ""
    protection: Protection | None = None
    suspends_devices: bool = False
    allocators: tuple[str, ...] = ()

    @property
    def traits(self) -> dict[str, str]:
        """What two machines must have in common before measurements of them are compared, by name."""
        versions = dict(self.library_versions)
        devices = [f"{it.name} ({_gibibytes(it.memory_bytes)})" for it in self.accelerators]
        return {
            "processor": self.processor,
            "cores": str(self.cores),
            "memory": _gibibytes(self.memory_bytes),
            "accelerators": ", ".join(devices) or "none",
            "Python": self.python_version,
            **{it: versions.get(it, "none") for it in ("torch", "numpy")},
        }


def _gibibytes(size_bytes: int) -> str:
    # Machines of one kind differ by some MiB in what their firmware reserves.
    return f"{round(size_bytes / 2**30)} GiB"
