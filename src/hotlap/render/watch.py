"""What is said of a watched run in its report."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import PHASES, STEP_PHASES, PhaseAccount, WatchedRun
from hotlap.render import text


def how_it_went(run: WatchedRun) -> Iterator[str]:
    """Steps, their mean, and the samples per second."""
    if run.account is None:
        return
    speed = f", {run.samples_per_second:.4g} samples per second" if run.samples_per_second else ""
    timed = "" if run.timed_steps >= run.steps else f" ({run.timed_steps:,} of them timed)"
    yield (
        f"{text.count(run.steps, 'step')}{timed} in {text.duration(run.seconds)}; a step took "
        f"{text.duration(run.account.wall)}{speed}."
    )


def alarm_sentences(run: WatchedRun) -> Iterator[str]:
    """Each alarm with the moment at which it was first seen."""
    for it in run.alarms:
        until = "" if it.lasted else "; it passed before the end"
        yield text.sentence(f"After {text.duration(it.at_seconds)} {text.one_line(it.text)}{until}")


def plan_sentences(run: WatchedRun) -> Iterator[str]:
    """Expected against observed."""
    if run.expected_speedup is not None:
        of = run.expected_speedup
        yield f"Expected of the plan, as verified: {of.value:.2f}x ({of.low:.2f} to {of.high:.2f})."
    if run.observed_speedup is not None:
        of = run.observed_speedup
        yield (
            f"Observed: {of.value:.2f}x ({of.low:.2f} to {of.high:.2f}) against the unmodified script of the study "
            f"{text.one_line(run.reference)}. That was another launch at another time, so this is no proof; the "
            "interval is that of the study's baseline alone."
        )
    elif run.not_compared:
        yield text.sentence(f"The speedup was not observed: {text.one_line(run.not_compared)}")


def phase_rows(account: PhaseAccount) -> Iterator[tuple[str, str, str]]:
    """Each phase of a step: its name, its time, its share."""
    for phase in STEP_PHASES:
        seconds = account.seconds_in(phase)
        if seconds > 0 and account.wall > 0:
            yield PHASES[phase].title, text.duration(seconds), text.share(seconds / account.wall)
