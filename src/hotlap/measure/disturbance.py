"""What else the machine did while blocks were timed: whether a measurement was disturbed, and the remarks that go with
a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from statistics import fmean

from hotlap.records import Block, Disturbance, Machine, Measurement, Run

NOTABLE_LOAD = 0.05
"""In cores."""

NOTABLE_CLOCK_SPREAD = 0.05

_NOTABLE_PAUSE_SECONDS = 1.0

_LEAST_LOAD, _LEAST_SHARE = 0.25, 0.1
"""What others must use for a measurement to be disturbed: so many cores, and such a share of the cores at hand."""

_CROWDED = 0.8
"""From this share of the cores on, those of the script and those of others together, they get in each other's way."""

_NOTABLE_WAIT = 0.1


def notable_load(cores: int) -> float:
    """How many of these cores others must keep busy to disturb what uses the rest of them."""
    return max(_LEAST_LOAD, _LEAST_SHARE * cores)


def disturbance(
    measured: Measurement, runs: Iterable[Run], cores: int, *, each_has_a_core: bool = False
) -> Disturbance | None:
    """What others did to a measurement, over all timed blocks of its runs (warm-up excepted); None where it was left
    alone, and where nothing is known.

    Others disturb it when they use a notable part of the cores *and* get in the way: hardly a core stayed idle, or
    threads of the script waited for one. A script that itself starts more threads than there are cores waits too, and
    many cores may be busy on a machine that has more than enough of them; neither alone is a disturbance. Where the
    script was given a core for each of its threads, ``each_has_a_core``, it is disturbed if they waited even so.
    """
    blocks = [block for run in runs for block in run.blocks[run.warm_up_blocks :]]
    seconds = fsum(it.wall_seconds for it in blocks)
    if seconds <= 0:
        return None
    own_seconds = fsum(it.own_cpu_seconds for it in blocks)
    other_load = fsum(it.other_load * it.wall_seconds for it in blocks) / seconds
    waited_share = _waited_share(blocks, own_seconds)
    may_crowd = waited_share is None or not each_has_a_core
    crowded = may_crowd and own_seconds / seconds + other_load >= _CROWDED * cores
    waited = waited_share is not None and waited_share >= _NOTABLE_WAIT
    if other_load < notable_load(cores) or not (crowded or waited):
        return None
    return Disturbance(measured=measured, other_load=other_load, cores=cores, waited_share=waited_share)


_NAMES: Mapping[Measurement, str] = {
    "account": "the time of a step",
    "loader-alone": "the loader alone",
    "model-alone": "the model alone",
    "matmul": "the rate of matrix products",
    "profile": "the profiled steps",
    "batch-sizes": "other batch sizes",
    "speed": "the speed",
}


def disturbance_text(found: Sequence[Disturbance]) -> str:
    """One warning for all that was disturbed: what, by how much, and what to do."""
    worst = max(found, key=lambda it: it.other_load)
    names = [_NAMES[it.measured] for it in found]
    named = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    waits = [it.waited_share for it in found if it.waited_share is not None]
    waited = f" Ready threads waited {100 * max(waits):.0f} % of their time for a core." if waits else ""
    up_to = "up to " if len(found) > 1 else ""
    return (
        f"The machine was busy while hotlap measured {named}: others used {up_to}{worst.other_load:.1f} of "
        f"{worst.cores} core{'s' if worst.cores != 1 else ''}.{waited} Other processes may have affected these "
        "figures; stop other programs and measure again."
    )


def disturbance_of_rates(machine: Machine) -> Disturbance | None:
    """What others did while the machine's own rates were measured, for which all cores are used."""
    others = machine.ceilings.other_load
    if others < notable_load(machine.cores):
        return None
    return Disturbance(measured="matmul", other_load=others, cores=machine.cores)


def _waited_share(blocks: list[Block], own_seconds: float) -> float | None:
    """Of the time in which threads were ready to run, the share in which they waited for a core."""
    known = [it.waited_seconds for it in blocks if it.waited_seconds is not None]
    ready_seconds = own_seconds + fsum(known)
    if len(known) < len(blocks) or ready_seconds <= 0:
        return None
    return fsum(known) / ready_seconds


def disturbances(runs: Iterable[Run]) -> tuple[str, ...]:
    """Sentences on the load by others, throttling and the device's clock during all timed blocks (warm-up excepted),
    and on how long processes that train together stood still; none when the machine was quiet."""
    every = tuple(runs)
    blocks = [block for run in every for block in run.blocks[run.warm_up_blocks :]]
    if not blocks:
        return ()
    return tuple(text for text in (_load(blocks), _throttling(blocks), _clock(blocks), _pause(every)) if text)


def _pause(runs: Sequence[Run]) -> str:
    """Processes that wait for each other have clocks of their own for how long that may take."""
    longest = max((it.longest_pause_seconds for it in runs if it.facts.processes > 1), default=0.0)
    if longest < _NOTABLE_PAUSE_SECONDS:
        return ""
    return f"Its processes were frozen for up to {longest:.0f} s at a time while other arms had their turns."


def _load(blocks: list[Block]) -> str:
    mean = fmean(block.other_load for block in blocks)
    highest = max(block.other_load for block in blocks)
    if mean < NOTABLE_LOAD:
        return ""
    return f"Other processes kept {mean:.1f} cores busy on average while it was timed, {highest:.1f} at most."


def _throttling(blocks: list[Block]) -> str:
    reasons = Counter(block.throttled for block in blocks if block.throttled)
    if not reasons:
        return ""
    named = ", ".join(reason for reason, _ in reasons.most_common(3))
    return f"The device slowed itself down in {reasons.total()} of {len(blocks)} blocks ({named})."


def _clock(blocks: list[Block]) -> str:
    clocks = [block.device_clock_mhz for block in blocks if block.device_clock_mhz]
    if not clocks or max(clocks) - min(clocks) < NOTABLE_CLOCK_SPREAD * max(clocks):
        return ""
    return f"The device's clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz."
