"""Compare predicted steps of 2 and 4 gloo processes with real ones, and the predicted choice with the measured best.

For each model and size `hotlap scale` measures one process and predicts; then real processes train under DDP, ZeRO-1
and FSDP2. All processes compute with one thread. A finished model and size is stored in the folder ``--pieces``: the
same command goes on after it. When all are finished, their errors are written to the file that predictions quote.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean, median

import msgspec

from bench.pieces import piece
from bench.report import command_line, machine_line, table, write
from hotlap.api import local_executor
from hotlap.experiment.options import Options, ScaleChoices
from hotlap.procedures.scale import scale
from hotlap.records import Cluster, Isolation, MeasuredStep, ScalePoint, Strategy, ValidatedError, Workload
from hotlap.scaling.predict import changes_of, predict

ROOT = Path(__file__).parents[2]
TRAIN = Path(__file__).with_name("train.py")
VALIDATED = ROOT / "src" / "hotlap" / "scaling" / "validated.json"
MODELS = ("gpt", "resnet")
SIZES = ("small", "medium", "large")
STRATEGIES: tuple[Strategy, ...] = ("ddp", "zero-1", "fsdp2")
PROCESSES = (2, 4)
LAUNCHES = 3
ATTEMPTS = 3
TRAINING_SECONDS = 4.0
FEWEST_STEPS, MOST_STEPS = 12, 300
LONGEST_LAUNCH_SECONDS = 300.0
PROMISED_REGRET = 0.03
MEBIBYTE = 2**20


class Step(msgspec.Struct, kw_only=True):
    """A strategy in so many processes: the predicted step, and the median of the launches."""

    strategy: Strategy
    processes: int
    predicted_seconds: float
    measured_seconds: float
    predicted_bytes: int
    added_bytes: float

    @property
    def error(self) -> float:
        """The prediction's error as a share of what was measured."""
        return self.predicted_seconds / self.measured_seconds - 1


class Row(msgspec.Struct, kw_only=True):
    """One model and size. What predictions start from is stored in its piece, so that a changed simulator is compared
    with the same measurements; pieces of earlier versions lack it."""

    name: str
    parameters_bytes: int
    one_process_seconds: float
    steps: tuple[Step, ...]
    measured: MeasuredStep | None = None
    cluster: Cluster | None = None

    def choice(self, processes: int) -> tuple[Step, Step, float]:
        """The step of the strategy that hotlap names, that of the best one, and the regret.

        hotlap's own rule chooses: a strategy that is predicted to be faster by less than 1 % is no reason to change.
        """
        here = {it.strategy: it for it in self.steps if it.processes == processes}
        points = [
            ScalePoint(
                ranks=processes,
                strategy=it.strategy,
                step_seconds=it.predicted_seconds,
                efficiency=self.one_process_seconds / it.predicted_seconds,
                samples_per_second=processes / it.predicted_seconds,
            )
            for it in here.values()
        ]
        chosen = here[changes_of(points)[-1].strategy]
        best = min(here.values(), key=lambda it: it.measured_seconds)
        return chosen, best, chosen.measured_seconds / best.measured_seconds - 1


def main(words: list[str]) -> None:
    """Measure all models and sizes, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pieces", type=Path, required=True, help="the folder of finished models and sizes")
    parser.add_argument("--only", default="", help="only this model and size, such as gpt-small; writes no result")
    choices = parser.parse_args(words)
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    for name in [choices.only] if choices.only else [f"{model}-{size}" for model in MODELS for size in SIZES]:
        rows.append(kept(choices.pieces, name))
        sys.stderr.write(f"{text_of(rows[-1:])}\n")
    if choices.only:
        return
    write(
        choices.out,
        title="Steps of several processes: predicted against measured",
        command=command_line("bench.scale"),
        text=text_of(rows),
        data=msgspec.to_builtins([msgspec.structs.replace(it, measured=None, cluster=None) for it in rows]),
    )
    VALIDATED.write_bytes(msgspec.json.format(msgspec.json.encode(errors_of(rows)), indent=2) + b"\n")


def kept(folder: Path, name: str) -> Row:
    """The stored row of that name, predicted by the present simulator; measured, and stored, if there is none yet."""
    return predicted_again(piece(folder, name, Row, partial(measured, name)))


def predicted_again(row: Row) -> Row:
    """The row with the predictions that the simulator makes now of what was measured then."""
    if row.measured is None or row.cluster is None:
        return row
    points = {(it.strategy, it.ranks): it for it in predict(row.measured, row.cluster).points}
    steps = tuple(
        msgspec.structs.replace(
            it,
            predicted_seconds=points[it.strategy, it.processes].step_seconds,
            predicted_bytes=points[it.strategy, it.processes].peak_bytes,
        )
        for it in row.steps
    )
    return msgspec.structs.replace(row, steps=steps)


def measured(name: str) -> Row:
    """Predict from one process, then let the launches of all strategies take turns."""
    model, _, size = name.partition("-")
    arguments = ("--model", model, "--size", size)
    workload = Workload(
        kind="script", target=os.fspath(TRAIN), arguments=arguments, directory=os.fspath(ROOT), python=sys.executable
    )
    with tempfile.TemporaryDirectory() as folder:
        options = Options(scale=ScaleChoices(devices_per_node=max(PROCESSES)))
        study = scale(workload, options, local_executor(Path(folder), Isolation()))
    assert study.scale is not None
    predicted = {(it.strategy, it.ranks): it for it in study.scale.points}
    alone = study.scale.step.seconds
    cases = [(strategy, processes) for processes in PROCESSES for strategy in STRATEGIES]
    found: dict[tuple[Strategy, int], list[dict[str, float]]] = {it: [] for it in cases}
    for turn in range(LAUNCHES):
        for strategy, processes in cases if turn % 2 == 0 else cases[::-1]:
            found[strategy, processes].append(launched(strategy, processes, arguments, steps_of(alone, processes)))
    return Row(
        name=name,
        parameters_bytes=study.scale.step.parameter_bytes,
        one_process_seconds=alone,
        measured=study.scale.step,
        cluster=study.scale.cluster,
        steps=tuple(
            Step(
                strategy=strategy,
                processes=processes,
                predicted_seconds=predicted[strategy, processes].step_seconds,
                measured_seconds=median(it["step_seconds"] for it in found[strategy, processes]),
                predicted_bytes=predicted[strategy, processes].peak_bytes,
                added_bytes=median(it["added_bytes"] for it in found[strategy, processes]),
            )
            for strategy, processes in cases
        ),
    )


def steps_of(alone_seconds: float, processes: int) -> int:
    """As many steps as take some seconds where processes share the cores."""
    seconds = alone_seconds * max(1.0, processes / (os.cpu_count() or 1))
    return max(FEWEST_STEPS, min(MOST_STEPS, int(TRAINING_SECONDS / seconds)))


def launched(strategy: Strategy, processes: int, arguments: Sequence[str], steps: int) -> dict[str, float]:
    """What real processes print."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"),
        *(os.fspath(TRAIN), *arguments, "--strategy", strategy, "--steps", str(steps)),
    ]
    for _ in range(ATTEMPTS):  # gloo sometimes aborts a rank while its group ends
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_LAUNCH_SECONDS)
        if not done.returncode:
            break
    else:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    printed: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return printed


