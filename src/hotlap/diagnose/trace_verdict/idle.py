"""Why a device was idle, and the remedies, for causes that no rule covers without a time account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hotlap.diagnose.device_idle import idle_share, in_operators
from hotlap.diagnose.operators import site_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, is_material, scaled
from hotlap.diagnose.wording import count, duration, levers_for, name, percent
from hotlap.records import CallSite, Finding
from hotlap.traces.records import Cause, CopyRow, DeviceBreakdown, IdleCause, OperatorRow

_SHOWN = 3
_BILLION = 1e9


class _Answer(NamedTuple):
    """The rule whose page explains a cause, the end of the title, and the remedy."""

    rule: str
    because: str
    remedy: str


_LOADER = (
    "Give the DataLoader workers (`num_workers`), `persistent_workers=True` and `pin_memory=True`; if it has enough, "
    "make `__getitem__` cheaper: decode and resize once, before training."
)
_ANSWERS: dict[Cause, _Answer] = {
    "data_loader": _Answer("loader-bound", "while the host waits for the data loader", _LOADER),
    "host_sync": _Answer(
        "host-sync",
        "after the host waited for it",
        "Read losses and metrics less often (`.item()`, `.cpu()`, `print`), decide on the device with `torch.where`, "
        "and remove `synchronize()` from the loop, so that the host stays ahead.",
    ),
    "blocking_copy": _Answer(
        "pageable-copies",
        "around copies that block the host",
        "Pin the host's memory (`pin_memory=True`), copy with `.to(device, non_blocking=True)`, or make the tensors on "
        "the device.",
    ),
    "communication": _Answer(
        "exposed-communication",
        "around communication",
        "Overlap it with backward (gradient buckets, `bucket_cap_mb`), communicate less often (`no_sync()` while "
        "gradients are accumulated), and find the slowest rank in the traces of the others.",
    ),
    "capture_or_compile": _Answer(
        "compilation",
        "while graphs are captured or code is compiled or loaded",
        "If this was warm-up, record later steps: `torch.profiler.schedule(wait=5, warmup=2, active=5)`. If it "
        "recurs, `TORCH_LOGS=recompiles` names the reason; `torch.compile(dynamic=True)` or padded shapes avoid it.",
    ),
    "initialisation": _Answer(
        "first-use",
        "while libraries and memory are initialised at first use",
        "This is paid once. Record later steps instead, which show training itself: "
        "`torch.profiler.schedule(wait=5, warmup=2, active=5)` and `profiler.step()`.",
    ),
    "between_steps": _Answer(
        "python-overhead",
        "between one step and the next",
        "Look at what the loop does after `optimizer.step()`: logging, metrics, progress bars and checkpoints. Do it "
        "every hundredth step, or in another thread.",
    ),
    "profiler": _Answer(
        "profiler",
        "for the profiler itself",
        "Record without `with_stack`, `record_shapes` and `profile_memory`, and with a warm-up in the schedule.",
    ),
    "unknown": _Answer(
        "unexplained-idle",
        "and the trace does not show why",
        "Record the host as well: `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]` and `with_stack=True`.",
    ),
}
_PYTHON = _Answer(
    "python-overhead",
    "while the host runs Python between operators",
    "Find the lines with `hotlap profile` or `with_stack=True`, and move them out of the step; `torch.compile` removes "
    "the Python of the model, and larger batches need less of it.",
)
_LAUNCHES = _Answer(
    "launch-bound",
    "because the host launches its work too slowly",
    'Compile the model (`torch.compile`; `mode="reduce-overhead"` replays the step as a CUDA graph), use a fused '
    "optimizer, or a larger batch.",
)


def idle_findings(profile: Profile, device: DeviceBreakdown) -> Iterator[Finding]:
    """Yield one finding per cause that takes 2 % of the window or more.

    The gap between consecutive kernels is not a cause. While work is launched too slowly the host is inside operators
    or in Python: these are two causes.
    """
    for cause, answer, part in _answered(device):
        idle = idle_share(profile, cause.cause)
        share = scaled(idle, part) if idle is not None else exactly(0.0)
        if not is_material(share):
            continue
        yield Finding(
            rule=answer.rule,
            share=share,
            title=f"The device idles {percent(share.value)} of the step {answer.because}.",
            evidence=tuple(_evidence(cause, answer, part)),
            remedy=_loader_remedy(cause) if cause.cause == "data_loader" else answer.remedy,
            site=_site(cause),
            levers=levers_for(answer.rule),
        )


def communication_finding(device: DeviceBreakdown) -> Iterator[Finding]:
    """Yield exposed communication if too few steps were recorded for the rule."""
    time = device.time
    share = exactly(time.exposed_communication_nanoseconds / max(1, time.window_nanoseconds))
    if is_material(share):
        kernels = [it for it in device.kernels if it.communication][:_SHOWN]
        yield Finding(
            rule="exposed-communication",
            share=share,
            title=f"Communication that does not overlap with computation takes {percent(share.value)} of the step.",
            evidence=tuple(
                f"{name(it.name)}: {duration(it.nanoseconds / _BILLION)} in {count(it.launches, 'launch', 'launches')}"
                for it in kernels
            ),
            remedy=_ANSWERS["communication"].remedy,
            levers=levers_for("exposed-communication"),
        )


def copies_finding(device: DeviceBreakdown) -> Iterator[Finding]:
    """Yield copies and memsets that do not overlap with computation."""
    time = device.time
    share = exactly(time.exposed_copy_nanoseconds / max(1, time.window_nanoseconds))
    if not is_material(share):
        return
    remedy = _copies_remedy(max(device.copies, key=lambda it: it.nanoseconds)) if device.copies else _MEMSETS
    yield Finding(
        rule="copies",
        share=share,
        title=f"Copies and memsets that do not overlap with computation take {percent(share.value)} of the step.",
        evidence=tuple(
            f"{it.direction}, {it.memory} memory: {duration(it.nanoseconds / _BILLION)} in "
            f"{count(it.copies, 'copy', 'copies')}"
            for it in device.copies[:_SHOWN]
        ),
        remedy=remedy,
    )


_MEMSETS = (
    "Clear gradients with `zero_grad(set_to_none=True)`, and do not fill tensors that are overwritten immediately."
)


def _copies_remedy(row: CopyRow) -> str:
    if row.direction == "HtoD":
        pinned = "" if row.memory == "pinned" else "Pin the host's memory (`pin_memory=True`). "
        return f"{pinned}Copy the next batch on a separate stream while this one is computed, in a shorter dtype."
    if row.direction == "DtoH":
        return "Keep results on the device and read them less often; reduce them before they are copied."
    return "Avoid `.contiguous()`, `.clone()` and `torch.cat` of large tensors in the step; write into one buffer."


def _answered(device: DeviceBreakdown) -> Iterator[tuple[IdleCause, _Answer, float]]:
    """Yield every cause with its remedy, and the part of the cause's time that it covers."""
    for cause in device.idle.causes:
        if cause.cause == "launch_bound":
            issuing = in_operators(cause)
            yield cause, _LAUNCHES, issuing
            yield cause, _PYTHON, 1 - issuing
        elif cause.cause in _ANSWERS:
            yield cause, _ANSWERS[cause.cause], 1.0


