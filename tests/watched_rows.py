"""Rows and series of runs that never ran."""

from __future__ import annotations

from hotlap.measure.watch.alarms import Alarms
from hotlap.measure.watch.series import RankSeries, point_of
from hotlap.records import STEP_PHASES, Alarm, WatchRow


def row(
    number: int,
    *,
    rank: int = 0,
    processes: int = 1,
    steps: int = 100,
    step: float = 0.010,
    data_wait: float = 0.001,
    backward: float = 0.004,
    loss_scale: float | None = None,
    skipped: int = 0,
    device_bytes: int = 0,
) -> WatchRow:
    """A second of steps of that length, of which the forward pass takes the rest."""
    parts = {"data_wait": data_wait, "backward": backward, "forward": step - data_wait - backward}
    return WatchRow(
        number=number,
        process=1000 + rank,
        rank=rank,
        processes=processes,
        at=float(number),
        elapsed_seconds=1.0,
        steps=steps,
        timed_steps=steps,
        wall_seconds=steps * step,
        phases=tuple(parts.get(it, 0.0) * steps for it in STEP_PHASES),
        samples=32 * steps,
        loss=1.0 / number,
        loss_scale=loss_scale,
        scaled_steps=steps if loss_scale is not None else 0,
        skipped_steps=skipped,
        device_bytes=device_bytes,
    )


def series_from(rows: list[WatchRow], **levels: list[float]) -> RankSeries:
    """The series of a rank; ``host_bytes`` and ``clock_mhz`` are one level for each row."""
    made = RankSeries()
    for index, it in enumerate(rows):
        host, clock = levels.get("host_bytes"), levels.get("clock_mhz")
        made.add(
            point_of(
                it, 0.0,
                host_bytes=int(host[index]) if host else None,
                clock_mhz=clock[index] if clock else None,
            )
        )  # fmt: skip
    return made


def alarms_of(*ranks: RankSeries) -> tuple[Alarm, ...]:
    """The alarms that hold at the end."""
    alarms = Alarms()
    alarms.check(dict(enumerate(ranks)), 100.0)
    return alarms.lasting()
