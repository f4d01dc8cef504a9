"""Select what an experiment tracker gets of a study: configuration, results, and both runs step by step.

One study is one run of the tracker. Names consist of letters, digits and ``_ - . /``, which all trackers accept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hotlap.export.gather import Gathered
from hotlap.export.tables import comparison_of, setting_json, step_columns, verdict_name
from hotlap.records import GUESSED_SAMPLES, Comparison, Outcome, Run, Study
from hotlap.render.headline import headline
from hotlap.render.text import command, one_line

_OTHER_CHARACTERS = re.compile(r"[^\w.\-]+", re.ASCII)
_LONGEST_NAME = 60
_LONGEST_TEXT = 400


@dataclass(frozen=True, slots=True)
class Tracked:
    """``config`` is what was run, ``summary`` its results. ``series`` maps each step (from 1) to its
    numbers, ``baseline/...`` for the unmodified script and ``plan/...`` with the plan."""

    name: str
    note: str
    config: tuple[tuple[str, str | int | float], ...]
    summary: tuple[tuple[str, float], ...]
    series: tuple[tuple[int, tuple[tuple[str, float], ...]], ...]


def tracked(of: Gathered) -> Tracked:
    """Select what a tracker gets of a study."""
    study = of.study
    return Tracked(
        name=name_of(study.identifier) or "hotlap",
        note=headline(study).sentence,
        config=tuple(_config(study)),
        summary=tuple(_finite(_summary(study))),
        series=_series(of),
    )


def name_of(text: str) -> str:
    """Text as a name that every tracker accepts, without leading dots, which could name another folder."""
    return _OTHER_CHARACTERS.sub("_", one_line(text))[:_LONGEST_NAME].lstrip(".")


def run_series(run: Run) -> tuple[tuple[tuple[str, float], ...], ...]:
    """The numbers of each step by name: phases, samples per second, loss."""
    return tuple(tuple(_finite(_step(run, row))) for row in range(len(run.steps.wall_seconds)))


def lever_hyperparameters(outcome: Outcome) -> dict[str, str | bool | int | float]:
    """A lever and its values, by name."""
    values = outcome.setting.values if outcome.setting is not None else ()
    shown = {f"{name_of(outcome.lever)}/{name_of(key)}": it for key, it in values}
    texts = {key: one_line(it) if isinstance(it, str) else it for key, it in shown.items()}
    return {"lever": one_line(outcome.lever), "verdict": verdict_name(outcome), **texts}


def comparison_numbers(comparison: Comparison) -> Iterator[tuple[str, float]]:
    """The numbers of a comparison by name."""
    speedup = comparison.speed.speedup
    yield from (("speedup", speedup.value), ("speedup_low", speedup.low), ("speedup_high", speedup.high))
    if comparison.candidate_peak_bytes:
        yield "baseline_peak_bytes", float(comparison.baseline_peak_bytes)
        yield "candidate_peak_bytes", float(comparison.candidate_peak_bytes)
    if comparison.energy is not None:
        yield "baseline_joules_per_sample", comparison.energy.baseline_joules_per_sample.value
        yield "candidate_joules_per_sample", comparison.energy.candidate_joules_per_sample.value


def _config(study: Study) -> Iterator[tuple[str, str | int | float]]:
    yield "command", command(study.workload)
    yield "hotlap_version", one_line(study.hotlap_version)
    yield "started", one_line(study.started)
    yield "status", study.status
    yield "processor", one_line(study.machine.processor)
    yield "cores", study.machine.cores
    yield "accelerators", ", ".join(one_line(it.name) for it in study.machine.accelerators)[:_LONGEST_TEXT]
    yield "torch_version", one_line(dict(study.machine.library_versions).get("torch", ""))
    if study.source.git_revision:
        yield "git_revision", one_line(study.source.git_revision)
    for it in study.plan.settings:
        yield f"plan/{name_of(it.lever)}", one_line(setting_json(it) or "", limit=_LONGEST_TEXT)


def _summary(study: Study) -> Iterator[tuple[str, float]]:
    if study.verification is not None:
        yield from comparison_numbers(study.verification)
    for name, account in (("before", study.account_before), ("after", study.account_after)):
        if account is not None:
            yield f"step_seconds_{name}", account.wall
    yield "spent_seconds", study.spent_seconds
    for outcome in study.outcomes:
        comparison = comparison_of(outcome)
        if comparison is not None:
            numbers = comparison_numbers(comparison)
            yield from ((f"levers/{name_of(outcome.lever)}/{key}", it) for key, it in numbers)


def _series(of: Gathered) -> tuple[tuple[int, tuple[tuple[str, float], ...]], ...]:
    arms = [(name, run_series(run)) for name, run in (("baseline", of.baseline), ("plan", of.planned)) if run]
    longest = max((len(rows) for _, rows in arms), default=0)
    return tuple((row + 1, tuple(_merged(arms, row))) for row in range(longest))


def _merged(
    arms: Sequence[tuple[str, Sequence[tuple[tuple[str, float], ...]]]], row: int
) -> Iterator[tuple[str, float]]:
    for name, rows in arms:
        if row < len(rows):
            yield from ((f"{name}/{key}", it) for key, it in rows[row])


def _step(run: Run, row: int) -> Iterator[tuple[str, float | None]]:
    for name, column in step_columns(run.steps).items():
        if row < len(column):
            yield name, column[row]
    wall, samples = run.steps.wall_seconds[row], run.steps.samples
    if row < len(samples) and wall > 0 and run.facts.samples_from not in GUESSED_SAMPLES:
        yield "samples_per_second", samples[row] * max(1, run.facts.processes) / wall


def _finite(numbers: Iterator[tuple[str, float]] | Iterator[tuple[str, float | None]]) -> Iterator[tuple[str, float]]:
    """The finite numbers, which can be drawn."""
    return ((name, float(it)) for name, it in numbers if it is not None and math.isfinite(it))
