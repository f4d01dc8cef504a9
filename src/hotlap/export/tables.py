"""A study as tidy tables: one row an observation, one column a variable, units in the names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

import msgspec

from hotlap import plan as plans_of
from hotlap.export.gather import Gathered
from hotlap.records import (
    PHASES,
    STEP_PHASES,
    Block,
    Comparison,
    Outcome,
    Run,
    Setting,
    Skipped,
    Steps,
    StudyKind,
)

Cell: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` are names with what they mean; every row has a cell for each."""

    name: str
    about: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]


def tables(of: Gathered) -> tuple[Table, ...]:
    """All tables of a study; one that has no rows is there all the same."""
    return (_study(of), _levers(of), _steps(of), _losses(of), _findings(of), _blocks(of))


def setting_json(setting: Setting | None) -> str | None:
    """A lever's values as a JSON object."""
    return json.dumps(dict(setting.values), sort_keys=True) if setting is not None else None


def verdict_name(outcome: Outcome) -> str:
    """``kept``, ``no-gain`` and so on, as the study's JSON says it."""
    return str(type(outcome.verdict).__struct_config__.tag)


def comparison_of(outcome: Outcome) -> Comparison | None:
    """The comparison behind an outcome, where there is one."""
    found = getattr(outcome.verdict, "comparison", None)
    return found if isinstance(found, Comparison) else None


_COMPARISON_COLUMNS = (
    ("speedup", "how many times as fast as without it; empty where it was not measured"),
    ("speedup_low", "lower end of the speedup's interval"),
    ("speedup_high", "upper end of the speedup's interval"),
    ("confidence", "confidence of the interval"),
    ("speed_verdict", "faster, slower, no-effect or inconclusive"),
    ("sets", "fresh launches of every arm that the interval rests on"),
    ("rounds", "rounds of a set"),
    ("noise_floor", "half-width of the interval of the baseline against itself, as a share"),
    ("smallest_detectable", "the smallest effect that these sets could have shown, as a share"),
    ("baseline_agrees", "whether the baseline against itself came out as no difference"),
    ("quality", "exact, within, lost or not-verified; empty where results were not compared"),
    ("compared", "how many steps of training, or inputs of a model, were compared"),
    ("baseline_peak_bytes", "memory peak of the baseline, the device's where there is one"),
    ("candidate_peak_bytes", "memory peak with it"),
    ("baseline_seconds_per_sample", "wall seconds of a sample in the baseline, a geometric mean over sets"),
    ("extra_startup_seconds", "what start and warm-up took longer with it"),
    ("baseline_joules_per_sample", "energy of a sample in the baseline"),
    ("candidate_joules_per_sample", "energy of a sample with it"),
    ("energy_source", "device-counter, device-power or processor-counter (machine-wide)"),
)


def _comparison_cells(comparison: Comparison | None) -> tuple[Cell, ...]:
    if comparison is None:
        return (None,) * len(_COMPARISON_COLUMNS)
    speed, quality, energy = comparison.speed, comparison.quality, comparison.energy
    level, extra = comparison.baseline_seconds_per_sample, comparison.extra_startup_seconds
    return (
        speed.speedup.value,
        speed.speedup.low,
        speed.speedup.high,
        speed.confidence,
        speed.verdict,
        speed.sets,
        speed.rounds,
        speed.noise_floor,
        speed.smallest_detectable,
        speed.baseline_agrees,
        quality.verdict if quality is not None else None,
        quality.compared if quality is not None else None,
        comparison.baseline_peak_bytes or None,
        comparison.candidate_peak_bytes or None,
        level.value if level is not None else None,
        extra.value if extra is not None else None,
        energy.baseline_joules_per_sample.value if energy is not None else None,
        energy.candidate_joules_per_sample.value if energy is not None else None,
        energy.source if energy is not None else None,
    )


