"""Build a profile from a trace: devices, operators and the host's time, without an account or facts of a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hotlap.diagnose.profile import Profile
from hotlap.evidence import RunEvidence, Window
from hotlap.machine.accelerators import claimed_dtypes
from hotlap.records import Accelerator, Machine, ScriptFacts
from hotlap.traces.records import Breakdown, DeviceBreakdown, OperatorRow

_BILLION = 1e9

Capability: TypeAlias = tuple[int, int]
"""Major and minor number, as CUDA gives them."""


def capability_of(breakdown: Breakdown, device: DeviceBreakdown) -> Capability | None:
    """The compute capability: as the trace writes it, else that of the architecture for which kernels are named."""
    major, _, minor = breakdown.facts.capability_of(device.name).partition(".")
    if minor:
        return int(major), int(minor)
    names = " ".join(it.name.lower() for it in device.kernels)
    return next((value for mark, value in _ARCHITECTURES if mark in names), None)


_ARCHITECTURES = (
    ("sm100_", (10, 0)),
    ("sm90_", (9, 0)),
    ("ampere_", (8, 0)),
    ("sm80_", (8, 0)),
    ("turing_", (7, 5)),
    ("volta_", (7, 0)),
    ("maxwell_", (5, 0)),
)
"""Of what kernels' names begin with; the newest first, since a library runs its kernels for older devices as well."""


def native_dtypes_of(name: str, capability: Capability | None) -> tuple[str, ...]:
    """Return the formats of a device's matrix units, by NVIDIA's compute capability; AMD numbers differently."""
    if "AMD" in name:
        return ("float16", "bfloat16")
    return claimed_dtypes(capability) if capability is not None else ()


def profile_of(breakdowns: Sequence[Breakdown], operators: Sequence[OperatorRow] = ()) -> Profile:
    """What rules are shown of the traces of one run, one a rank; ``operators`` are those of the first.

    Shares are those of the traced step, or of the whole window where a trace marks no steps.
    """
    first = breakdowns[0]
    device = first.busiest_device
    return Profile(
        facts=ScriptFacts(device=_kind(device.name) if device else "cpu", processes=len(breakdowns)),
        machine=Machine(accelerators=_accelerators(first)),
        evidence=RunEvidence(window=_window(first, device)),
        breakdowns=tuple(breakdowns),
        operators=tuple(operators),
        host_time=first.host_time,
    )


def _kind(name: str) -> str:
    return "xpu" if "Intel" in name else "mtia" if "MTIA" in name else "cuda"


def _accelerators(breakdown: Breakdown) -> tuple[Accelerator, ...]:
    device = breakdown.busiest_device
    if device is None:
        return ()
    capability = capability_of(breakdown, device)
    kind = "rocm" if "AMD" in device.name else _kind(device.name)
    native = native_dtypes_of(device.name, capability)
    return (Accelerator(kind=kind, name=device.name, memory_bytes=0, native_dtypes=native),)


def _window(breakdown: Breakdown, device: DeviceBreakdown | None) -> Window:
    """Return the steps in which operators are counted; without steps the whole trace counts as one."""
    steps = breakdown.steps
    if steps:
        nanoseconds = steps[-1].start_nanoseconds + steps[-1].nanoseconds - steps[0].start_nanoseconds
    else:
        nanoseconds = device.time.window_nanoseconds if device else breakdown.host_nanoseconds
    return Window(
        first_step=steps[0].number if steps else 0,
        steps=max(1, len(steps)),
        wall_seconds=nanoseconds / _BILLION,
        trace_path=breakdown.facts.path,
    )
