"""Each rank's own work and exposed communication in a traced step. Not a rule itself."""

from __future__ import annotations

from typing import NamedTuple

from hotlap.diagnose.profile import Profile
from hotlap.traces.records import Breakdown, DeviceBreakdown


class RankSteps(NamedTuple):
    """One rank's device: columns with one row per traced step, in nanoseconds.

    ``exposed`` is communication during which the device computed nothing. Most of it is waiting, since a collective
    ends only after the last rank has joined it. ``own`` is the rest of the step: this rank's own work on the device or
    the host.
    """

    rank: int
    step: tuple[int, ...]
    exposed: tuple[int, ...]

    @property
    def own(self) -> tuple[int, ...]:
        return tuple(step - exposed for step, exposed in zip(self.step, self.exposed, strict=True))


def traced_ranks(profile: Profile) -> tuple[RankSteps, ...]:
    """Return each rank whose reliable trace marks steps and shows communication on its device."""
    found = (_rank_steps(number, it) for number, it in enumerate(profile.breakdowns))
    return tuple(it for it in found if it is not None)


def ranks_on_host(profile: Profile) -> tuple[RankSteps, ...]:
    """Return each rank whose collectives gloo ran on the host; none for a script that trains on a device."""
    if profile.on_accelerator:
        return ()
    return tuple(RankSteps(it.rank, it.steps, it.exposed) for it in profile.exposed)


def _rank_steps(number: int, breakdown: Breakdown) -> RankSteps | None:
    device = _communicating_device(breakdown)
    if breakdown.unreliable or device is None:
        return None
    times = [it.device for it in device.steps if it.device is not None]
    if not times:
        return None
    return RankSteps(
        rank=number if breakdown.facts.rank is None else breakdown.facts.rank,
        step=tuple(it.window_nanoseconds for it in times),
        exposed=tuple(it.exposed_communication_nanoseconds for it in times),
    )


def _communicating_device(breakdown: Breakdown) -> DeviceBreakdown | None:
    """Choose a rank's device: usually the only one, otherwise the busiest that communicates."""
    communicating = [it for it in breakdown.devices if it.time.communication_nanoseconds > 0]
    return max(communicating, key=lambda it: it.time.busy_nanoseconds, default=None)
