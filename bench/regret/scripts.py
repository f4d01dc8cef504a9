"""Scripts of which the best plan is known: their levers have about the effects that the examples were measured with.

The sizes are those of docs/benchmarks/regret and docs/benchmarks/crossover.md, on two cores with bfloat16, rounded.
They are no claim about the examples: they make a search meet what it meets there, gains of a few per cent next to each
other, levers that gain only together, and one that compiles for long.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bench.aa.searches import Effect, FakeScript
from hotlap.diagnose.shares import at_most, exactly
from hotlap.levers.api import Lever, find
from hotlap.plan import setting
from hotlap.records import Estimate, Plan, Setting

KEPT_MEMORY = setting("keep-freed-memory")
HUGE_PAGES = setting("huge-pages")
HALF = setting("mixed-precision", dtype="bfloat16")
MEDIUM = setting("matmul-precision", precision="medium")
FUSED = setting("fused-optimizer", implementation="fused")
ONE_THREAD = setting("cpu-threads", threads=1)
PINNED = setting("pinned-threads", workers="anywhere")
COMPILE = setting("compile", mode="default")
CHANNELS_LAST = setting("channels-last")
CACHED = setting("cached-samples")
ONE_WORKER, TWO_WORKERS = (
    setting("loader", num_workers=it, persistent_workers=True, prefetch_factor=2) for it in (1, 2)
)


@dataclass
class Script(FakeScript):
    """A fake script with levers whose effects depend on one another: ``together`` are factors on the computation of a
    step with both settings."""

    together: Mapping[tuple[Setting, Setting], float] = field(default_factory=dict)

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        for pair, factor in self.together.items():
            if all(it in plan.settings for it in pair):
                seconds["compute"] *= factor
        return seconds


@dataclass(frozen=True)
class Case:
    """A script, and the costs that its profile shows, each with the levers that answer it."""

    script: Script
    costs: Sequence[tuple[Sequence[str], Estimate]]

    def levers(self) -> Mapping[str, Lever]:
        """The levers of its effects, with these settings; they are tried whatever they say about the fake script."""
        names = dict.fromkeys(it.lever for it in self.script.effects)
        return {
            name: _with_settings(find(name), [it for it in self.script.effects if it.lever == name]) for name in names
        }

    def best(self) -> Plan:
        """The fastest of all plans."""
        names = dict.fromkeys(it.lever for it in self.script.effects)
        choices = [(None, *(it for it in self.script.effects if it.lever == name)) for name in names]
        plans = (Plan(settings=tuple(filter(None, it))) for it in itertools.product(*choices))
        return min(plans, key=self.script.step_seconds)


def _with_settings(lever: Lever, settings: Sequence[Setting]) -> Lever:
    return replace(
        lever,
        obstacle=lambda situation: None,
        bound=lambda situation: None,
        candidates=lambda situation: tuple(settings),
        proof_for=lambda situation, setting: lever.proof,
        changes_randomness=lambda situation, setting: False,
    )


def _on(compute: float = 1.0, *, optimizer: float | None = None, data: float = 1.0, seconds: float = 0.0) -> Effect:
    """Factors on the phases of a step, and seconds by which a launch starts later."""
    return Effect(
        compute=compute, optimizer=compute if optimizer is None else optimizer, data=data, startup_seconds=seconds
    )


_PRECISION = ("matmul-precision", "mixed-precision")
_OPTIMIZER = ("fused-optimizer",)

CASES: Mapping[str, Case] = MappingProxyType(
    {
        "gpt": Case(
            Script(
                data=0.0,
                compute=0.0765,
                optimizer=0.003,
                startup_seconds=3.0,
                effects={
                    HALF: _on(1.005),
                    MEDIUM: _on(1.45),
                    FUSED: _on(0.99, optimizer=0.4),
                    ONE_THREAD: _on(1.55),
                    PINNED: _on(),
                    COMPILE: _on(0.965, optimizer=1.0, seconds=20.0),
                    HUGE_PAGES: _on(0.98),
                    KEPT_MEMORY: _on(0.967),
                },
                together={(HALF, KEPT_MEMORY): 0.98},
            ),
            ((_PRECISION, at_most(0.26)), (_OPTIMIZER, at_most(0.034))),
        ),
        "lstm": Case(
            Script(
                data=0.001,
                compute=0.045,
                optimizer=0.004,
                startup_seconds=4.0,
                has_loader=True,
                effects={
                    HALF: _on(0.96),
                    MEDIUM: _on(0.95),
                    FUSED: _on(0.99, optimizer=0.5),
                    ONE_THREAD: _on(1.5),
                    PINNED: _on(),
                    COMPILE: _on(seconds=10.0),
                    HUGE_PAGES: _on(0.97),
                    KEPT_MEMORY: _on(0.93),
                    CACHED: _on(data=0.5),
                    ONE_WORKER: _on(1.1, data=0.2),
                    TWO_WORKERS: _on(1.12, data=0.2),
                },
                together={(HALF, KEPT_MEMORY): 0.78, (HALF, MEDIUM): 1 / 0.95},
            ),
            ((_PRECISION, at_most(0.3)), (_OPTIMIZER, at_most(0.08)), (("keep-freed-memory",), exactly(0.12))),
        ),
        "bert": Case(
            Script(
                data=0.001,
                compute=0.090,
                optimizer=0.015,
                startup_seconds=6.0,
                has_loader=True,
                effects={
                    HALF: _on(0.68, optimizer=1.0),
                    MEDIUM: _on(0.72, optimizer=1.0),
                    FUSED: _on(0.99, optimizer=0.3),
                    ONE_THREAD: _on(1.6),
                    PINNED: _on(),
                    COMPILE: _on(1.02, optimizer=1.0, seconds=14.0),
                    HUGE_PAGES: _on(0.98),
                    KEPT_MEMORY: _on(),
                    CACHED: _on(data=0.5),
                    ONE_WORKER: _on(1.04, data=0.2),
                    TWO_WORKERS: _on(1.05, data=0.2),
                },
                together={(HALF, MEDIUM): 1 / 0.72},
            ),
            ((_PRECISION, at_most(0.3)), (_OPTIMIZER, at_most(0.13))),
        ),
        "resnet": Case(
            Script(
                data=0.006,
                compute=0.05,
                optimizer=0.004,
                startup_seconds=3.0,
                has_loader=True,
                effects={
                    HALF: _on(0.82, optimizer=1.0),
                    CHANNELS_LAST: _on(0.975, optimizer=1.0),
                    MEDIUM: _on(),
                    FUSED: _on(0.99, optimizer=0.5),
                    ONE_THREAD: _on(1.45),
                    PINNED: _on(),
                    COMPILE: _on(1.03, optimizer=1.0, seconds=20.0),
                    HUGE_PAGES: _on(0.95),
                    KEPT_MEMORY: _on(0.978),
                    ONE_WORKER: _on(1.0, data=0.1),
                    TWO_WORKERS: _on(1.03, data=0.1),
                },
                together={(HALF, CHANNELS_LAST): 0.92},
            ),
            ((_PRECISION, at_most(0.3)), (_OPTIMIZER, at_most(0.06)), (("loader",), exactly(0.1))),
        ),
    }
)
