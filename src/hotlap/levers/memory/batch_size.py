"""Train with the batch size that gives the most samples per second.

## What it does
Changes the batch size of the training `DataLoader` to the knee that a search found: the smallest size with nearly the
best throughput, among those that fit into memory (`hotlap batch` shows the whole curve). With `--batch-flag` the
script's own option is changed instead. Everything else stays, the learning rate too. A loader of the same batch size
that only evaluates is changed as well.

## When it helps
If a step's fixed costs (launches, the optimizer, communication) are shared by few samples, and memory is free.

## What it costs
Another batch size changes what is learned: fewer updates for the same samples, with less noise in each, and a schedule
that counts steps ends at another sample. Beyond the gradient noise scale, which is measured, more samples per update
hardly improve it. The report says which learning rate published rules advise; hotlap does not change it. `accumulation`
is the way to compute the same batch in parts instead.

## Before
    loader = DataLoader(dataset, batch_size=32, shuffle=True)

## After
    loader = DataLoader(dataset, batch_size=128, shuffle=True)

## What is proved
`behaviour`: it is only tried with `--allow batch-size`. The held-out loss after equally many samples, over paired
seeds, must change by less than another seed changes it; where the script was not seen to evaluate, the training loss
is compared instead, and the verdict says so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.command_options import flag_value, with_flag
from hotlap.levers.support.situations import make_setting
from hotlap.records import LoaderArguments, NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Train with the batch size that gives the most samples per second"
proof: Proof = "behaviour"
addresses = ("room-for-batch",)
parameters = {
    "own": Parameter(int, minimum=1),
    "size": Parameter(int, minimum=1),
    "flag": Parameter(str, required=False),
}

NAME = "batch-size"
_OF_TORCH = 1
"""The batch size of a DataLoader that was given none."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require a size that a search proposed."""
    proposed = situation.proposed_batch
    if proposed is None:
        return Skipped(reason=f"It changes what is learned, so it is only tried with --allow {NAME}.")
    if proposed.obstacle:
        return Skipped(reason=proposed.obstacle)
    if proposed.size <= proposed.own:
        return Skipped(
            reason=f"No larger batch size was measured to be faster than the script's own, {proposed.own}.",
            already=True,
        )
    return None


def bound(situation: Situation) -> float | None:
    """What more samples per step can give is not bounded by the phases of a step."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The knee."""
    proposed = situation.proposed_batch
    if proposed is None or proposed.obstacle or proposed.size <= proposed.own:
        return ()
    if proposed.flag:
        return (make_setting(NAME, own=proposed.own, size=proposed.size, flag=proposed.flag),)
    return (make_setting(NAME, own=proposed.own, size=proposed.size),)


def samples_factor(setting: Setting) -> float:
    """How many times as many samples a step has."""
    values = dict(setting.values)
    return float(values["size"]) / float(values["own"])


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The argument of the training loaders; an option of the script is given on the command line."""
    values = dict(setting.values)
    if values.get("flag"):
        return (NoSourceForm(reason=f"Give the script its own option: {values['flag']} {values['size']}."),)
    return (LoaderArguments(values=(("batch_size", int(values["size"])),)),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Change the loaders where they are made, or the command line before the script reads it."""
    values = dict(setting.values)
    own, size, flag = int(values["own"]), int(values["size"]), str(values.get("flag", ""))
    if flag:
        if flag_value(sys.argv, flag) == str(own):
            sys.argv[:] = with_flag(sys.argv, flag, size)
        return

    def resize(arguments: dict[str, Any]) -> None:
        if arguments.get("batch_sampler") is None and arguments.get("batch_size", _OF_TORCH) == own:
            arguments["batch_size"] = size

    hooks.before_loader.append(resize)
