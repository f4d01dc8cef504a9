"""Python's garbage is collected between steps instead of within them.

## What it does
After the third update it collects once, calls `gc.freeze()`, so that what exists by then is never traversed again, and
`gc.disable()`. From then on it collects after every `every_steps`-th step, but leaves collections out as long as the
last one took more than 1 % of the time since then: where a script keeps ever more objects, each takes longer. A script
that disables the collector itself, or enables it again, is left alone.

## When it helps
If the process holds very many Python objects: samples as lists and dictionaries, large configurations, many libraries.
On several devices also because all processes then pause in the same step, instead of waiting for each other's pauses.

## What it costs
Objects in reference cycles, and the memory that they hold, live until the next collection. The trials measure memory.

## Before
    for step, batch in enumerate(loader):
        train_step(model, batch)

## After
    gc.collect()
    gc.freeze()
    gc.disable()
    for step, batch in enumerate(loader):
        train_step(model, batch)
        if step % 50 == 0:
            gc.collect()

## What is proved
`exact`: no number is computed differently. It is measured over launches only: what one configuration leaves to collect
would be charged to the next.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Collect garbage between steps"
proof: Proof = "exact"
addresses = ("garbage-pauses",)
parameters = {"every_steps": Parameter(int, minimum=1, maximum=100_000)}

_FIRST_UPDATES = 3
"""Optimizers create their state, and compilers their code, in the first ones."""

_EVERY_STEPS = 50
_MOST_SHARE = 0.01


def obstacle(situation: Situation) -> Skipped | None:
    """Nothing forbids it: whether the script disables the collector is seen when it trains."""
    return None


def bound(situation: Situation) -> float | None:
    """The collector's share of the time. What several processes wait for each other's pauses is unknown."""
    share = situation.facts.garbage_share
    return 1 / (1 - share) if share is not None and share < 1 and situation.facts.processes == 1 else None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """One: what collections may cost is limited in any case."""
    return (make_setting("garbage-collection", every_steps=_EVERY_STEPS),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: it needs a place before the loop and one in it."""
    every = dict(setting.values)["every_steps"]
    return (
        NoSourceForm(
            reason="Call gc.collect(), gc.freeze() and gc.disable() before the training loop, and gc.collect() in it, "
            f"about every {every} steps."
        ),
    )


def install(hooks: Hooks, setting: Setting) -> None:
    """Begin after the first updates."""
    hooks.after_update.append(_BetweenSteps(hooks, int(dict(setting.values)["every_steps"])).updated)


class _BetweenSteps:
    """The collector of the process, while it is disabled here.

    An update is the end of a step; where there are several optimizers, the first one's.
    """

    def __init__(self, hooks: Hooks, every: int) -> None:
        self._hooks = hooks
        self._every = every
        self._first: int | None = None
        self._updates = 0
        self._due_at = 0.0
        self._is_on = False

    def _begin(self) -> None:
        if not gc.isenabled():
            self._hooks.note("The script disables Python's garbage collector itself, so it was left alone.")
            return
        gc.collect()
        gc.freeze()
        gc.disable()
        self._is_on = True

    def updated(self, optimizer: Any) -> None:
        self._first = id(optimizer) if self._first is None else self._first
        if id(optimizer) != self._first:
            return
        self._updates += 1
        if self._updates == _FIRST_UPDATES:
            self._begin()
        elif self._is_on and gc.isenabled():
            self._is_on = False  # the script enabled it again: all objects are its collector's once more
            gc.unfreeze()
        elif self._is_on and self._updates % self._every == 0 and time.perf_counter() >= self._due_at:
            began = time.perf_counter()
            gc.collect()
            ended = time.perf_counter()
            self._due_at = ended + (ended - began) / _MOST_SHARE
