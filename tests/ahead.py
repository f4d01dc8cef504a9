"""Compute results ahead of the tests that use them, on two cores."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

_AT_A_TIME = 2


class Ahead(Generic[Key, Found]):
    """Calls ``work`` with the arguments of each key, in this order, in processes of its own: the results are under way
    before anybody asks for them.

    ``work`` is a function that other processes can import, and what it takes and gives can be pickled.
    """

    def __init__(self, work: Callable[..., Found], arguments: Mapping[Key, tuple[Any, ...]]) -> None:
        self._work = work
        self._arguments = arguments
        self._found: dict[Key, Future[Found]] = {}

    def __enter__(self) -> Self:
        self._pool = ProcessPoolExecutor(_AT_A_TIME, mp_context=get_context("spawn"))
        self._found = {key: self._pool.submit(self._work, *given) for key, given in self._arguments.items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __getitem__(self, key: Key) -> Found:
        """Wait for the result. Raises what ``work`` raised."""
        return self._found[key].result()
