"""``python -m bench.findings.truth --out docs/benchmarks/findings-truth``: what removing a planted cause saves.

Each script runs with and without its cause, in turns (:mod:`bench.findings.turns`), without hotlap on
either side: what a script's description calls true is shown here. A cause of lost time is true where its cure saves at
least two percent, with a 95 % interval above nothing; a hazard, where the script has the symptom and the cured one does
not.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.findings.load import busy_cores
from bench.findings.planted import Cure, Planted, all_planted
from bench.findings.turns import Ended, Side, ended, last_words, seconds_per_step, started
from bench.findings.variants import both_copies
from bench.report import command_line, measured_again, table, write, written

_RECORDER: Final = Path(__file__).with_name("recorder.py")
_LONGEST_SECONDS: Final = 180.0
_SMALLEST_SAVING: Final = 0.02
_GROWING_BYTES, _RESIDUE = 4096, 0.1
"""A smaller leak per step cannot be distinguished from an allocator's own growth."""

_PAIRS: Final = 3
_STUDENT_95: Final = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Two-sided quantiles of Student's distribution by the number of pairs."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What one cure does. ``saved`` is the share of the time that it saves, with its 95 % interval; ``before`` and
    ``after`` are the medians of what was measured (seconds, bytes per step, shares)."""

    name: str
    rules: tuple[str, ...]
    measure: str
    before: float
    after: float
    saved: float | None = None
    low: float | None = None
    high: float | None = None
    trouble: str = ""

    @property
    def is_true(self) -> bool:
        """Whether the cause is there, and the cure removes it."""
        if self.trouble:
            return False
        if self.measure in ("step", "run"):
            return self.saved is not None and self.saved >= _SMALLEST_SAVING and (self.low or 0.0) > 0
        if self.measure == "growth":
            return self.before > _GROWING_BYTES and self.after < _RESIDUE * self.before
        return _SYMPTOMS[self.measure](self.before) and not _SYMPTOMS[self.measure](self.after)


_SYMPTOMS: Final = {
    "finite": lambda share: share < 1.0,
    "spikes": lambda ratio: ratio > 5.0,
    "skipped": lambda share: share > 0.1,
    "idle": lambda parameters: parameters > 0,
    "breaks": lambda breaks: breaks > 0,
    "recompiles": lambda recompilations: recompilations > 0,
}


def measure(planted: Planted, cure: Cure, pairs: int = _PAIRS) -> Truth:
    """Run both sides, in turns of a fraction of a second where steps are timed; what has no interval, once."""
    rows: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="hotlap-truth-") as folder:
        scripts = both_copies(planted, cure, Path(folder))
        try:
            for number in range(pairs if cure.measure in ("step", "run") else 1):
                rows.append(_pair(planted, cure, scripts, number))
        except Ended as early:
            return Truth(planted.name, cure.rules, cure.measure, 0.0, 0.0, trouble=early.error)
    return _truth(planted, cure, rows)


def _pair(planted: Planted, cure: Cure, scripts: tuple[Path, Path], number: int) -> tuple[float, float]:
    """The figures of both sides; those of steps are for the same number of samples. Raises :class:`Ended`."""
    if cure.measure != "step":
        return _whole_runs(planted, cure, scripts, number)
    found = None if cure.sleeps else _steps_in_turns(planted, cure, scripts)
    before, after = found or _whole_runs(planted, cure, scripts, number)
    return before, after / cure.samples


def _steps_in_turns(planted: Planted, cure: Cure, scripts: tuple[Path, Path]) -> tuple[float, float] | None:
    """Seconds per step; None where one ends too soon for turns. Raises :class:`Ended`."""
    with tempfile.TemporaryDirectory(prefix="hotlap-truth-run-") as folder:
        sides = []
        for name, script in zip(("as-it-is", "cured"), scripts, strict=True):
            directory = Path(folder, name)
            directory.mkdir()
            stamps = directory / "stamps"
            sides.append(Side(_command(planted, stamps, "0", "turns", script), stamps))
        try:
            before, after = seconds_per_step(sides, cure.seconds, _LONGEST_SECONDS)
        except Ended as early:
            if early.error:
                raise
            return None
    return before, after


def _whole_runs(planted: Planted, cure: Cure, scripts: tuple[Path, Path], number: int) -> tuple[float, float]:
    """One after the other; which is first alternates. Raises :class:`Ended`."""
    found: dict[int, float | str] = {}
    for side in (0, 1) if number % 2 == 0 else (1, 0):
        found[side] = _measured(planted, cure, scripts[side])
    before, after = found[0], found[1]
    if isinstance(before, str) or isinstance(after, str):
        sides_said = (("without the cure", before), ("with it", after))
        raise Ended("; ".join(f"{side}: {it}" for side, it in sides_said if isinstance(it, str)))
    return before, after


def _truth(planted: Planted, cure: Cure, rows: Sequence[tuple[float, float]]) -> Truth:
    before, after = (statistics.median(side) for side in zip(*rows, strict=True))
    if cure.measure not in ("step", "run"):
        return Truth(planted.name, cure.rules, cure.measure, before, after)
    logs = [math.log(cured / original) for original, cured in rows]
    half = _STUDENT_95[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.mean(logs)
    saved, low, high = (1 - math.exp(it) for it in (middle, middle + half, middle - half))
    return Truth(planted.name, cure.rules, cure.measure, before, after, saved, low, high)


def _measured(planted: Planted, cure: Cure, script: Path) -> float | str:
    """One run's figure, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="hotlap-truth-run-") as folder:
        out = Path(folder, "figures.json")
        seconds = 0.0 if cure.measure == "run" else cure.seconds
        problem = _run(_command(planted, out, str(seconds), cure.measure, script), Path(folder))
        if not out.exists():
            return problem or "it wrote no figures"
        figure = json.loads(out.read_text(encoding="utf-8"))[cure.measure]
    return "too few steps" if figure is None else float(figure)


