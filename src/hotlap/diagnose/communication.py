"""What each rank's device did in a traced step: its own work, and communication that nothing hid. Not a rule itself."""

from __future__ import annotations

from typing import NamedTuple

from hotlap.diagnose.profile import Profile
from hotlap.traces.records import Breakdown, DeviceBreakdown


class RankSteps(NamedTuple):
    """One rank's device, as columns with a row a traced step, in nanoseconds.

    ``exposed`` is communication during which the device computed nothing. It is mostly waiting: a collective ends when
    the last rank has come to it. ``own`` is the rest: what this rank had to do by itself, on the device or the host.
    """

    rank: int
    step: tuple[int, ...]
    exposed: tuple[int, ...]

    @property
    def own(self) -> tuple[int, ...]:
        return tuple(step - exposed for step, exposed in zip(self.step, self.exposed, strict=True))


def traced_ranks(profile: Profile) -> tuple[RankSteps, ...]:
    """Every rank whose trace marks steps, can be trusted, and shows communication on its device."""
    found = (_rank_steps(number, it) for number, it in enumerate(profile.breakdowns))
    return tuple(it for it in found if it is not None)


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
    """A rank drives one device as a rule; of several, the busiest that communicates."""
    communicating = [it for it in breakdown.devices if it.time.communication_nanoseconds > 0]
    return max(communicating, key=lambda it: it.time.busy_nanoseconds, default=None)
