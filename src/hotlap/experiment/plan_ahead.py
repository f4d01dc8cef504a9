"""Launches and time planned ahead: what was said, when it changes, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from hotlap.wording import launches_in

_MUCH = 0.2
"""A plan that changes by more than this share is said again."""


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches to come, about how long they take (None: unknown), and what they are for.

    ``spare``: a short budget cuts these first.
    """

    count: int
    seconds: float | None
    purpose: str
    spare: bool = False

    @property
    def text(self) -> str:
        """The launches with their purpose."""
        return f"{launches_in(self.count, self.seconds)} {self.purpose}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to come, in order."""

    parts: tuple[Launches, ...]

    @classmethod
    def of(cls, *parts: Launches) -> Self:
        """The parts that have launches."""
        return cls(tuple(it for it in parts if it.count))

    def then(self, *parts: Launches) -> Self:
        """The same, and more after it."""
        return type(self)((*self.parts, *parts))

    @property
    def launches(self) -> int:
        return sum(it.count for it in self.parts)

    @property
    def seconds(self) -> float | None:
        """All seconds; None where those of a part are unknown."""
        known = [it.seconds for it in self.parts if it.count]
        return None if None in known else sum(it for it in known if it is not None)

    @property
    def text(self) -> str:
        """What the launches are for."""
        said = ", then ".join(it.text for it in self.parts if it.count)
        return f"{said} {'is' if self.launches == 1 else 'are'} to come"

    def within(self, seconds: float) -> Forecast:
        """What of it fits into so many seconds."""
        parts = list(self.parts)
        order = sorted(range(len(parts)), key=lambda it: (not parts[it].spare, -it))
        excess = (self.seconds or 0.0) - max(0.0, seconds)
        for index in order:
            part = parts[index]
            if excess <= 0 or not part.seconds:
                continue
            cut = min(excess, part.seconds)
            count = int(part.count * (1 - cut / part.seconds) + 1e-9)
            parts[index] = replace(part, count=count, seconds=part.seconds - cut)
            excess -= cut
        return Forecast(tuple(parts))


class PlanAhead:
    """The plan for all launches of a command as it was said last; ``seconds`` is None where their time is unknown."""

    def __init__(self) -> None:
        self.launches = 0
        self.seconds: float | None = None

    def revise(self, expected: Forecast, *, launches: int, spent_seconds: float, budget_seconds: float | None) -> str:
        """Plan what is expected besides the launches and seconds so far; return the sentence that says so.

        It is empty where nothing is to come, or where the plan differs little from what was said: that stays.
        """
        if budget_seconds is not None:
            expected = expected.within(budget_seconds - spent_seconds)
        if not expected.launches:
            return ""
        whole = launches + expected.launches
        seconds = None if expected.seconds is None else spent_seconds + expected.seconds
        before = (self.launches, self.seconds)
        if self.launches and _alike(whole, self.launches) and _alike(seconds, self.seconds):
            return ""
        self.launches, self.seconds = whole, seconds
        verb = "is" if whole == 1 else "are"
        if before[0]:
            now = f"Now about {launches_in(whole, seconds)} {verb} planned in all, instead of {launches_in(*before)}"
            return f"{now}: {expected.text}"
        if seconds is None:
            return f"{launches_in(whole, None)} {verb} planned {expected.parts[0].purpose}"
        return f"About {launches_in(whole, seconds)} {verb} planned in all: {expected.text}"

    def outcome(self, launches: int, spent_seconds: float) -> str:
        """What was made of the plan; empty without one."""
        if not self.launches:
            return ""
        made = f"{launches_in(launches, spent_seconds)} {'was' if launches == 1 else 'were'} made"
        about = "" if self.seconds is None else "about "
        verb = "was" if self.launches == 1 else "were"
        return f"{made}; {about}{launches_in(self.launches, self.seconds)} {verb} planned"


def _alike(new: float | None, old: float | None) -> bool:
    if new is None or old is None:
        return new is old
    return abs(new - old) <= _MUCH * old
