"""From which loader the batch of the next backward comes."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

Source = TypeVar("Source")


class LastRead(Generic[Source]):
    """The loader that was read last since a backward.

    Batches of one that was evaluated are no training's, once it was asked for a second batch without a backward: a
    single one may be trained on next. Being at its end, and having no second one, is an answer too.
    """

    def __init__(self) -> None:
        self.source: Source | None = None
        self._evaluated: Source | None = None
        self._asked: Counter[Source] = Counter()

    def ask(self, source: Source) -> None:
        """A batch is about to be fetched."""
        self._asked[source] += 1

    def got(self, source: Source) -> None:
        """A batch was fetched."""
        self.source = source

    def evaluated(self, source: Source | None) -> None:
        """What was read from it so far was evaluated."""
        self._evaluated = source

    def backward(self) -> Source | None:
        """The loader that this backward's batch came from; None where it came from none."""
        source = self.source
        if source is not None and source is self._evaluated and self._asked[source] > 1:
            source = None
        self.source = self._evaluated = None
        self._asked.clear()
        return source
