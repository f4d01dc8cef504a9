"""``python -m bench.single_steps --out docs/benchmarks/single-steps``: single steps of healthy levers and of faults.

Real launches of the examples. One keeps what twelve of its steps start from, and others start the same steps there:
with levers that only round, and with faults planted around what their optimizer does (``faulty.py``). Each is judged as
a proof does (G5), by the limits of a lever that keeps the precision and by those of one that changes it, whether or not
the losses of the script's whole run could be compared. Some ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from bench.report import command_line, table, write
from bench.single_steps.faulty import FAULTS, NONE
from hotlap.measure.parity.losses import percent
from hotlap.measure.parity.single_steps import differences, single_steps
from hotlap.plan import setting
from hotlap.records import (
    AlignRandomness,
    Assignment,
    Instrument,
    KeepSteps,
    LaunchRequest,
    NudgeWeights,
    Plan,
    RestoreSteps,
    Run,
    Setting,
    Stopped,
    WithoutDropout,
    Workload,
)
from hotlap.trial.local import LocalExecutor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FAULTY = Path(__file__).with_name("faulty.py")
STEPS = 80
KEPT = tuple(row * (STEPS - 1) // 13 for row in range(1, 13))
MOST_BYTES = 2_000_000_000

HALF = setting("mixed-precision", dtype="bfloat16")
FUSED = setting("fused-optimizer", implementation="fused")
ONE_THREAD = setting("cpu-threads", threads=1)
CHANNELS_LAST = setting("channels-last")

SCRIPTS: Mapping[str, tuple[tuple[str, ...], tuple[Setting, ...]]] = MappingProxyType(
    {
        "ResNet-18": (("resnet.py", "--epochs", "1000"), (CHANNELS_LAST, ONE_THREAD, FUSED, HALF)),
        "ResNet-50": (("resnet.py", "--epochs", "1000", "--depth", "50"), (CHANNELS_LAST, ONE_THREAD, FUSED, HALF)),
        "LSTM": (("lstm.py", "--steps", "100000"), (ONE_THREAD, FUSED, HALF)),
        "GPT": (("gpt.py", "--steps", "100000"), (ONE_THREAD, FUSED, HALF)),
        "BERT": (("bert.py", "--steps", "100000"), (ONE_THREAD, FUSED, HALF)),
    }
)
"""The script with its arguments, and the levers that only round."""


class Judged(msgspec.Struct, kw_only=True, frozen=True):
    """Single steps of a script with a lever or a fault: the mean difference of their losses, how far apart what they
    change is in the median and at most, by how much longer or shorter it is on average, and how far apart it is of the
    ``tensor`` that differs most in its median step, all as shares, and whether
    they are verified: by the limits of a lever that keeps the precision, and by those of one that changes it."""

    script: str
    what: str
    is_fault: bool
    loss: float
    median: float
    largest: float
    length: float
    tensor: float
    passed: bool
    passed_as_other_precision: bool


class Launches:
    """Launches of one script."""

    def __init__(self, script: str, folder: Path) -> None:
        self._words, self._levers = SCRIPTS[script]
        self._script = script
        self._executor = LocalExecutor(folder / "runs")
        self._kept = self._launch(NONE, KeepSteps(steps=KEPT, most_bytes=MOST_BYTES))
        self._own = self._launch(NONE, NudgeWeights(), RestoreSteps())

    def judged(self) -> Iterator[Judged]:
        """Each lever, and then each fault."""
        for it in self._levers:
            run = self._launch(NONE, RestoreSteps(), plan=Plan(settings=(it,)))
            yield self._judge(it.lever, run, is_fault=False)
        for fault in FAULTS:
            yield self._judge(fault, self._launch(fault, RestoreSteps()), is_fault=True)

    def _judge(self, what: str, run: Run, *, is_fault: bool) -> Judged:
        same, other = (single_steps(self._kept, self._own, run, changes_precision=it) for it in (False, True))
        found = differences(self._kept, run)
        return Judged(
            script=self._script,
            what=what,
            is_fault=is_fault,
            loss=found.loss_error,
            median=found.median_error,
            largest=found.largest_error,
            length=found.length_error,
            tensor=found.tensor_error,
            passed=same.passed is True,
            passed_as_other_precision=other.passed is True,
        )

    def _launch(self, fault: str, *instruments: Instrument, plan: Plan | None = None) -> Run:
        name, *arguments = self._words
        workload = Workload(
            kind="script",
            target=str(FAULTY),
            arguments=(fault, str(EXAMPLES / name), *arguments),
            directory=str(EXAMPLES),
            python=sys.executable,
        )
        assignment = Assignment(
            workload=workload, plan=plan or Plan(), instruments=(WithoutDropout(), AlignRandomness(), *instruments)
        )
        run = self._executor.launch(LaunchRequest(assignment=assignment, steps=STEPS))
        if not isinstance(run.ending, Stopped) or run.notes:
            raise SystemExit(f"{self._script}, {fault}: {run.ending} {run.notes}")
        return run


def _is_verified(healthy: Judged) -> bool:
    return healthy.passed_as_other_precision if healthy.what == HALF.lever else healthy.passed


def markdown(found: Sequence[Judged]) -> str:
    """The table."""
    numbers = ("losses", "changes, median", "largest", "length", "one tensor")
    header = ("script", "lever or fault", *numbers, "verified", "as precision")
    rows = [
        [
            it.script,
            f"fault: {it.what}" if it.is_fault else it.what,
            percent(it.loss),
            percent(it.median),
            percent(it.largest),
            percent(it.length),
            percent(it.tensor),
            "yes" if it.passed else "no",
            "yes" if it.passed_as_other_precision else "no",
        ]
        for it in found
    ]
    healthy, faults = [it for it in found if not it.is_fault], [it for it in found if it.is_fault]
    lines = [
        f"Twelve steps of {STEPS}, which start from the weights, buffers and optimizer state that the same steps of",
        "the unmodified script started from. *Losses*: their mean difference. *Changes*: how far apart what a step",
        "changes of the weights is, each weight counted by its gradient, as a share of its length; *length*: by how",
        "much longer or shorter it is on average; *one tensor*: how far apart what a step changes of the tensor is",
        "that differs most, in its median step. *Verified*: by the limits of a lever that keeps the precision; *as",
        "precision*: by those of one that changes it. Each healthy lever should be verified by its own limits, and no",
        "fault.",
        "",
        f"Of {len(healthy)} healthy levers {sum(map(_is_verified, healthy))} are verified by their own limits; of",
        f"{len(faults)} faults {sum(it.passed for it in faults)} by those of a lever that keeps the precision, and",
        f"{sum(it.passed_as_other_precision for it in faults)} by those of one that changes it.",
        "",
        table(header, rows),
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Launch, and write the page after each script."""
    parser = argparse.ArgumentParser(prog="python -m bench.single_steps", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--scripts", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS))
    options = parser.parse_args(arguments)
    found: list[Judged] = []
    for script in options.scripts:
        with tempfile.TemporaryDirectory(prefix="hotlap-single-") as folder:
            for it in Launches(script, Path(folder)).judged():
                found.append(it)
                print(it, file=sys.stderr, flush=True)
        write(
            options.out,
            title="Single steps of healthy levers and of faults",
            command=command_line("bench.single_steps"),
            text=markdown(found),
            data={"steps": msgspec.to_builtins(tuple(found))},
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
