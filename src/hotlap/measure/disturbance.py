"""Whether other load on the machine disturbed a measurement, and the remarks that a comparison gets."""

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
"""Other processes disturb a measurement only above this many cores and this share of the usable cores."""

_CROWDED = 0.8
"""Above this share of busy cores, the script and other processes compete for cores."""

_NOTABLE_WAIT = 0.1


def notable_load(cores: int) -> float:
    """How many of these cores other processes must keep busy to disturb a script that uses the rest."""
    return max(_LEAST_LOAD, _LEAST_SHARE * cores)


def disturbance(
    measured: Measurement, runs: Iterable[Run], cores: int, *, each_has_a_core: bool = False
) -> Disturbance | None:
    """The disturbance of a measurement over all timed blocks of its runs, except warm-up; None if there was none, or it
    is unknown.

    Other processes disturb it if they use a notable share of the cores *and* compete with it: almost no core was idle,
    or threads of the script waited for one. Either alone is no disturbance: a script with more threads than cores waits
    too, and a large machine may have cores to spare. With ``each_has_a_core`` the script has a core for each thread, so
    waiting alone is a disturbance.
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
    """One warning for all disturbed measurements: which, by how much, and what to do."""
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
    """The disturbance while the machine's own rates were measured, which uses all cores."""
    others = machine.ceilings.other_load
    if others < notable_load(machine.cores):
        return None
    return Disturbance(measured="matmul", other_load=others, cores=machine.cores)


def _waited_share(blocks: list[Block], own_seconds: float) -> float | None:
    """The share of their runnable time that threads waited for a core."""
    known = [it.waited_seconds for it in blocks if it.waited_seconds is not None]
    ready_seconds = own_seconds + fsum(known)
    if len(known) < len(blocks) or ready_seconds <= 0:
        return None
    return fsum(known) / ready_seconds


def disturbances(runs: Iterable[Run]) -> tuple[str, ...]:
    """Remarks on load by other processes, throttling and the device's clock during the timed blocks (without warm-up),
    and on how long processes of one job were frozen; none on a quiet machine."""
    every = tuple(runs)
    blocks = [block for run in every for block in run.blocks[run.warm_up_blocks :]]
    if not blocks:
        return ()
    return tuple(text for text in (_load(blocks), _throttling(blocks), _clock(blocks), _pause(every)) if text)


def _pause(runs: Sequence[Run]) -> str:
    """The longest freeze; processes that wait for each other have time-outs of their own."""
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
    return f"The device throttled in {reasons.total()} of {len(blocks)} blocks ({named})."


def _clock(blocks: list[Block]) -> str:
    clocks = [block.device_clock_mhz for block in blocks if block.device_clock_mhz]
    if not clocks or max(clocks) - min(clocks) < NOTABLE_CLOCK_SPREAD * max(clocks):
        return ""
    return f"The device's clock varied between {min(clocks):.0f} and {max(clocks):.0f} MHz."
