"""The scalars of a watched run as a TensorBoard event file, written while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from hotlap.errors import StudyError
from hotlap.export.packages import imported
from hotlap.measure.watch.series import Point
from hotlap.records import STEP_PHASES


class LiveScalars:
    """Writes to a folder of the run's own below ``folder``.

    Only packages of TensorBoard are imported, not torch: this process watches. Raises :class:`UsageError` where
    TensorBoard is not installed, :class:`StudyError` where the folder cannot be written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        extra = "tensorboard"
        writers = imported("tensorboard.summary.writer.event_file_writer", extra=extra)
        self._event = imported("tensorboard.compat.proto.event_pb2", extra=extra).Event
        self._summary = imported("tensorboard.compat.proto.summary_pb2", extra=extra).Summary
        self.folder = folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._writer = writers.EventFileWriter(str(self.folder))
        except OSError as error:
            raise StudyError(
                f"Scalars cannot be written to {self.folder}: {error.strerror or error}.",
                remedy="Name another folder by --tensorboard.",
            ) from error

    def add(self, rank: int, step: int, seconds: float, point: Point) -> None:
        """Write what one row showed; ``seconds`` is the time of day."""
        named: dict[str, float | None] = {
            "loss": point.loss,
            "loss_scale": point.loss_scale,
            "skipped_steps": point.skipped_steps if point.scaled_steps else None,
            "step_seconds": point.step_seconds,
            "host_bytes": point.host_bytes,
            "device_bytes": point.device_bytes,
            "clock_mhz": point.clock_mhz,
            **{f"phases/{phase}_seconds": point.phase_seconds(index) for index, phase in enumerate(STEP_PHASES)},
        }
        values = [
            self._summary.Value(tag=f"rank_{rank}/{tag}" if rank else tag, simple_value=value)
            for tag, value in named.items()
            if value is not None
        ]
        self._writer.add_event(self._event(wall_time=seconds, step=step, summary=self._summary(value=values)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self._writer.close()
