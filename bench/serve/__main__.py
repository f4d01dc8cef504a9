"""Latency against load of a served model: unmodified, and as the files of `hotlap export artefact`.

`hotlap infer` searches with the engines that are installed, and its plan is exported. Then ``examples/serving`` serves
the unmodified model and the exported one in turns, in fresh servers, and an open-loop generator on the same machine
sends requests at Poisson times. Both meet the same rates, which are shares of what the unmodified model answers if a
single client asks again and again. What is finished is stored in the folder ``--pieces``: the same command goes on
after it.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType

import msgspec

from bench.pieces import piece
from bench.report import command_line, table, write
from bench.serve.load import Answer, drive, percentile, poisson_times
from bench.serve.server import serving
from hotlap.api import local_executor
from hotlap.experiment.options import Options
from hotlap.gain import comparison_of_plan
from hotlap.measure.latency import percentile as with_interval
from hotlap.plan import describe
from hotlap.procedures.artefact import write_artefact
from hotlap.procedures.infer import infer
from hotlap.records import Estimate, Isolation, Workload

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
MODELS = ("minilm", "cnn")
ENGINES = ("onnx-runtime", "openvino")
ARMS = ("unmodified", "exported")
ORDER = (*ARMS, *ARMS[::-1])
SHARES = (0.25, 0.5, 0.8, 1.2, 2.0)
"""The rates, as shares of what one client gets from the unmodified model."""
SECONDS = 5.0
WARM_UP = 24
CONFIDENCE = 0.95


class Chosen(msgspec.Struct, kw_only=True):
    """The exported form, and its speed in the study."""

    form: str
    speedup: Estimate | None
    alone_seconds: float
    """The median latency of the unmodified model's server with a single client."""


class Point(msgspec.Struct, kw_only=True):
    """The requests of one turn at one rate; ``late_seconds`` is the largest delay of the generator itself."""

    rate: float
    latencies_seconds: tuple[float, ...]
    failures: int
    late_seconds: float


class Turn(msgspec.Struct, kw_only=True):
    """A fresh server, and the rates it met."""

    arm: str
    points: tuple[Point, ...]


def main(words: list[str]) -> None:
    """Search, export, serve and drive; write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pieces", type=Path, default=Path("build/serve"), help="folder of what is finished")
    parser.add_argument("--model", choices=MODELS, default=MODELS[0], help=f"what is served (default: {MODELS[0]})")
    parser.add_argument("--budget", type=float, default=150, help="seconds for the search (default: 150)")
    parser.add_argument("--batch", type=int, default=8, help="requests in one call at most (default: 8)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each model (default: 1)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each rate (default: {SECONDS:g})")
    choices = parser.parse_args(words)
    folder = (choices.pieces / choices.model).absolute()
    served = Served(folder, choices.model, ("--batch", str(choices.batch), "--threads", str(choices.threads)))
    chosen = piece(folder, "chosen", Chosen, partial(served.chosen, choices.budget))
    rates = [share / chosen.alone_seconds for share in SHARES]
    turns = [
        piece(folder, f"turn-{number}", Turn, partial(served.turn, arm, rates, number, choices.seconds))
        for number, arm in enumerate(ORDER)
    ]
    write(
        choices.out,
        title="Latency against load of a served model",
        command=command_line("bench.serve"),
        text=text_of(choices.model, chosen, turns, choices.batch, choices.threads),
        data=msgspec.to_builtins({"chosen": chosen, "turns": turns}),
    )


class Served:
    """One model in a folder with its modules, its exported form, and one like it for the unmodified model."""

    def __init__(self, folder: Path, model: str, options: Sequence[str]) -> None:
        self._folder = folder
        self._model = model
        self._options = options
        self._exported = folder / "exported"
        self._unmodified = folder / "unmodified"

    def chosen(self, budget: float) -> Chosen:
        """Search, export, and time a single client of the unmodified model."""
        workloads = self._modules()
        workload = Workload(
            kind="inference",
            target=f"workloads:{self._model}",
            arguments=("--inputs", f"workloads:{self._model}_inputs"),
            directory=os.fspath(self._folder),
            python=sys.executable,
        )
        options = Options(only=ENGINES, budget_seconds=budget)
        executor = local_executor(self._folder / "runs", Isolation())
        study = infer(workload, options, executor)
        if not study.plan.settings:
            raise SystemExit(f"The search kept nothing. {study.status_text}")
        shutil.rmtree(self._exported, ignore_errors=True)
        write_artefact(study, workload, options, executor, self._exported, timed=False)
        workloads.write_unmodified(self._model, self._exported, self._unmodified, self._folder)
        with serving(self._unmodified, self._folder / "server.log", *self._options) as port:
            requests = workloads.requests(self._model)
            one_by_one = [drive(port, [it], [0.0])[0] for it in requests[:WARM_UP] + requests]
        comparison = comparison_of_plan(study)
        return Chosen(
            form=", ".join(map(describe, study.plan.settings)),
            speedup=comparison.speed.speedup if comparison is not None else None,
            alone_seconds=median(_answered(one_by_one[WARM_UP:])),
        )

    def turn(self, arm: str, rates: Sequence[float], number: int, seconds: float) -> Turn:
        """A fresh server that meets every rate, the smallest first."""
        workloads = self._modules()
        requests = workloads.requests(self._model)
        folder = self._exported if arm == "exported" else self._unmodified
        with serving(folder, self._folder / "server.log", *self._options) as port:
            drive(port, requests, poisson_times(rates[0], WARM_UP / rates[0], 0))
            points = []
            for place, rate in enumerate(rates):
                answers = drive(port, requests, poisson_times(rate, seconds, 100 * (number // 2) + place))
                points.append(_point(rate, answers))
                sys.stderr.write(f"{arm}, {rate:.0f} per second: {_cell([points[-1]], 0.5)}\n")
        return Turn(arm=arm, points=tuple(points))

    def _modules(self) -> ModuleType:
        """The user's modules in the folder, with trained weights."""
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / "inference" / "real_models.py", self._folder)
        shutil.copy(HERE / "workloads.py", self._folder)
        if os.fspath(self._folder) not in sys.path:
            sys.path.insert(0, os.fspath(self._folder))
        if self._model == "cnn" and not (self._folder / "trained" / "cnn.pt").exists():
            importlib.import_module("real_models").train("cnn")
        return importlib.import_module("workloads")


