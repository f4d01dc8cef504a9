"""Start-up takes long before the first step.

## What it is
What the script does after torch's import and before its first step: importing libraries, reading and preparing data,
building and loading the model, fetching the first batch.

## Why it is slow
It is paid at every start: of each trial of a search for hyperparameters, of each run that is resumed, of each small
change that is tried.

## How to see it
The lines at which the training thread was, sampled from torch's import up to the first training forward. Python's own
start, torch's import, the imports that torch makes for the first optimizer, and the first step itself, in which a model
is compiled, are no part of it, nor is waiting for other ranks to start. Its share of the run is known only where the
script ran to its own end; otherwise it is a hint, which is not given where others kept the machine busy: a few seconds
of imports may take half a minute then.

## What to do
Store what is computed at every start on disk (tokens, decoded samples, an index of files); import large libraries where
they are used; build large models on the `meta` device and load their weights into that, rather than initialising first.

## When it is fine
Runs of hours or days, which start once.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import USUAL_GROUND, Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import first_site, hottest, sampled_in, seconds_of
from hotlap.diagnose.shares import RUN, between, exactly
from hotlap.diagnose.wording import count, duration, levers_for, percent
from hotlap.evidence import LineSamples, RunEvidence, SampledLine
from hotlap.records import CallSite, Estimate, Finding, RunAccount

title = "Start-up takes long before the first step"
group: Group = "run"

_NAME = "startup-cost"
_VISIBLE = 0.1
_FEWEST_SECONDS_OF_A_WHOLE_RUN = 1.0
_LONG_SECONDS = 15.0
_OTHER_RANKS = "torch.distributed."
_LIBRARYS_OWN = ("torch.optim.", "torch.compile", "torch.nn.modules.module.Module.compile")
"""The first optimizer, and the first compiled model, make torch import its compiler. What compiling takes has a rule of
its own."""


def check(profile: Profile) -> Iterator[Finding]:
    """One finding where start-up took a second and a tenth of a run that was seen whole; or 15 seconds, as a hint."""
    account = profile.run_account
    lines = [it for it in sampled_in(profile, "startup") if not _is_not_the_scripts(it)]
    watched = profile.watched_startup_seconds
    if account is None or watched <= 0:
        return
    seconds = min(1.0, seconds_of(lines) / watched) * account.startup_seconds
    if seconds < _FEWEST_SECONDS_OF_A_WHOLE_RUN:
        return
    steps = f"as long as {count(round(seconds / account.step_seconds), 'step')} of {duration(account.step_seconds)}"
    if account.startup_share:
        share = seconds / (account.startup_seconds / account.startup_share)
        if share >= _VISIBLE:
            yield _finding(
                lines, steps, between(share, share, share, RUN), f"Start-up takes {percent(share)} of the run."
            )
    elif seconds >= _LONG_SECONDS and not profile.was_disturbed(USUAL_GROUND):
        yield _finding(lines, steps, exactly(0.0), f"Each start takes {duration(seconds)} before the first step.")


def _is_not_the_scripts(line: SampledLine) -> bool:
    """Whether the script waited for another rank, or torch imported its compiler."""
    return line.innermost.startswith(_OTHER_RANKS) or line.called.startswith(_LIBRARYS_OWN)


def _finding(lines: list[SampledLine], steps: str, share: Estimate, sentence: str) -> Finding:
    return Finding(
        rule=_NAME,
        kind="cost" if share.value else "hint",
        share=share,
        title=sentence,
        evidence=(steps, *hottest(lines, "start-up")),
        remedy="Cache on disk what these lines compute at each start, and import large libraries only where they "
        "are used.",
        site=first_site(lines),
        levers=levers_for(_NAME),
    )


def _profile(seconds: float, *, share: float | None) -> Profile:
    """Of so many seconds of start-up, six tenths pass in one line."""
    site = CallSite(role="call", file="/home/ada/train.py", line=9)
    lines = (
        SampledLine(phase="startup", samples=60, seconds=1.2 * seconds, site=site, called="pandas.read_csv"),
        SampledLine(phase="startup", samples=40, seconds=0.8 * seconds, called="import"),
    )
    return Profile(
        run_account=RunAccount(
            steps=200,
            step_seconds=0.1,
            step_share=between(1, 1, 1, RUN),
            startup_seconds=seconds + 3.0,
            startup_share=share,
        ),
        watched_startup_seconds=2 * (seconds + 3.0),  # watching made it twice as long
        evidence=RunEvidence(sampled=LineSamples(samples=100, lines=lines)),
    )


fires = {
    "a third of a run that was seen whole": _profile(9.0, share=0.4),
    "a second and a half of a short run that was seen whole": _profile(1.5, share=0.9),
    "half a minute, of a run whose length is not known": _profile(30.0, share=None),
}
silent = {
    "nothing measured": Profile(),
    "it waits for another rank to start": msgspec.structs.replace(
        _profile(30.0, share=None),
        evidence=RunEvidence(
            sampled=LineSamples(
                lines=(
                    SampledLine(phase="startup", samples=90, seconds=60.0, innermost="torch.distributed.utils.meet"),
                )
            )
        ),
    ),
    "torch imports its compiler for the first compiled model": msgspec.structs.replace(
        _profile(9.0, share=0.4),
        evidence=RunEvidence(
            sampled=LineSamples(lines=(SampledLine(phase="startup", samples=90, seconds=20.0, called="torch.compile"),))
        ),
    ),
    "a few seconds": _profile(6.0, share=None),
    "a moment of a run that was over at once": _profile(0.9, share=0.9),
    "half a minute, on a machine that other processes kept busy": msgspec.structs.replace(
        _profile(30.0, share=None), disturbed=("account",)
    ),
    "a twentieth of the whole": _profile(9.0, share=0.06),
    "no lines were sampled": msgspec.structs.replace(_profile(30.0, share=None), evidence=RunEvidence()),
}
