"""Chains of names, each inside the one before it, as small numbers: module in module, caller and callee."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.traces.timeline import NONE

_DEEPEST = 64
"""Deeper links are counted at this depth, which bounds walks up a chain."""


class Chains:
    """Gives each distinct chain a number: that of its innermost link. :data:`NONE` is the empty chain."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._known: dict[tuple[int, str], int] = {}

    def below(self, chain: int, name: str) -> int:
        """Extend a chain by one name."""
        known = self._known.get((chain, name))
        if known is not None:
            return known
        depth = 1 if chain == NONE else self._depths[chain] + 1
        if depth > _DEEPEST:
            return chain
        number = self._known[chain, name] = len(self.names)
        self.names.append(name)
        self._parents.append(chain)
        self._depths.append(depth)
        return number

    def of(self, names: Iterator[str]) -> int:
        """The chain of these names, the outermost first."""
        chain = NONE
        for name in names:
            chain = self.below(chain, name)
        return chain

    def parent(self, chain: int) -> int:
        """The chain without its innermost name."""
        return self._parents[chain]

    def upwards(self, chain: int) -> Iterator[int]:
        """The chain and all of its prefixes, the longest first."""
        while chain != NONE:
            yield chain
            chain = self._parents[chain]

    def path(self, chain: int) -> tuple[str, ...]:
        """The names of a chain, the outermost first."""
        return tuple(self.names[it] for it in self.upwards(chain))[::-1]