def _answered(answers: Sequence[Answer]) -> list[float]:
    failed = [it.failure for it in answers if it.failure]
    if failed:
        raise SystemExit(f"{len(failed)} requests of a single client failed: {failed[0]}")
    return [it.latency_seconds for it in answers]


def _point(rate: float, answers: Sequence[Answer]) -> Point:
    return Point(
        rate=rate,
        latencies_seconds=tuple(it.latency_seconds for it in answers if not it.failure),
        failures=sum(bool(it.failure) for it in answers),
        late_seconds=max((it.late_seconds for it in answers if not math.isnan(it.late_seconds)), default=0.0),
    )


def text_of(model: str, chosen: Chosen, turns: Sequence[Turn], batch: int, threads: int) -> str:
    """What was served, and the table."""
    speed = chosen.speedup
    known = f", {speed.value:.2f}x ({speed.low:.2f} to {speed.high:.2f}) by its study" if speed is not None else ""
    rows = []
    for place, point in enumerate(turns[0].points):
        cells = [f"{point.rate:.1f}"]
        for arm in ARMS:
            points = [it.points[place] for it in turns if it.arm == arm]
            cells += [_cell(points, 0.5), _cell(points, 0.99), _turns(points), str(sum(it.failures for it in points))]
        rows.append(cells)
    late = max(point.late_seconds for it in turns for point in it.points)
    heads = ["requests per second"]
    for arm in ARMS:
        heads += [f"{arm}: median", "p99", "p90 of each turn", "failed"]
    return "\n".join(
        (
            f"Model: {model}. Exported: {chosen.form}{known}.",
            "",
            table(heads, rows),
            "",
            "Milliseconds from the scheduled time of a request to the end of its answer, with 95 % intervals by order "
            "statistics over the requests of all turns; requests in a queue are not independent, so that these are too "
            "narrow where the load is high. No p99 is given with too few requests for an interval. The rates are "
            f"{', '.join(f'{100 * it:.0f}' for it in SHARES)} % of what a single client gets from the unmodified model "
            f"({1 / chosen.alone_seconds:.1f} per second); above what a server can answer, latencies grow with the "
            "length of the turn and say no more than that.",
            "",
            f"Each arm ran in {len(turns) // 2} fresh servers, in turns, with batches of up to {batch} requests and "
            f"{threads} thread for the model. Server, model and generator share the cores of one machine; requests "
            f"were sent up to {1000 * late:.1f} ms late, which counts as latency.",
        )
    )


def _cell(points: Sequence[Point], share: float) -> str:
    latencies = sorted(it for point in points for it in point.latencies_seconds)
    found = with_interval(latencies, share, CONFIDENCE) if latencies else None
    if found is None:
        return ""
    return f"{1000 * found.value:.1f} ({1000 * found.low:.1f} to {1000 * found.high:.1f})"


def _turns(points: Sequence[Point]) -> str:
    return ", ".join(f"{1000 * percentile(it.latencies_seconds, 0.9):.1f}" for it in points if it.latencies_seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
