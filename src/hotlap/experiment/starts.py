"""How long launches take to start beside each other, learned from those that did.

A start that computes, as imports do, needs a core; one that waits, for files, a network or a device, needs none. Only
the second kind costs its time once, however many launches begin at the same time.
"""

from __future__ import annotations

from collections import deque
from statistics import median, median_low

_REMEMBERED = 5


class Starts:
    """``seconds`` are those of the first launch, by itself.

    As many launches as there are ``cores`` start in that time. What each further one adds is learned; until then it is
    what it would add if the whole start were computation.
    """

    def __init__(self, seconds: float, cores: int) -> None:
        self._first_seconds = seconds
        self._cores = max(1, cores)
        self._later: deque[float] = deque(maxlen=_REMEMBERED)
        self._further: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def seconds(self) -> float:
        """Those of one launch by itself: no more than launches take that start beside others, since the first one may
        have read files that nobody had read before, or compiled what later ones load."""
        return min([self._first_seconds, *([median_low(self._later)] if self._later else [])])

    def learn(self, launches: int, seconds: float) -> None:
        """Note that so many launches took so many seconds to start together."""
        if seconds <= 0:
            return
        self._later.append(seconds)
        if launches > self._cores:
            self._further.append(max(0.0, seconds - self.seconds) / (launches - self._cores))

    def together(self, launches: int) -> float:
        """The seconds in which so many launches start beside each other."""
        further = median(self._further) if self._further else self.seconds / self._cores
        return self.seconds + further * max(0, launches - self._cores)

    def saved(self, replicates: int, arms: int) -> float:
        """The seconds that are saved if replicates of so many arms start together and not one after the other."""
        return max(0.0, replicates * self.together(arms) - self.together(replicates * arms))
