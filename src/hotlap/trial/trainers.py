"""The processes of one child that train together: usually one, several under a launcher such as torchrun."""

from __future__ import annotations

import time

import msgspec

from hotlap.records import Block, End, Proceed, Report
from hotlap.trial.channel import Channel, Connection

_MORE_HELLOS_SECONDS = 0.2


class Trainers:
    """The messages of all processes of one child.

    Every process that sent Hello is a trainer. One that comes late is sent at once what the others were sent last, as
    they may be waiting for it. ``hello_at`` is when the last of them came (``time.perf_counter``).
    """

    def __init__(self, channel: Channel) -> None:
        self.hello_at: float | None = None
        self._channel = channel
        self._trainers: list[Connection] = []
        self._order: Proceed | End | None = None

    def attend(self) -> None:
        """Add the trainers that have connected."""
        for connection in self._channel.connections:
            if connection.hello is not None and connection not in self._trainers:
                self._trainers.append(connection)
                self.hello_at = time.perf_counter()
                if self._order is not None:
                    connection.send(self._order)
        self._trainers.sort(key=_rank)

    @property
    def waits_on_device(self) -> bool:
        """Whether a process waits to be let go on into its first step."""
        return any(it.waits and not it.leaving for it in self._channel.connections)

    def let_go_on(self) -> None:
        """Let the processes take their first step that wait for it now."""
        for it in self._channel.connections:
            if it.waits:
                it.waits = False
                it.send(Proceed(steps=1))

    @property
    def size(self) -> int:
        """How many trainers there are."""
        return len(self._trainers)

    @property
    def complete(self) -> bool:
        """Whether all announced trainers have connected; one that reports to be alone is given a moment for others to
        connect."""
        announced = max((it.hello.processes for it in self._trainers if it.hello is not None), default=0)
        if announced > 1:
            return self.size >= announced
        return self.hello_at is not None and time.perf_counter() - self.hello_at >= _MORE_HELLOS_SECONDS

    @property
    def breaking_up(self) -> bool:
        """Whether a trainer is ending or gone; then no further block is possible."""
        return any(it.leaving for it in self._trainers)

    @property
    def gone(self) -> bool:
        """Whether all trainers have sent their last message."""
        return all(it.leaving for it in self._trainers)

    @property
    def trouble(self) -> str:
        """Why a process was disconnected, or nothing."""
        return next((it.trouble for it in self._channel.connections if it.trouble), "")

    @property
    def reports(self) -> tuple[Report, ...]:
        """The trainers' reports, lowest rank first; where no process trained, the last report there is."""
        reports = [it.report for it in self._trainers if it.report is not None]
        others = [it.report for it in self._channel.connections if it.report is not None]
        return tuple(reports or others[-1:])

    def order(self, proceed: Proceed) -> None:
        """Tell every trainer to do a block."""
        for trainer in self._trainers:
            trainer.done = None
        self._send(proceed)

    def end(self) -> None:
        """Tell every trainer to report and end."""
        self._send(End())

    def _send(self, order: Proceed | End) -> None:
        self._order = order
        for trainer in self._trainers:
            trainer.send(order)

    @property
    def answered(self) -> bool:
        """Whether all trainers have done the block."""
        return self.size > 0 and all(it.done is not None for it in self._trainers)

    def block(self) -> tuple[Block, int]:
        """The block that was done, as the slowest trainer saw it, with the samples and allocator retries of all and the
        largest of their peaks; and how many steps have been done so far."""
        self._order = None
        done = [it.done for it in self._trainers if it.done is not None]
        slowest = max((it.block for it in done), key=lambda it: it.wall_seconds)
        peaks = [it.block.device_peak_bytes for it in done if it.block.device_peak_bytes is not None]
        block = msgspec.structs.replace(
            slowest,
            samples=sum(it.block.samples for it in done),
            allocator_retries=sum(it.block.allocator_retries for it in done),
            device_peak_bytes=max(peaks, default=None),
        )
        return block, max(it.steps_done for it in done)


def _rank(trainer: Connection) -> int:
    return trainer.hello.rank if trainer.hello is not None else 0