def _study(of: Gathered) -> Table:
    study = of.study
    versions = dict(study.machine.library_versions)
    described: tuple[tuple[str, str, Cell], ...] = (
        ("study", "identifier of the study", study.identifier),
        ("started", "when it began, UTC", study.started),
        ("hotlap_version", "the hotlap that made it", study.hotlap_version),
        ("kind", " or ".join(get_args(StudyKind)), study.kind),
        ("status", "how it ended", study.status),
        ("target", "the script or module", study.workload.target),
        ("arguments", "its arguments, a JSON array", json.dumps(study.workload.arguments)),
        ("git_revision", "the commit that was checked out", study.source.git_revision or None),
        ("processor", "the machine's processor", study.machine.processor),
        ("cores", "cores that could be used", study.machine.cores),
        ("accelerators", "the accelerators, a JSON array", json.dumps([it.name for it in study.machine.accelerators])),
        ("torch_version", "the torch that trained", versions.get("torch")),
        ("spent_seconds", "seconds that the study took", study.spent_seconds),
        ("plan", "the levers that were kept, a JSON object", _plan_json(study.plan.settings)),
    )
    cells = (*(it[2] for it in described), *_comparison_cells(study.verification))
    columns = (*((name, meaning) for name, meaning, _ in described), *_COMPARISON_COLUMNS)
    about = "One row: the study, and the verification of the whole plan against the untouched script."
    return Table("study", about, columns, (cells,))


def _levers(of: Gathered) -> Table:
    columns = (
        ("study", "identifier of the study"),
        ("lever", "the lever"),
        ("setting", "its values, a JSON object"),
        ("verdict", "kept, no-gain, quality-lost, not-verified, failed, seen or skipped"),
        ("reason", "why"),
        ("bound", "the most that it could have given, where it was skipped for that"),
        ("trial_seconds", "seconds that its trials took"),
        ("compile_seconds", "seconds that torch.compile took in a trial"),
        *_COMPARISON_COLUMNS,
    )
    rows = tuple((of.study.identifier, *_lever_cells(it)) for it in of.study.outcomes)
    return Table("levers", "One row a lever: what became of it, compared with the plan before it.", columns, rows)


def _lever_cells(outcome: Outcome) -> tuple[Cell, ...]:
    verdict = outcome.verdict
    return (
        outcome.lever,
        setting_json(outcome.setting),
        verdict_name(outcome),
        verdict.reason or None,
        verdict.bound if isinstance(verdict, Skipped) else None,
        outcome.trial_seconds,
        outcome.compile.seconds if outcome.compile is not None else None,
        *_comparison_cells(comparison_of(outcome)),
    )


STEP_COLUMNS = (
    ("wall_seconds", f"wall seconds of the step; the {len(STEP_PHASES)} phases add up to it"),
    *((f"{it}_seconds", PHASES[it].contents) for it in STEP_PHASES),
    ("outside_seconds", PHASES["outside"].contents),
    ("samples", "samples of the step"),
    ("loss", "training loss; empty where it could not be read or was not finite"),
)


def step_columns(steps: Steps) -> Mapping[str, Sequence[float | None]]:
    """The columns of :data:`STEP_COLUMNS` by their names."""
    phases = {f"{it}_seconds": steps.seconds_in(it) for it in STEP_PHASES}
    return {name: phases[name] if name in phases else getattr(steps, name) for name, _ in STEP_COLUMNS}


def _steps(of: Gathered) -> Table:
    columns = (
        ("study", "identifier of the study"),
        ("run", "baseline: the unmodified script; plan: with the levers that were kept"),
        ("step", "step of the run, from 1, warm-up included"),
        *STEP_COLUMNS,
        ("loss_finite", "false where the loss was NaN or infinite"),
    )
    rows = tuple(
        (of.study.identifier, name, *cells)
        for name, run in (("baseline", of.baseline), ("plan", of.planned))
        if run is not None
        for cells in _step_cells(run)
    )
    return Table("steps", "One row a step of one launch of each: the verification's last.", columns, rows)


def _step_cells(run: Run) -> Iterator[tuple[Cell, ...]]:
    steps = run.steps
    columns = step_columns(steps)
    not_finite = frozenset(steps.not_finite)
    for row in range(len(steps.wall_seconds)):
        cells = (column[row] if row < len(column) else None for column in columns.values())
        yield (row + 1, *cells, row not in not_finite)