def _loader_remedy(cause: IdleCause) -> str:
    """Which of its remedies, where the loader's name in the trace says whether it has workers."""
    names = " ".join(it.name for it in cause.evidence)
    if "_SingleProcessDataLoaderIter" in names:
        return (
            "The DataLoader has no workers (`_SingleProcessDataLoaderIter`): pass `num_workers=4` or more, with "
            "`persistent_workers=True` and `pin_memory=True`."
        )
    if "_MultiProcessingDataLoaderIter" in names:
        return (
            "Its workers are too slow: pass a larger `num_workers` where there are free cores, and make `__getitem__` "
            "cheaper: decode and resize once, before training."
        )
    return _LOADER


def _evidence(cause: IdleCause, answer: _Answer, part: float) -> Iterator[str]:
    length = duration(part * cause.nanoseconds / _BILLION)
    yield f"{length} in {count(cause.gaps, 'gap')}" if cause.gaps else f"{length} within gaps of other causes"
    places_only = answer is _PYTHON
    shown = [it for it in cause.evidence if it.role == "place" or (it.role != "next_kernel" and not places_only)]
    where = "at" if places_only else "in"
    yield from (f"the host was {where} {name(it.name)}: {duration(it.nanoseconds / _BILLION)}" for it in shown[:_SHOWN])


def _site(cause: IdleCause) -> CallSite | None:
    place = next((it.name for it in cause.evidence if it.role == "place"), "")
    return site_of(OperatorRow(name="", place=place), "step") if place else None