def errors_of(rows: Sequence[Row]) -> list[ValidatedError]:
    """The errors of each strategy, for the file that predictions quote."""
    found = []
    for strategy in STRATEGIES:
        errors = [abs(step.error) for row in rows for step in row.steps if step.strategy == strategy]
        found.append(
            ValidatedError(
                strategy=strategy,
                cases=len(errors),
                mean_error=fmean(errors),
                largest_error=max(errors),
                most_ranks=max(PROCESSES),
                machine=machine_line(),
                date=datetime.now(UTC).date().isoformat(),
                ratio_errors=ratio_errors_of(rows, strategy),
            )
        )
    return found


def ratio_errors_of(rows: Sequence[Row], strategy: Strategy) -> tuple[tuple[int, float], ...]:
    """By number of processes, the largest error of the ratio between a strategy's step and DDP's; none for DDP."""
    found = []
    for processes in PROCESSES if strategy != "ddp" else ():
        errors = []
        for row in rows:
            here = {it.strategy: it for it in row.steps if it.processes == processes}
            its, usual = here[strategy], here["ddp"]
            predicted = its.predicted_seconds / usual.predicted_seconds
            errors.append(abs(predicted / (its.measured_seconds / usual.measured_seconds) - 1))
        found.append((processes, max(errors)))
    return tuple(found)


def text_of(rows: Sequence[Row]) -> str:
    """The errors by strategy, every step, and the choices on two processes."""
    errors = [
        (
            it.strategy, str(it.cases), f"{100 * it.mean_error:.1f} %", f"{100 * it.largest_error:.1f} %",
            *(f"{100 * dict(it.ratio_errors)[count]:.1f} %" if it.ratio_errors else "" for count in PROCESSES),
        )
        for it in errors_of(rows)
    ]  # fmt: skip
    steps = [
        (
            row.name, it.strategy, str(it.processes), f"{1000 * it.predicted_seconds:.1f} ms",
            f"{1000 * it.measured_seconds:.1f} ms", f"{100 * it.error:+.1f} %",
        )
        for row in rows
        for it in row.steps
    ]  # fmt: skip
    choices = []
    for row in rows:
        chosen, best, regret = row.choice(2)
        memory = ", ".join(f"{it.strategy} {it.added_bytes / MEBIBYTE:.0f}" for it in row.steps if it.processes == 2)
        choices.append((row.name, chosen.strategy, best.strategy, f"{100 * regret:.1f} %", memory))
    worst = max(row.choice(2)[2] for row in rows)
    kept_word = "kept" if worst <= PROMISED_REGRET else "not kept"
    return "\n".join(
        (
            "All processes run on this machine, with one thread each and gloo; those of 4 share its cores, which\n"
            "the simulator takes into account.",
            "",
            table(
                (
                    "strategy",
                    "steps compared",
                    "mean error",
                    "largest error",
                    *(f"largest of the ratio, {it} processes" for it in PROCESSES),
                ),
                errors,
            ),
            "",
            "The last two columns are the largest errors of the ratio between a strategy's step and that of DDP in as\n"
            "many processes, by which `hotlap tune` decides whether a strategy may be faster.",
            "",
            table(("model", "strategy", "processes", "predicted", "measured", "error"), steps),
            "",
            "The choice on 2 processes, by the rule of `hotlap scale`: a strategy that is predicted to be faster by\n"
            "less than 1 % is no reason to change. The chosen one is at most "
            f"{100 * worst:.1f} % slower than the best; the\npromise of {100 * PROMISED_REGRET:.0f} % is {kept_word}. "
            "MiB are what building and training the model added to a process.",
            "",
            table(("model", "predicted best", "measured best", "slower by", "MiB per process"), choices),
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
