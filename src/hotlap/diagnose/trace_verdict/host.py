"""What the host did if a trace has no device, and the remedies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.diagnose.operators import in_words
from hotlap.diagnose.shares import exactly, is_material
from hotlap.diagnose.wording import count, duration, percent
from hotlap.records import Estimate, Finding
from hotlap.traces.records import Breakdown, HostTime, OperatorRow

_NOTABLE_PYTHON = 0.1
_SHOWN = 3
_BILLION = 1e9
_TRACED = "Tracing makes Python slower: an untraced step spends less time in it."


def host_findings(breakdown: Breakdown, operators: Sequence[OperatorRow]) -> Iterator[Finding]:
    """Yield waits for data and for a device, Python, and always the costliest operators."""
    time = breakdown.host_time
    if time is not None and time.step_nanoseconds > 0:
        yield from _waits(time)
    yield from _operators(time, operators)


def _waits(time: HostTime) -> Iterator[Finding]:
    loader, sync, python = (
        exactly(it / time.step_nanoseconds)
        for it in (time.loader_nanoseconds, time.sync_nanoseconds, time.python_nanoseconds)
    )
    if is_material(loader):
        yield _waiting(
            "loader-bound",
            loader,
            time.loader_nanoseconds,
            f"The step waits {percent(loader.value)} of its time for the data loader.",
            "Give the DataLoader workers (`num_workers`, `persistent_workers=True`) and leave each a core "
            "(`torch.set_num_threads`), or make `__getitem__` cheaper.",
        )
    if is_material(sync):
        yield _waiting(
            "host-sync",
            sync,
            time.sync_nanoseconds,
            f"The host waits {percent(sync.value)} of the step for a device whose work was not recorded.",
            "Record the device as well: `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`.",
        )
    if python.value >= _NOTABLE_PYTHON:
        yield Finding(
            rule="python-overhead",
            share=python,
            title=f"In {percent(python.value)} of the step no operator of torch runs, and training waits for nothing.",
            evidence=(f"{duration(time.python_nanoseconds / _BILLION)} in Python and the rest", _TRACED),
            remedy="Move logging, metrics and loops in Python out of the step; `torch.compile` removes the Python of "
            "the model, and a larger batch spends less of it per sample.",
        )


def _waiting(rule: str, share: Estimate, nanoseconds: int, title: str, remedy: str) -> Finding:
    evidence = (f"{duration(nanoseconds / _BILLION)} within the steps of the trace",)
    return Finding(rule=rule, share=share, title=title, evidence=evidence, remedy=remedy)


def _operators(time: HostTime | None, operators: Sequence[OperatorRow]) -> Iterator[Finding]:
    whole = sum(it.host_nanoseconds for it in operators)
    if whole <= 0:
        return
    longest = sorted(operators, key=lambda it: -it.host_nanoseconds)[:_SHOWN]
    most = longest[0].host_nanoseconds / whole
    share = time.operator_nanoseconds / time.step_nanoseconds if time is not None and time.step_nanoseconds else None
    amount = f"Operators take {percent(share)} of the step; the" if share is not None else "The"
    yield Finding(
        rule="dominant-operator",
        kind="hint",
        share=exactly(0.0),
        title=f"{amount} longest, {in_words(longest[0])}, takes {percent(most)} of their time.",
        evidence=tuple(
            f"{in_words(it)}: {duration(it.host_nanoseconds / _BILLION)} in {count(it.calls, 'call')}" for it in longest
        ),
        remedy="Run these on less data or less often. `torch.compile` fuses chains of element-wise operators, and "
        'processors with instructions for bfloat16 multiply it faster (`torch.autocast("cpu")`).',
    )
