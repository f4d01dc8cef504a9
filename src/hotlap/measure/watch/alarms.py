"""What gets worse while a script runs. Every alarm compares the last rows with the first after the warm-up.

A mean of few rows moves with the noise of the machine, so that quartiles are compared: three quarters of the last rows
must be worse than three quarters of the first, by more than a least effect. An alarm that was raised is withdrawn only
when half of that effect is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from statistics import quantiles

from hotlap.measure.watch.series import Point, RankSeries, known, middle
from hotlap.records import STEP_PHASES, Alarm, AlarmKind

ROWS = 20
"""How many rows are compared with as many."""
LEAST_SHARE_OF_STEP = 0.05
SLOWER = 1.10
LEAST_CLOCK = 0.90
LEAST_GROWTH_BYTES = 32 * 2**20
LEAST_GROWTH_SHARE = 0.05
SEGMENTS = 6
LEAST_SEGMENT_POINTS = 10
SUNK = 16.0
LEAST_SKIPPED_SHARE = 0.02
"""A healthy scaler skips about one step in every ``growth_interval``, 2000 by default."""
FEWEST_ROWS_WITH_SKIPS = 3
_DATA_WAIT, _BACKWARD = STEP_PHASES.index("data_wait"), STEP_PHASES.index("backward")
_MIB = 2**20


class Alarms:
    """The alarms of a run, each with the moment at which it was first raised."""

    def __init__(self) -> None:
        self._raised: dict[AlarmKind, Alarm] = {}

    def check(self, ranks: Mapping[int, RankSeries], at_seconds: float) -> None:
        """Look at the ranks of this machine again."""
        if not ranks:
            return
        first = ranks[min(ranks)]
        now: dict[AlarmKind, str] = {}
        for kind, found in (
            ("data-wait-grows", self._grows(first, lambda it: it.phase_seconds(_DATA_WAIT), "data-wait-grows")),
            ("step-slows", self._slows(first)),
            ("memory-creeps", _creeps(first)),
            ("loss-scale-sinks", _sinks(first)),
            ("steps-skipped", self._skips(first)),
            ("rank-slows", self._rank_slows(ranks)),
            ("clock-slows", self._clock_slows(first)),
        ):
            if found:
                now[kind] = found  # type: ignore[index]
        for kind, text in now.items():
            began = self._raised[kind].at_seconds if kind in self._raised else at_seconds
            self._raised[kind] = Alarm(kind=kind, text=text, at_seconds=began)
        for kind in self._raised.keys() - now.keys():
            old = self._raised[kind]
            self._raised[kind] = Alarm(kind=kind, text=old.text, at_seconds=old.at_seconds, lasted=False)

    def all(self) -> tuple[Alarm, ...]:
        """Every alarm that was raised, the first one first."""
        return tuple(sorted(self._raised.values(), key=lambda it: it.at_seconds))

    def lasting(self) -> tuple[Alarm, ...]:
        """Those that hold now."""
        return tuple(it for it in self.all() if it.lasted)

    def _holds(self, kind: AlarmKind) -> bool:
        return kind in self._raised and self._raised[kind].lasted

    def _grows(self, of: RankSeries, value: Callable[[Point], float | None], kind: AlarmKind) -> str:
        before, after = _first_and_last(of)
        then, now = known(map(value, before)), known(map(value, after))
        step = middle(it.step_seconds for it in before)
        if not step or len(then) < ROWS or len(now) < ROWS:
            return ""
        was, is_ = quantiles(then), quantiles(now)
        least = LEAST_SHARE_OF_STEP * step * (0.5 if self._holds(kind) else 1.0)
        if is_[1] - was[1] <= least or is_[0] <= was[2]:
            return ""
        return f"data wait grew from {was[1] * 1e3:.3g} to {is_[1] * 1e3:.3g} ms per step"

    def _slows(self, of: RankSeries) -> str:
        before, after = _first_and_last(of)
        then, now = known(it.step_seconds for it in before), known(it.step_seconds for it in after)
        if len(then) < ROWS or len(now) < ROWS:
            return ""
        was, is_ = quantiles(then), quantiles(now)
        least = 1 + (SLOWER - 1) * (0.5 if self._holds("step-slows") else 1.0)
        if is_[1] <= least * was[1] or is_[0] <= was[2]:
            return ""
        return f"steps slowed from {was[1] * 1e3:.3g} to {is_[1] * 1e3:.3g} ms"

    def _skips(self, of: RankSeries) -> str:
        """Steps that a scaler goes on skipping after the warm-up, in which it finds its scale."""
        if len(of.first) < ROWS:
            return ""
        last = [it for it in _last(of) if it.at >= of.first[0].at]
        skipped, tried = sum(it.skipped_steps for it in last), sum(it.scaled_steps for it in last)
        least = LEAST_SKIPPED_SHARE * (0.5 if self._holds("steps-skipped") else 1.0)
        if not tried or skipped / tried < least or sum(it.skipped_steps > 0 for it in last) < FEWEST_ROWS_WITH_SKIPS:
            return ""
        return f"{100 * skipped / tried:.2g} % of the steps are skipped: their gradients overflow"

    def _clock_slows(self, of: RankSeries) -> str:
        """A clock that slows and takes the steps with it: one that rests while little is to do harms nobody."""
        before, after = _first_and_last(of)
        was, is_ = middle(it.clock_mhz for it in before), middle(it.clock_mhz for it in after)
        step_was, step_is = middle(it.step_seconds for it in before), middle(it.step_seconds for it in after)
        if was is None or is_ is None or not step_was or not step_is or len(after) < ROWS:
            return ""
        if is_ >= LEAST_CLOCK * was or step_is <= (1 + LEAST_SHARE_OF_STEP) * step_was:
            return ""
        return f"the clock slowed from {was:.0f} to {is_:.0f} MHz, and steps with it"

    def _rank_slows(self, ranks: Mapping[int, RankSeries]) -> str:
        """A rank whose time before its backward pass, in which it waits for the others, exceeds theirs."""
        own = {rank: middle(map(_before_backward, _last(it))) for rank, it in ranks.items() if len(it.recent) >= ROWS}
        found = {rank: it for rank, it in own.items() if it is not None}
        step = middle(it.step_seconds for rank in found for it in _last(ranks[rank]))
        if len(found) < 2 or not step:
            return ""
        slowest = max(found, key=lambda rank: found[rank])
        others = middle(it for rank, it in found.items() if rank != slowest)
        least = LEAST_SHARE_OF_STEP * step * (0.5 if self._holds("rank-slows") else 1.0)
        if others is None or found[slowest] - others <= least:
            return ""
        mine = known(map(_before_backward, _last(ranks[slowest])))
        theirs = known(_before_backward(it) for rank in found if rank != slowest for it in _last(ranks[rank]))
        if quantiles(mine)[0] <= quantiles(theirs)[2]:
            return ""
        late = (found[slowest] - others) * 1e3
        return f"rank {slowest} is {late:.3g} ms per step slower than the others before its backward pass"


def _first_and_last(of: RankSeries) -> tuple[list[Point], list[Point]]:
    """The first rows after the warm-up, and the last ones; no row is in both."""
    before = of.first[:ROWS]
    after = [it for it in _last(of) if not before or it.at > before[-1].at]
    return before, after


def _last(of: RankSeries) -> list[Point]:
    return list(of.recent)[-ROWS:]


def _before_backward(point: Point) -> float | None:
    wall, backward = point.step_seconds, point.phase_seconds(_BACKWARD)
    return wall - backward if wall is not None and backward is not None else None


def _creeps(of: RankSeries) -> str:
    """Memory whose smallest amount in each sixth of the run is larger than in the one before: peaks that come and go
    do not count, and neither does what the first sixth allocates."""
    for where, value in (("device", "device_bytes"), ("host", "host_bytes")):
        settled = [it for it in of.all_points() if it.at >= of.first[0].at] if of.first else []
        levels = known(getattr(it, value) for it in settled)
        size = len(levels) // SEGMENTS
        if size < LEAST_SEGMENT_POINTS:
            continue
        floors = [min(levels[it * size : (it + 1) * size]) for it in range(SEGMENTS)]
        growth = floors[-1] - floors[0]
        rises = all(later - earlier > 0.05 * growth for earlier, later in itertools.pairwise(floors))
        if rises and growth > max(LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE * floors[0]):
            hours = (settled[-1].at - settled[0].at) / 3600
            per_hour = growth / _MIB / hours if hours else 0.0
            return (
                f"{where} memory grows: {floors[0] / _MIB:.0f} to {floors[-1] / _MIB:.0f} MiB, "
                f"about {per_hour:.0f} MiB per hour"
            )
    return ""


def _sinks(of: RankSeries) -> str:
    """A loss scale that falls again and again without recovering; the first fall, to where it fits, is normal."""
    if not of.first or len(of.recent) < ROWS:
        return ""
    settled = [it for it in of.recent if it.at > of.first[0].at]
    scales = known(it.loss_scale for it in settled)
    if len(scales) < ROWS:
        return ""
    if scales[-1] < 1.0:
        return f"the loss scale is {scales[-1]:.3g}: gradients overflow at any scale"
    falls = sum(later < earlier for earlier, later in itertools.pairwise(scales))
    rises = sum(later > earlier for earlier, later in itertools.pairwise(scales))
    if scales[0] / scales[-1] >= SUNK and falls >= 3 and not rises:
        return f"the loss scale sank from {scales[0]:.4g} to {scales[-1]:.4g} and did not rise"
    return ""
