"""``python -m bench.findings --out docs/benchmarks/findings``: precision and recall of the findings.

Runs ``hotlap profile`` on the scripts of ``tests/causes``, in each of which one cause is planted or none, and counts:
causes found, ranked first, with the right line, and false findings. A cause that the machine cannot have (a
device's, without one) is left out and named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import msgspec

from bench.findings import report
from bench.findings.load import busy_cores
from bench.findings.planted import Planted, all_planted
from bench.findings.score import Score, failed, judged_again, score
from bench.findings.truth import Truth
from bench.gpu.naive import KnownMachine
from bench.report import command_line, is_simulated, write, written
from hotlap.api import begin, local_executor, profile_search
from hotlap.errors import HotlapError
from hotlap.experiment.options import Options
from hotlap.machine.facts import machine_facts
from hotlap.records import Isolation, Machine, Workload
from hotlap.trial.executor import OneSlot

_COMPILERS = (os.environ.get("CXX") or "g++", "clang++")
"""What torch's own compiler looks for, by its usual names."""


def missing(need: str, machine: Machine) -> str:
    """What the machine lacks for a cause to be there at all; empty where it lacks nothing."""
    if need == "device":
        return "" if machine.accelerators else "an accelerator"
    if need in ("two-cores", "two-processes"):
        return "" if machine.cores >= 2 else "a second core"
    if need == "bfloat16":
        return "" if "bfloat16" in machine.native_dtypes else "bfloat16 in hardware"
    if need == "compiler":
        return "" if any(map(shutil.which, _COMPILERS)) else "a C++ compiler"
    return ""


def workload_of(planted: Planted) -> Workload:
    """The command that runs the script."""
    kind: Literal["script", "module"] = "script"
    target, arguments = str(planted.path), planted.arguments
    if planted.need == "two-processes":
        kind, target = "module", "torch.distributed.run"
        arguments = ("--standalone", "--nproc-per-node=2", str(planted.path), *arguments)
    return Workload(kind=kind, target=target, arguments=arguments, directory=planted.folder, python=sys.executable)


def measure(planted: Planted, directory: Path, *, busy: bool = False, machine: Machine | None = None) -> Score:
    """Profile one script and compare its findings with what was planted. The machine's rates are measured unless they
    are given. Raises :class:`HotlapError`."""

    def executor(folder: Path, isolation: Isolation) -> OneSlot:
        made = local_executor(folder, isolation)
        return made if machine is None else KnownMachine(made, machine)

    study = begin(
        workload_of(planted),
        Options(),
        root=directory,
        on_progress=lambda progress: None,
        executor=executor,
        search=profile_search,
    )
    return score(planted, study.findings, study.warnings, busy=busy)


def main(arguments: list[str] | None = None) -> int:
    """Measure script after script; the report is written after each, so that a cut loses nothing."""
    options = _parser().parse_args(arguments)
    machine = machine_facts()
    here = [it for it in all_planted() if it.need == "device" or not options.device]
    left_out = [(it.name, lack) for it in here if (lack := missing(it.need, machine))]
    able = [it for it in here if not missing(it.need, machine)]
    kept = {it.name: it for it in kept_scores(options.out, keep=bool(options.only) or options.rest)}
    scores = {it.name: judged_again(it, kept[it.name], busy=options.busy > 0) for it in able if it.name in kept}
    due = [it for it in able if _is_due(it, options, kept)]
    with busy_cores(options.busy):
        # Of a device once: it does not share its rates with other programs, as cores are shared.
        rates = _measured_machine() if options.device and due else None
        for planted in due:
            scores[planted.name] = _timed(planted, busy=options.busy > 0, machine=rates)
            _say(f"{planted.name}: {scores[planted.name].in_words()}")
            known = [(it, scores[it.name]) for it in able if it.name in scores]
            _write(options, known, left_out)
    return 0 if scores and all(it.is_right for it in scores.values()) else 1


def _is_due(planted: Planted, options: argparse.Namespace, kept: Mapping[str, Score]) -> bool:
    if options.only:
        return planted.name in options.only
    return not options.rest or planted.name not in kept


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.findings", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="measure these again; the others' results stay in OUT"
    )
    parser.add_argument("--rest", action="store_true", help="go on: measure those that OUT does not have yet")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="CORES", help="keep this many cores busy with other work meanwhile"
    )
    parser.add_argument(
        "--truth", type=Path, help="the result of bench.findings.truth, for comparison with what findings claim"
    )
    parser.add_argument("--device", action="store_true", help="only the scripts for an accelerator")
    return parser


def _measured_machine() -> Machine:
    with tempfile.TemporaryDirectory(prefix="hotlap-findings-") as folder:
        return local_executor(Path(folder)).machine()


def _timed(planted: Planted, *, busy: bool, machine: Machine | None) -> Score:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotlap-findings-") as folder:
        try:
            found = measure(planted, Path(folder), busy=busy, machine=machine)
        except HotlapError as error:
            found = failed(planted, str(error))
    return replace(found, seconds=round(time.monotonic() - began, 1))


def _write(
    options: argparse.Namespace, known: Sequence[tuple[Planted, Score]], left_out: Sequence[tuple[str, str]]
) -> None:
    truths = msgspec.convert(written(options.truth) or [], list[Truth]) if options.truth else []
    text = report.markdown(
        known, left_out, busy=options.busy, truths=truths, again=tuple(options.only), simulated=is_simulated()
    )
    where = " on a simulated device" if is_simulated() else " on a busy machine" if options.busy else ""
    write(
        options.out,
        title=f"How right the findings are{where}",
        command=command_line("bench.findings"),
        text=text,
        data={"scripts": [asdict(it) for _, it in known], "left_out": left_out},
    )


def kept_scores(out: Path, *, keep: bool) -> list[Score]:
    """The results that an earlier run left in OUT.json, for the scripts that are not measured again."""
    data = written(out) if keep else None
    return msgspec.convert(data["scripts"], list[Score]) if data is not None else []


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