def _losses(of: Gathered) -> Table:
    losses = of.study.losses
    columns = (
        ("study", "identifier of the study"),
        ("step", "step, from 1"),
        ("baseline", "loss of the unmodified script"),
        ("plan", "loss with the plan"),
        ("baseline_average", "exponential moving average of the baseline's"),
        ("plan_average", "exponential moving average of the plan's"),
        ("allowed", "how far the plan's average may be from the baseline's; empty where there was no limit"),
    )
    about = "One row a step of the runs that sameness was judged by, with the same seed and batches."
    if losses is None:
        return Table("losses", about, columns, ())
    kept = [losses.steps, losses.baseline, losses.plan, losses.baseline_average, losses.plan_average, losses.allowed]
    rows = tuple(
        (of.study.identifier, *(column[row] if row < len(column) else None for column in kept))
        for row in range(len(losses.steps))
    )
    return Table("losses", about, columns, rows)


def _findings(of: Gathered) -> Table:
    columns = (
        ("study", "identifier of the study"),
        ("rule", "the rule that found it"),
        ("kind", "cost, wrong-numbers, risk or hint"),
        ("share", "what it costs, as a share of the step, or of what `share_of` says"),
        ("share_low", "lower end"),
        ("share_high", "upper end"),
        ("title", "what was found"),
        ("file", "where"),
        ("line", "on which line"),
        ("remedy", "what to do"),
        ("levers", "the levers that answer it, a JSON array"),
        ("evidence", "the figures it rests on, a JSON array"),
        ("disturbed", "whether others kept the machine busy while its times were measured"),
        ("share_of", "`of the step`, or `of the run` for what lies outside of steps"),
    )
    rows = tuple(
        (
            of.study.identifier,
            it.rule,
            it.kind,
            it.share.value,
            it.share.low,
            it.share.high,
            it.title,
            it.site.file if it.site is not None else None,
            it.site.line if it.site is not None else None,
            it.remedy,
            json.dumps(it.levers),
            json.dumps(it.evidence),
            it.disturbed,
            it.share.unit,
        )
        for it in of.study.findings
    )
    return Table("findings", "One row a cause of lost time, wrong numbers or risk.", columns, rows)


def _blocks(of: Gathered) -> Table:
    names = tuple(it.name for it in msgspec.structs.fields(Block))
    columns = (
        ("study", "identifier of the study"),
        ("set", "set of fresh launches, from 1, in the order in which they were taken"),
        ("arm", "arm of the set, from 0; two arms of the same plan are the baseline and its repeat"),
        ("plan_key", "key of the arm's plan"),
        ("plan", "its levers, a JSON object"),
        ("block", "block of the launch, from 1"),
        ("warm_up", "whether it was warm-up, which is compared with nothing"),
        *((name, _BLOCK_MEANINGS[name]) for name in names),
    )
    rows = tuple(
        (of.study.identifier, number, arm, *cells)
        for number, turns in enumerate(of.sets, start=1)
        for arm, run in enumerate(turns.runs)
        for cells in _block_cells(run, names)
    )
    return Table("blocks", "One row a timed block of every launch of every set.", columns, rows)


def _block_cells(run: Run, names: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    key, levers = plans_of.key(run.plan), _plan_json(run.plan.settings)
    for number, block in enumerate(run.blocks, start=1):
        cells: list[Any] = [getattr(block, name) for name in names]
        yield (key, levers, number, number <= run.warm_up_blocks, *cells)


def _plan_json(settings: Iterable[Setting]) -> str:
    return json.dumps({it.lever: dict(it.values) for it in settings})


_BLOCK_MEANINGS = {
    "first_step": "the step at which the block begins, counted from 0",
    "steps": "steps of the block",
    "samples": "samples of the block",
    "wall_seconds": "wall seconds, those outside of steps excluded",
    "outside_seconds": "seconds outside of steps",
    "own_cpu_seconds": "processor seconds of the process and its workers",
    "other_load": "cores that others kept busy",
    "waited_seconds": "seconds that its threads were ready to run and waited for a core",
    "involuntary_switches": "involuntary context switches",
    "page_faults": "times that the system had to provide a page of memory",
    "device_clock_mhz": "mean clock of the device",
    "throttled": "why the device slowed itself down",
    "device_energy_joules": "energy of the whole devices",
    "device_power_sampled": "whether that was taken from samples of power",
    "allocator_retries": "how often the device's allocator found no memory and gave back what it kept",
    "processor_energy_joules": "energy of all processors of the machine",
}
