"""The facts about this machine, and the rates that children measured."""

from __future__ import annotations

import resource
import time

import msgspec

from hotlap.errors import HotlapError
from hotlap.machine.accelerators import as_torch_sees_them
from hotlap.machine.ceilings import merged
from hotlap.machine.facts import machine_facts, with_ceilings
from hotlap.measure.disturbance import notable_load
from hotlap.records import Ceilings, Machine, MeasuredRates, TorchDevice
from hotlap.trial.others import busy_seconds
from hotlap.trial.process import run_module
from hotlap.trial.suspension import can_suspend

_LIMIT_SECONDS = 180.0
# Kinds of accelerators that torch calls "cuda".
_CUDA_KINDS = frozenset({"cuda", "rocm"})


def measured_machine() -> Machine:
    """Facts about this machine and the rates it reaches. A rate that could not be measured is missing, and a warning
    says why."""
    facts = machine_facts()
    ceilings: dict[str, Ceilings] = {}
    warnings: dict[str, str] = {}
    devices: tuple[TorchDevice, ...] = ()
    has_device = any(it.kind in _CUDA_KINDS for it in facts.accelerators)
    waiting = ["cpu", "cuda"] if has_device else ["cpu"]
    while waiting:
        device = waiting.pop()
        try:
            found = _measured_rates(device)
        except HotlapError as error:
            warnings[device] = f"The rates of {device} could not be measured. {error}"
            continue
        ceilings[device] = found.ceilings
        devices = devices or found.devices
        if devices and "cuda" not in ceilings | warnings:  # torch has one of which the driver does not tell
            waiting.append("cuda")
    facts = msgspec.structs.replace(facts, accelerators=as_torch_sees_them(devices, facts.accelerators))
    facts = msgspec.structs.replace(facts, suspends_devices=can_suspend(facts.accelerators))
    rates = merged(ceilings.get("cuda", Ceilings()), ceilings.get("cpu", Ceilings()))
    measured = with_ceilings(facts, rates, busy=rates.other_load >= notable_load(facts.cores))
    return msgspec.structs.replace(measured, warnings=(*measured.warnings, *warnings.values()))


def _measured_rates(device: str) -> MeasuredRates:
    """What a child measured. Raises :class:`HotlapError`."""
    began, busy, own = time.perf_counter(), busy_seconds(), _seconds_of_children()
    printed = run_module("hotlap.machine.ceilings", ("--device", device), timeout_seconds=_LIMIT_SECONDS)
    others = busy_seconds() - busy - (_seconds_of_children() - own)
    try:
        found = msgspec.json.decode(printed, type=MeasuredRates)
    except msgspec.DecodeError as error:
        raise HotlapError(
            f"What was measured cannot be read: {error}.", remedy="Run `python -m hotlap.machine.ceilings` by hand."
        ) from error
    load = max(0.0, others) / (time.perf_counter() - began)
    return msgspec.structs.replace(found, ceilings=msgspec.structs.replace(found.ceilings, other_load=load))


def _seconds_of_children() -> float:
    """Processor time of all processes that we started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