def _command(planted: Planted, out: Path, seconds: str, measure: str, script: Path) -> list[str]:
    """The script under the recorder, in two ranks where it wants them."""
    recorded = [str(_RECORDER), str(out), seconds, measure, str(script), *planted.arguments]
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [sys.executable, *(ranks if planted.need == "two-processes" else []), *recorded]


def _run(command: Sequence[str], directory: Path) -> str:
    """Run to the end, and end its remaining processes. Return the last line of its output if it failed."""
    child = started(command, directory)
    try:
        child.wait(_LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it ran for more than {_LONGEST_SECONDS:.0f} s"
    finally:
        ended(child)
    return last_words(child, directory)


def markdown(truths: Sequence[Truth], again: Sequence[str], *, busy: int = 0) -> str:
    """The table of all cures; ``busy`` is how many cores did other work meanwhile."""
    shown = sum(it.is_true for it in truths)
    work = f" while other work keeps {busy} core{'s' * (busy != 1)} busy" if busy else ""
    lines = [
        f"What removing the cause saves{work}: {shown} of {len(truths)} are shown.",
        "",
        table(["script", "rules", "measured", "saved (95 % interval)", "shown"], [_row(it) for it in truths]),
        *measured_again(again),
    ]
    return "\n".join(lines)


def _row(it: Truth) -> list[str]:
    if it.saved is None or it.low is None or it.high is None:
        saved = it.trouble or f"{it.before:.4g} before, {it.after:.4g} after"
    else:
        saved = f"{100 * it.saved:.1f} % ({100 * it.low:.1f} to {100 * it.high:.1f} %)"
    return [it.name, ", ".join(it.rules), it.measure, saved, "yes" if it.is_true else "NO"]


def main(arguments: list[str] | None = None) -> int:
    """Measure cure after cure; the report is written after each, so that a cut loses nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench.findings.truth", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these scripts; others stay in OUT")
    parser.add_argument("--pairs", type=int, default=_PAIRS, choices=sorted(_STUDENT_95), help="launches per cure")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="CORES", help="keep this many cores busy, for what is true only then"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no script is left running
    data: Any = written(options.out) if options.only else None
    truths = msgspec.convert(data, list[Truth]) if data is not None else []
    due = _due(busy=options.busy > 0)
    cures = {(planted.name, cure.rules) for planted, cure in due}
    truths = [it for it in truths if it.name not in options.only and (it.name, it.rules) in cures]
    with busy_cores(options.busy):
        for planted, cure in due:
            if options.only and planted.name not in options.only:
                continue
            truths.append(measure(planted, cure, options.pairs))
            print(" | ".join(_row(truths[-1])), file=sys.stderr, flush=True)
            write(
                options.out,
                title="What removing a planted cause saves" + (" on a busy machine" if options.busy else ""),
                command=command_line("bench.findings.truth"),
                text=markdown(truths, tuple(options.only), busy=options.busy),
                data=[asdict(it) for it in truths],
            )
    return 0 if truths and all(it.is_true for it in truths) else 1


def _due(*, busy: bool) -> list[tuple[Planted, Cure]]:
    """What can be measured without an accelerator, on busy cores or on a quiet machine."""
    return [
        (planted, cure)
        for planted in all_planted()
        if planted.need != "device"
        for cure in planted.cures
        if cure.busy == busy
    ]


if __name__ == "__main__":
    raise SystemExit(main())
