"""The fake script in several ranks: what it exchanges, the trace of its backward pass, and measured collectives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
from fake_script import FakeExecutor, FakeScript, Interrupt

from hotlap.evidence import RunEvidence, Window
from hotlap.records import (
    Assignment,
    CollectiveName,
    CollectiveRate,
    CollectiveRates,
    CollectivesRequest,
    DataParallelFacts,
    ModelFacts,
    OptimizerFacts,
    RepeatedModules,
    ScriptFacts,
    ShardedFacts,
)

NAMES: tuple[CollectiveName, ...] = ("all-reduce", "all-gather", "reduce-scatter")
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
ACCUMULATE = "torch::autograd::AccumulateGrad"
LAYERS = 10


@dataclass
class Ranks:
    """``processes`` of a model of so many bytes; ``bytes_per_second`` is that of collectives (0: not measurable)."""

    processes: int = 2
    model_bytes: int = 40_000_000
    bytes_per_second: float = 1e9
    latency_seconds: float = 1e-4
    hidden_share: float = 0.5
    shards: ShardedFacts | None = None


class RanksExecutor(FakeExecutor):
    """Answers as the fake script does, in several ranks."""

    def __init__(self, script: FakeScript, ranks: Ranks, *, seed: int = 0, interrupt: Interrupt | None = None) -> None:
        super().__init__(script, seed=seed, interrupt=interrupt)
        self.ranks = ranks

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        self._note(msgspec.json.encode(request))
        self._pass_time(8.0)
        if not self.ranks.bytes_per_second:
            return super().collectives(request)
        rates = tuple(
            CollectiveRate(
                name=it,
                backend="gloo",
                processes=request.processes,
                latency_seconds=self.ranks.latency_seconds,
                bytes_per_second=self.ranks.bytes_per_second,
            )
            for it in NAMES
        )
        return CollectiveRates(rates=rates, hidden_share=self.ranks.hidden_share)

    def _facts(self, arm: Assignment) -> ScriptFacts:
        ranks, size = self.ranks, self.ranks.model_bytes
        wrapper = DataParallelFacts(backend="gloo", processes=ranks.processes, gradient_bytes=size)
        weights = size // 4
        blocks = (RepeatedModules(kind="Block", count=LAYERS),)
        facts = super()._facts(arm)
        return msgspec.structs.replace(
            facts,
            processes=max(ranks.processes, facts.processes),
            data_parallel=() if ranks.shards is not None or ranks.processes < 2 else (wrapper,),
            sharded=() if ranks.shards is None else (ranks.shards,),
            models=(ModelFacts(kind="Net", parameters=weights, parameter_bytes=size, repeated=blocks),),
            optimizers=(OptimizerFacts(kind="AdamW", parameters=weights, learning_rate=1e-3, state_bytes=2 * size),),
        )


def evidence_in(folder: Path, *, model_bytes: int = 40_000_000) -> str:
    """What a rank would have written: its evidence, and a trace of two steps whose layers finish in turn."""
    share = model_bytes // 4 // LAYERS
    events = []
    for step in range(2):
        begin = 20_000.0 * step
        events.append(_event("user_annotation", f"ProfilerStep#{step + 3}", begin, 19_900))
        events.append(_event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin + 6_000, 20))
        for layer in range(LAYERS):
            at = begin + 6_000 + 700 * (layer + 1)
            inputs = {"Input Dims": [[share]], "Input type": ["float"]}
            events += [_event("cpu_op", NODE, at, 10), _event("cpu_op", ACCUMULATE, at + 1, 9, **inputs)]
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    window = Window(first_step=40, steps=2, wall_seconds=0.04, trace_path=str(trace))
    path = folder / "evidence.json"
    path.write_bytes(msgspec.json.encode(RunEvidence(observed_steps=40, window=window)))
    return str(path)


def _event(category: str, name: str, start: float, length: float, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length, "args": args}
