"""One function takes most of the time of loading samples.

## What it is
A single function takes more than 30 % of the time in `Dataset.__getitem__` and the collate function, while training
waits for data.

## Why it is slow
Decoding a large image to shrink it afterwards, tokenising again in every epoch, a Python loop over pixels or rows,
reading a file line by line: work that is repeated for each sample of each epoch and occupies a CPU core.

## How to see it
Some samples are loaded in the main process under a profiler, which counts each function's own time. Profiling makes
short Python functions look slower than they are, so a function must take 30 % of the time to be reported. If no library
function takes half of collating, the collate function is reported as a whole. The cost is the same share of the data
wait within epochs, minus the sampler's time: without the function a batch takes that much less, and the wait shrinks by
at least as much. It is at most the function's time for all samples of a step; if that is much less, the step waits for
something else, and this rule is silent. A function of a library, or in C, is shown at your line that calls it, and
collating at your collate function, or else at the data set.

## What to do
Do it once, beforehand, and store the result; or use a compiled library; or do it on the device, for a whole batch at a
time. For images: decode at a reduced size (`Image.draft`), or with a faster decoder. For text: store the tokens. If
samples are rows of a tensor, do not take and stack them one by one: index the tensor once per batch.

## When it is fine
If training does not wait for data: then this rule is silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.data_wait import choosing, distinct_datasets, step_seconds_per_sample, waiting
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, between, is_material, scaled, without
from hotlap.diagnose.wording import count, duration, levers_for, line_of, name, percent, time_in
from hotlap.evidence import DatasetProfile, FunctionTime, LoaderUse, RunEvidence
from hotlap.records import CallSite, Estimate, Finding, PhaseAccount
from hotlap.traces.dialects import is_users_frame

title = "One function takes most of the time of loading samples"
group: Group = "data"

_NAME = "slow-transform"
_LARGE_PART = 0.3
_MOST = 0.5
_EXPLAINS = 0.75
_FEWEST_SAMPLES = 4
_SHOWN = 3
_BUILTIN = re.compile(r"built-in method (?:builtins\.)?(?P<function>\S+)")
_METHOD = re.compile(r"method '(?P<function>[^']+)' of '(?P<type>[^']+)' objects")

_STACK = "Let the data set return tensors, and stack or pad them in one call instead of element by element."
_WHOLE_BATCHES = (
    "Load a batch at once instead of stacking its samples: let `__getitems__` of the data set return a whole batch, "
    "taken from its tensors with all of the indices, and pass a `collate_fn` that returns its argument."
)


@dataclass(frozen=True, slots=True)
class _Culprit:
    """What takes the time: a function, or collating as a whole where no single function of it does."""

    name: str
    part: float
    remedy: str
    site: CallSite | None


def check(profile: Profile) -> Iterator[Finding]:
    """One finding for each data set whose samples are mostly one function's work, where the training waits for it."""
    for dataset in distinct_datasets(profile):
        culprit = _culprit(dataset)
        if culprit is None:
            continue
        wait = without(waiting(profile), choosing(profile).value)
        share = _cost(profile, dataset, culprit, scaled(wait, _within_epochs(profile, dataset)))
        if not is_material(share):
            continue
        yield Finding(
            rule=_NAME,
            share=share,
            title=f"{culprit.name} takes {percent(culprit.part)} of the time of loading samples.",
            evidence=(
                f"{count(dataset.samples, 'sample')} of {name(dataset.dataset)} loaded in {duration(dataset.seconds)} "
                "under a profiler",
                *(_describe(it, dataset) for it in dataset.functions[:_SHOWN]),
                time_in(profile.account, "data_wait"),
            ),
            remedy=culprit.remedy,
            site=culprit.site,
            levers=levers_for(_NAME),
        )


def _cost(profile: Profile, dataset: DatasetProfile, culprit: _Culprit, wait: Estimate) -> Estimate:
    """Its part of the wait. Where samples are made much sooner than the step waits, it is something else that is waited
    for, and whether anything is saved is not known."""
    per_sample = culprit.part * dataset.seconds / dataset.samples
    most = per_sample / step_seconds_per_sample(profile) if profile.account.wall > 0 else 0.0
    share = scaled(wait, culprit.part)
    if most < _EXPLAINS * share.value:
        return at_most(most)
    return between(min(share.value, most), min(share.low, most), min(share.high, most))


def _within_epochs(profile: Profile, dataset: DatasetProfile) -> float:
    """The part of fetching that is not waiting for workers to start, of which `worker-startup` speaks; all of it where
    the starts were not timed."""
    uses = [it for it in profile.evidence.loaders if it.dataset == dataset.dataset]
    within = sum(sum(it.fetch_seconds) for it in uses)
    starting = sum(sum(it.start_seconds) + sum(it.first_fetch_seconds) for it in uses)
    return within / (within + starting) if within > 0 else 1.0


