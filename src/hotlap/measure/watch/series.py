"""The rows of all training processes of a run, reduced to series of bounded length."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from hotlap.records import STEP_PHASES, PhaseAccount, WatchedSeries, WatchRow

WARM_UP_SECONDS = 10.0
"""Rows that end earlier are no part of the account, and no reference for alarms."""
MOST_POINTS = 1024
MOST_RECENT = 64


@dataclass(frozen=True, slots=True)
class Point:
    """What one row showed, or several rows that were merged; levels are the last that were known."""

    at: float
    elapsed: float
    steps: int
    timed_steps: int
    wall: float
    phases: tuple[float, ...]
    samples: int
    loss: float | None = None
    loss_scale: float | None = None
    scaled_steps: int = 0
    skipped_steps: int = 0
    host_bytes: int | None = None
    device_bytes: int | None = None
    clock_mhz: float | None = None

    @property
    def step_seconds(self) -> float | None:
        """The mean seconds of a timed step."""
        return self.wall / self.timed_steps if self.timed_steps else None

    def phase_seconds(self, phase: int) -> float | None:
        """The mean seconds of a phase in a timed step."""
        return self.phases[phase] / self.timed_steps if self.timed_steps else None


class RankSeries:
    """One training process: the points of its whole run, and its last rows unmerged."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.recent: deque[Point] = deque(maxlen=MOST_RECENT)
        self.first: list[Point] = []  # the first after the warm-up: what alarms compare with
        self.all_steps = self.timed_steps = self.skipped_steps = 0
        self._settled: Point | None = None
        self._merged = 1
        self._open: Point | None = None
        self._in_open = 0

    def add(self, point: Point) -> None:
        """Add a row; when there are too many points, every two become one."""
        self.all_steps += point.steps
        self.timed_steps += point.timed_steps
        self.skipped_steps += point.skipped_steps
        self.recent.append(point)
        if point.at >= WARM_UP_SECONDS:
            self._settled = point if self._settled is None else merged(self._settled, point)
            if len(self.first) < MOST_RECENT:
                self.first.append(point)
        self._open = point if self._open is None else merged(self._open, point)
        self._in_open += 1
        if self._in_open >= self._merged:
            self.points.append(self._open)
            self._open, self._in_open = None, 0
        if len(self.points) >= MOST_POINTS:
            self.points = [merged(*self.points[it : it + 2]) for it in range(0, len(self.points), 2)]
            self._merged *= 2

    def all_points(self) -> list[Point]:
        """The points so far, the unfinished one included."""
        return [*self.points, self._open] if self._open is not None else list(self.points)

    def account(self, trainers: int) -> PhaseAccount | None:
        """The mean timed step after the warm-up; of a shorter run, after its first row."""
        if self._settled is not None:
            return _mean_step(self._settled, trainers)
        points = self.all_points()
        return _mean_step(functools.reduce(merged, points[1:] or points), trainers) if points else None


def _mean_step(of: Point, trainers: int) -> PhaseAccount | None:
    if not of.timed_steps:
        return None
    return PhaseAccount(
        wall=of.wall / of.timed_steps,
        phases=tuple(zip(STEP_PHASES, (it / of.timed_steps for it in of.phases), strict=True)),
        samples_per_step=of.samples / of.timed_steps,
        trainers=trainers,
    )


def merged(first: Point, second: Point) -> Point:
    """Two consecutive points as one."""
    return replace(
        second,
        elapsed=first.elapsed + second.elapsed,
        steps=first.steps + second.steps,
        timed_steps=first.timed_steps + second.timed_steps,
        wall=first.wall + second.wall,
        phases=tuple(a + b for a, b in zip(first.phases, second.phases, strict=True)),
        samples=first.samples + second.samples,
        loss=first.loss if second.loss is None else second.loss,
        loss_scale=first.loss_scale if second.loss_scale is None else second.loss_scale,
        scaled_steps=first.scaled_steps + second.scaled_steps,
        skipped_steps=first.skipped_steps + second.skipped_steps,
        host_bytes=_largest(first.host_bytes, second.host_bytes),
        device_bytes=_largest(first.device_bytes, second.device_bytes),
    )


def _largest(*values: int | None) -> int | None:
    return max((it for it in values if it is not None), default=None)


def point_of(row: WatchRow, began: float, *, host_bytes: int | None = None, clock_mhz: float | None = None) -> Point:
    """A row as a point; ``began`` is the moment from which the run is timed, and the rest what others measured."""
    return Point(
        at=row.at - began,
        elapsed=row.elapsed_seconds,
        steps=row.steps,
        timed_steps=row.timed_steps,
        wall=row.wall_seconds,
        phases=row.phases,
        samples=row.samples,
        loss=row.loss,
        loss_scale=row.loss_scale,
        scaled_steps=row.scaled_steps,
        skipped_steps=row.skipped_steps,
        host_bytes=host_bytes,
        device_bytes=row.device_bytes or None,
        clock_mhz=clock_mhz,
    )


def series_of(points: Sequence[Point]) -> WatchedSeries:
    """The points as columns."""
    return WatchedSeries(
        at_seconds=tuple(round(it.at, 3) for it in points),
        elapsed_seconds=tuple(round(it.elapsed, 3) for it in points),
        steps=tuple(it.steps for it in points),
        step_seconds=tuple(it.step_seconds for it in points),
        phases=tuple(
            (phase, tuple(it.phase_seconds(index) for it in points)) for index, phase in enumerate(STEP_PHASES)
        ),
        loss=tuple(it.loss for it in points),
        loss_scale=tuple(it.loss_scale for it in points),
        scaled_steps=tuple(it.scaled_steps for it in points),
        skipped_steps=tuple(it.skipped_steps for it in points),
        host_bytes=tuple(it.host_bytes for it in points),
        device_bytes=tuple(it.device_bytes for it in points),
        clock_mhz=tuple(it.clock_mhz for it in points),
    )


def known(values: Iterable[float | None]) -> list[float]:
    """Those that are known."""
    return [it for it in values if it is not None]


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known; None without any."""
    found = known(values)
    return median(found) if found else None
