"""Turn a study into tidy tables: a row for each observation, a column for each variable, units in the names."""

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
    Seen,
    Setting,
    Skipped,
    Steps,
    StudyKind,
)

Cell: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` maps names to descriptions; every row has a cell for each."""

    name: str
    about: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]


def tables(of: Gathered) -> tuple[Table, ...]:
    """All tables of a study, also those without rows."""
    return (_study(of), _levers(of), steps_table(of), _losses(of), _findings(of), _blocks(of))


def setting_json(setting: Setting | None) -> str | None:
    """A lever's values as a JSON object."""
    return json.dumps(dict(setting.values), sort_keys=True) if setting is not None else None


def verdict_name(outcome: Outcome) -> str:
    """``kept``, ``no-gain`` and so on, as in the study's JSON."""
    return str(type(outcome.verdict).__struct_config__.tag)


def comparison_of(outcome: Outcome) -> Comparison | None:
    """The comparison behind an outcome, or None."""
    found = getattr(outcome.verdict, "comparison", None)
    return found if isinstance(found, Comparison) else None


_COMPARISON_COLUMNS = (
    ("speedup", "speedup over the run without it; empty if not measured"),
    ("speedup_low", "lower end of the speedup's interval"),
    ("speedup_high", "upper end of the speedup's interval"),
    ("confidence", "confidence of the interval"),
    ("speed_verdict", "faster, slower, no-effect or inconclusive"),
    ("replicates", "fresh launches of every arm that the interval rests on"),
    ("rounds", "timing rounds per replicate"),
    ("noise_floor", "run-to-run noise: half-width of the interval of the baseline compared with itself, as a share"),
    ("smallest_detectable", "smallest detectable effect, as a share"),
    ("baseline_agrees", "whether the baseline compared with itself showed no difference"),
    ("quality", "exact, within, lost or not-verified; empty where results were not compared"),
    ("compared", "how many steps of training, or inputs of a model, were compared"),
    ("baseline_peak_bytes", "peak memory of the baseline, on the device if there is one"),
    ("candidate_peak_bytes", "peak memory with it"),
    ("baseline_seconds_per_sample", "wall seconds per sample of the baseline, geometric mean over replicates"),
    ("extra_startup_seconds", "additional seconds of start-up and warm-up with it"),
    ("baseline_joules_per_sample", "energy per sample of the baseline"),
    ("candidate_joules_per_sample", "energy per sample with it"),
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
        speed.replicates,
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
        ("hotlap_version", "version of hotlap that made it", study.hotlap_version),
        ("kind", " or ".join(get_args(StudyKind)), study.kind),
        ("status", "how it ended", study.status),
        ("target", "the script or module", study.workload.target),
        ("arguments", "its arguments, a JSON array", json.dumps(study.workload.arguments)),
        ("git_revision", "the commit that was checked out", study.source.git_revision or None),
        ("processor", "the machine's processor", study.machine.processor),
        ("cores", "usable cores", study.machine.cores),
        ("accelerators", "the accelerators, a JSON array", json.dumps([it.name for it in study.machine.accelerators])),
        ("torch_version", "version of torch", versions.get("torch")),
        ("spent_seconds", "duration of the study", study.spent_seconds),
        ("plan", "the levers that were kept, a JSON object", _plan_json(study.plan.settings)),
    )
    cells = (*(it[2] for it in described), *_comparison_cells(study.verification))
    columns = (*((name, meaning) for name, meaning, _ in described), *_COMPARISON_COLUMNS)
    about = "One row: the study, and the verification of the whole plan against the unmodified script."
    return Table("study", about, columns, (cells,))


def _levers(of: Gathered) -> Table:
    columns = (
        ("study", "identifier of the study"),
        ("lever", "the lever"),
        ("setting", "its values, a JSON object"),
        ("verdict", "kept, no-gain, quality-lost, not-verified, failed, seen or skipped"),
        ("reason", "why"),
        ("bound", "upper bound of its speedup, if it was skipped for that or only looked at; a look above it is noise"),
        ("trial_seconds", "duration of its trials"),
        ("compile_seconds", "seconds of torch.compile in a trial"),
        *_COMPARISON_COLUMNS,
    )
    rows = tuple((of.study.identifier, *_lever_cells(it)) for it in of.study.outcomes)
    return Table("levers", "One row for each lever: its outcome, compared with the plan before it.", columns, rows)


def _lever_cells(outcome: Outcome) -> tuple[Cell, ...]:
    verdict = outcome.verdict
    return (
        outcome.lever,
        setting_json(outcome.setting),
        verdict_name(outcome),
        verdict.reason or None,
        verdict.bound if isinstance(verdict, (Seen, Skipped)) else None,
        outcome.trial_seconds,
        outcome.compile.seconds if outcome.compile is not None else None,
        *_comparison_cells(comparison_of(outcome)),
    )


STEP_COLUMNS = (
    ("wall_seconds", f"wall seconds of the step; the {len(STEP_PHASES)} phases add up to it"),
    *((f"{it}_seconds", PHASES[it].contents) for it in STEP_PHASES),
    ("outside_seconds", PHASES["outside"].contents),
    ("samples", "samples of the step"),
    ("loss", "training loss; empty if it could not be read or was not finite"),
)


def step_columns(steps: Steps) -> Mapping[str, Sequence[float | None]]:
    """The columns of :data:`STEP_COLUMNS` by their names."""
    phases = {f"{it}_seconds": steps.seconds_in(it) for it in STEP_PHASES}
    return {name: phases[name] if name in phases else getattr(steps, name) for name, _ in STEP_COLUMNS}


def steps_table(of: Gathered) -> Table:
    """A row for each step, of the unmodified script and of the plan."""
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
    return Table("steps", "One row for each step of the verification's last launches.", columns, rows)


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
        ("allowed", "largest allowed distance between the two averages; empty without a limit"),
    )
    about = "One row for each step of the parity runs, which use the same seed and batches."
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
        ("share", "cost as a share of the step, or of what `share_of` names"),
        ("share_low", "lower end"),
        ("share_high", "upper end"),
        ("title", "what was found"),
        ("file", "where"),
        ("line", "on which line"),
        ("remedy", "what to do"),
        ("levers", "levers that address it, a JSON array"),
        ("evidence", "evidence, a JSON array"),
        ("disturbed", "whether other processes kept the machine busy during the measurement"),
        ("share_of", "`of the step`, or `of the run` for time outside of steps"),
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
    return Table("findings", "One row for each finding: lost time, wrong numbers or risk.", columns, rows)


def _blocks(of: Gathered) -> Table:
    names = tuple(it.name for it in msgspec.structs.fields(Block))
    columns = (
        ("study", "identifier of the study"),
        ("replicate", "fresh launches of all arms, from 1, in the order in which they ran"),
        ("arm", "arm of the replicate, from 0; two arms of the same plan are the baseline and its repeat"),
        ("plan_key", "key of the arm's plan"),
        ("plan", "its levers, a JSON object"),
        ("block", "block of the launch, from 1"),
        ("warm_up", "whether it was warm-up, which is not compared"),
        *((name, _BLOCK_MEANINGS[name]) for name in names),
    )
    rows = tuple(
        (of.study.identifier, number, arm, *cells)
        for number, turns in enumerate(of.replicates, start=1)
        for arm, run in enumerate(turns.runs)
        for cells in _block_cells(run, names)
    )
    return Table("blocks", "One row for each timed block of every launch of every replicate.", columns, rows)


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
    "other_load": "cores that other processes kept busy",
    "waited_seconds": "seconds that its runnable threads waited for a core",
    "involuntary_switches": "involuntary context switches",
    "page_faults": "page faults",
    "device_clock_mhz": "mean clock of the device",
    "throttled": "why the device throttled",
    "device_energy_joules": "energy of the devices as a whole",
    "device_power_sampled": "whether it was integrated from samples of power",
    "allocator_retries": "how often the device's allocator ran out of memory and released its cache",
    "processor_energy_joules": "energy of all processors of the machine",
    "device_peak_bytes": "the most that tensors held on a device within the block",
}
