"""``python -m bench.gpu --out docs/benchmarks/gpu``: the claims about accelerators, in ten minutes.

The parts share ``--seconds`` by their weights, and unused time goes to the later ones. ``--search SECONDS``
runs ``hotlap tune`` on each script with that budget instead of trying hotlap's first guesses, and takes as much longer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.gpu import measuring, naive, report
from bench.gpu.naive import Naive, NotMeasured
from bench.gpu.report import Findings
from bench.report import command_line, write
from hotlap.errors import HotlapError
from hotlap.records import Machine
from hotlap.trial.local import LocalExecutor

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
SCRIPTS = (
    Naive(
        "bert-base",
        EXAMPLES / "bert.py",
        ("--layers", "12", "--hidden", "768", "--sequence-length", "128", "--batch-size", "32", "--epochs", "1000"),
    ),
    Naive(
        "resnet-50",
        EXAMPLES / "resnet.py",
        (
            *("--depth", "50", "--width", "64", "--image-size", "224", "--batch-size", "32", "--epochs", "1000"),
            *("--per-class", "400", "--file-size", "256"),
        ),
    ),
    Naive(
        "lstm",
        EXAMPLES / "lstm.py",
        ("--embedding", "650", "--hidden", "650", "--epochs", "1000"),
    ),
    Naive("control-flow", HERE / "control_flow.py", (), only=("compile",)),
)
SMALL = Naive("small", EXAMPLES / "lstm.py", ("--epochs", "1000"))
# Seconds of each part relative to the others'.
WEIGHTS = {"machine": 3, "hooks": 12, "false-alarms": 9, "bert-base": 32, "resnet-50": 20, "lstm": 13}
WEIGHTS["control-flow"] = 11

LEAST_SECONDS = 20.0


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--seconds", type=float, default=500.0, help="for all parts together, about")
    parser.add_argument("--parts", nargs="+", choices=list(WEIGHTS), default=list(WEIGHTS))
    parser.add_argument("--search", type=float, metavar="SECONDS", help="search, with this budget for each script")
    options = parser.parse_args(arguments)
    if options.seconds <= 0 or (options.search is not None and options.search <= 0):
        parser.error("--seconds and --search must be above zero")
    return options


class Benchmark:
    """Run part after part and write the results after each, so that an interruption loses nothing."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._findings = Findings()

    def run(self) -> Findings:
        began = time.monotonic()
        # The ceilings always come first: everything else rests on them.
        waiting = [name for name in WEIGHTS if name == "machine" or name in self._options.parts]
        while waiting:
            left = self._options.seconds - (time.monotonic() - began)
            name = waiting[0]
            self._part(name, max(0.0, left) * WEIGHTS[name] / sum(WEIGHTS[it] for it in waiting))
            waiting.pop(0)
        return self._findings

    def _part(self, name: str, seconds: float) -> None:
        say: naive.Say = partial(_say, name)
        began = time.monotonic()
        try:
            if seconds < LEAST_SECONDS and name != "machine" and self._options.search is None:
                raise NotMeasured(f"Of {self._options.seconds:.0f} s for all parts too little was left.")
            say(f"begins, for about {self._options.search or seconds:.0f} s")
            self._steps()[name](seconds, say)
        except (HotlapError, NotMeasured, ValueError, OSError) as error:
            self._findings.failures[name] = f"{type(error).__name__}: {error}"
            say(self._findings.failures[name])
        self._findings.seconds[name] = time.monotonic() - began
        self._write()

    def _steps(self) -> dict[str, Callable[[float, naive.Say], None]]:
        return {
            "machine": self._machine,
            "hooks": self._hooks,
            "false-alarms": self._false_alarms,
            **{it.name: partial(self._naive, it) for it in SCRIPTS},
        }

    def _machine(self, seconds: float, say: naive.Say) -> None:
        self._findings.machine = LocalExecutor(self._directory / "machine").machine()

    def _hooks(self, seconds: float, say: naive.Say) -> None:
        self._findings.hooks = measuring.hook_cost("cuda", seconds, say)

    def _false_alarms(self, seconds: float, say: naive.Say) -> None:
        executor = LocalExecutor(self._directory / "false-alarms")
        self._findings.false_alarms = measuring.false_alarms(SMALL, executor, seconds, say)

    def _naive(self, script: Naive, seconds: float, say: naive.Say) -> None:
        machine = self._findings.machine or Machine()
        if self._options.search is None:
            executor = LocalExecutor(self._directory / script.name)
            result = naive.short(script, machine, executor, seconds, say)
        else:
            result = naive.long(script, machine, self._directory, self._options.search, say)
        self._findings.naive[script.name] = script, result

    def _write(self) -> None:
        write(
            self._options.out,
            title="hotlap on an accelerator",
            command=command_line("bench.gpu"),
            text=report.markdown(self._findings),
            data=report.data(self._findings),
        )


def main(arguments: list[str] | None = None) -> int:
    """0 also where there is no accelerator; 1 when a part has no result."""
    options = parse(arguments)
    import torch

    if not torch.cuda.is_available():
        print("There is no accelerator here that torch can use: nothing was measured and nothing written.")
        return 0
    with tempfile.TemporaryDirectory(prefix="hotlap-gpu-") as folder:
        found = Benchmark(options, Path(folder)).run()
    print(report.markdown(found))
    return 1 if found.failures else 0


def _say(part: str, text: str) -> None:
    print(f"{part}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
