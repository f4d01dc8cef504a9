"""The clock as everything else in the user's process sees it, whatever a unit of work is."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from hotlap.records import SampleSource, Steps


class UnitClock(Protocol):
    """Books time under phases and counts units: steps of a training (:class:`hotlap.runtime.clock.StepClock`) or calls
    of a model (:class:`hotlap.runtime.call_clock.CallClock`). Another unit of work is another class that has these.

    ``trainer`` is the thread that is timed, ``outside_phase`` what lies outside of steps at this moment, and
    ``follows_device`` whether marks are events of a device. ``samples_from`` is what samples were counted by.
    """

    steps_done: int
    backwards: int
    trainer: int
    samples_from: SampleSource
    follows_device: bool
    saw_forward: bool
    evaluating: bool
    outside_phase: int

    @property
    def phase(self) -> int:
        """The phase that is running."""

    @property
    def counted(self) -> Literal["optimizer", "backward", "call"]:
        """What ended the units so far."""

    def enter(self, phase: int) -> None:
        """Suspend the running phase and begin another."""

    def leave(self, as_phase: int | None = None) -> None:
        """End the running phase and resume the outer one."""

    def resume(self) -> None:
        """The running unit begins now: what passed since the last one ended was not the script's."""

    def synchronise(self) -> None:
        """Wait until the device has done all it was given."""

    def drain(self) -> None:
        """Resolve what was marked so far."""

    def steps(self) -> Steps:
        """The account so far, one row a unit."""

    def kept_losses(self) -> list[Any]:
        """The copies of losses that stay on their device until :meth:`drain` reads them."""