def _culprit(dataset: DatasetProfile) -> _Culprit | None:
    if dataset.samples < _FEWEST_SAMPLES or dataset.seconds <= 0:
        return None
    costliest = max(dataset.functions, key=lambda it: it.own_seconds, default=None)
    if costliest and costliest.own_seconds > _LARGE_PART * dataset.seconds and _is_worth_naming(costliest, dataset):
        return _Culprit(
            name=_title_of(costliest),
            part=min(1.0, costliest.own_seconds / dataset.seconds),
            remedy=f"Do what {_shown(costliest)} does once, beforehand, and store the result; or use a compiled "
            "library for it; or do it on the device, for a whole batch.",
            site=_site(costliest, dataset),
        )
    if dataset.collate_seconds > _LARGE_PART * dataset.seconds:
        return _Culprit(
            name="Collating",
            part=min(1.0, dataset.collate_seconds / dataset.seconds),
            remedy=_STACK if dataset.collate_site else _WHOLE_BATCHES,
            site=dataset.collate_site or dataset.site,
        )
    return None


def _is_worth_naming(function: FunctionTime, dataset: DatasetProfile) -> bool:
    """Whether to name it instead of the collate function: one of the user's own, or most of what collating takes, other
    than the stacking that torch's own function does."""
    if _shown(function) == "`torch.stack`" and dataset.collate_site is None:
        return False
    return _is_users(function) or function.own_seconds >= _MOST * dataset.collate_seconds


def _is_users(function: FunctionTime) -> bool:
    return is_users_frame(f"{function.file}({function.line}): {function.name}")


def _site(function: FunctionTime, dataset: DatasetProfile) -> CallSite | None:
    if not _is_users(function):
        return function.caller or dataset.site
    return CallSite(role="loader", file=function.file, line=function.line, function=function.name)


def _shown(function: FunctionTime) -> str:
    """A function of C without the words that Python's profiler puts around it."""
    if builtin := _BUILTIN.fullmatch(function.name):
        return f"`{name(builtin['function'])}`"
    if method := _METHOD.fullmatch(function.name):
        return f"`{name(method['type'] + '.' + method['function'])}`"
    return f"`{name(function.name)}`"


def _title_of(function: FunctionTime) -> str:
    where = f" at {line_of(function.file, function.line)}" if function.file and function.line else ""
    return f"{_shown(function)}{where}"


def _describe(function: FunctionTime, dataset: DatasetProfile) -> str:
    where = f" ({line_of(function.file, function.line)})" if function.file and function.line else ""
    per_sample = duration(function.own_seconds / dataset.samples)
    return f"{_shown(function)}{where}: {per_sample} per sample, {percent(function.own_seconds / dataset.seconds)}"


def _images(*functions: FunctionTime, samples: int = 32, collate_seconds: float = 0.0) -> RunEvidence:
    dataset = DatasetProfile(
        dataset="Images", samples=samples, seconds=1.0, functions=functions, collate_seconds=collate_seconds
    )
    return RunEvidence(datasets=(dataset,))


_WAITING = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.05),
        ("forward", 0.05),
    ),
    samples_per_step=8,
)
_RESIZE = FunctionTime(name="resize", file="/home/ada/data.py", line=40, calls=32, own_seconds=0.62, total_seconds=0.7)
_OPEN = FunctionTime(name="open", file="/home/ada/data.py", line=12, calls=32, own_seconds=0.2, total_seconds=0.2)

fires = {
    "resizing takes 62 % of half a step": Profile(account=_WAITING, evidence=_images(_RESIZE, _OPEN)),
    "a function that is not written in Python": Profile(
        account=_WAITING, evidence=_images(FunctionTime(name="decode", own_seconds=0.4, total_seconds=0.4))
    ),
    "torch's own function stacks samples": Profile(
        account=_WAITING,
        evidence=_images(
            FunctionTime(name="built-in method torch.stack", own_seconds=0.4, total_seconds=0.4), collate_seconds=0.45
        ),
    ),
    "collating takes 45 %": Profile(account=_WAITING, evidence=_images(_OPEN, collate_seconds=0.45)),
}
silent = {
    "nothing measured": Profile(),
    "no function takes more than 30 %": Profile(account=_WAITING, evidence=_images(_OPEN, collate_seconds=0.3)),
    "the step does not wait for it": Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", 0.002),
                ("forward", 0.098),
            ),
        ),
        evidence=_images(_RESIZE),
    ),
    "the samples of a step are made in a millisecond": Profile(
        account=PhaseAccount(
            wall=1.0,
            phases=(
                ("data_wait", 0.5),
                ("forward", 0.5),
            ),
        ),
        evidence=_images(_RESIZE),
    ),
    "the wait is for workers that start": Profile(
        account=_WAITING,
        evidence=msgspec.structs.replace(
            _images(_RESIZE),
            loaders=(LoaderUse(dataset="Images", first_fetch_seconds=(0.3,) * 4, fetch_seconds=(0.001,) * 40),),
        ),
    ),
    "two samples say nothing": Profile(account=_WAITING, evidence=_images(_RESIZE, samples=2)),
}
