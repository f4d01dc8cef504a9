"""What one rank can be given of another's share while the other trains on. Not a lever.

Most scripts write their checkpoint on rank 0 alone, where no collective can be called. But a rank that writes one has
not begun its next step, which no other rank can complete without it. Until then no rank's share changes. So a thread of
each rank answers the others' requests, over connections of its own.

A rank that is done waits until the others are done as well, since they may still write their last checkpoint.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection, Listener

_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 600.0
_LARGEST_REQUEST = 1 << 10
_THREADS = 3
"""Whoever connects and says nothing occupies one of them. None can be started while a process ends (Python 3.12)."""

_TROUBLE = (OSError, EOFError)
_YES, _NO = b"yes", b"no"
_HELLO, _IS_DONE = "hello", "is done"

Parts = Callable[[], Iterator[bytes]]
"""What a rank gives of its share, piece by piece."""


class _Place(NamedTuple):
    """Where a rank answers."""

    host: str
    address: str
    port: int


class RankAnswers:
    """The answers of this rank and the way to those of the others, for the ranks of one process group."""

    def __init__(self, rank: int, listener: Listener, key: bytes) -> None:
        self._rank = rank
        self._listener = listener
        self._key = key
        self._places: tuple[_Place, ...] = ()
        self._shares: dict[str, tuple[int, Parts]] = {}
        self._given = threading.Condition()
        self._process = os.getpid()
        self._is_done = False

    @classmethod
    def open(cls, torch: Any, group: Any) -> RankAnswers | None:
        """Connect all ranks of the group: a collective of all of them. None on all if any cannot reach another."""
        from multiprocessing.connection import Listener

        distributed = torch.distributed
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
        keys = [secrets.token_bytes(32) if rank == 0 else b""]
        distributed.broadcast_object_list(keys, src=distributed.get_global_rank(group, 0), group=group)
        address = _own_address()
        listener = Listener((address, 0), backlog=size, authkey=keys[0])
        answers = cls(rank, listener, keys[0])
        for _ in range(_THREADS):
            threading.Thread(target=answers._answer, name="hotlap-shares", daemon=True).start()
        places: list[Any] = [None] * size
        distributed.all_gather_object(places, _Place(socket.gethostname(), *listener.address[:2]), group=group)
        answers._places = tuple(_Place(*it) for it in places)
        reached: list[Any] = [None] * size
        distributed.all_gather_object(reached, answers._reaches_all(), group=group)
        if not all(reached):
            listener.close()
            return None
        atexit.register(answers._wait_for_others)
        return answers

    def give(self, name: str, version: int, parts: Parts) -> None:
        """From now on answer requests for this share, after so many updates."""
        with self._given:
            self._shares[name] = (version, parts)
            self._given.notify_all()

    def ask(self, rank: int, name: str, version: int) -> Iterator[bytes]:
        """The pieces of another rank's share after so many updates.

        Raises :class:`RuntimeError` if that rank does not have it, or cannot be reached.
        """
        try:
            with self._asked(rank, f"{version} {name}") as connection:
                if connection.recv_bytes() != _YES:
                    raise RuntimeError(
                        f"hotlap: rank {rank} does not have its share of the {name} after {version} updates. "
                        "Save checkpoints between two steps, on ranks that take part in every step."
                    )
                while piece := connection.recv_bytes():
                    yield piece
        except _TROUBLE as error:
            raise RuntimeError(f"hotlap: rank {rank} cannot give its share of the {name}: {error}") from error

    # -- asking --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asked(self, rank: int, question: str) -> Iterator[Connection]:
        from multiprocessing.connection import Client

        place = self._places[rank]
        with Client((place.address, place.port), authkey=self._key) as connection:
            connection.send_bytes(question.encode())
            if not connection.poll(_ANSWER_SECONDS):
                raise TimeoutError(f"Rank {rank} does not answer.")
            yield connection

    def _others(self) -> list[int]:
        return [it for it in range(len(self._places)) if it != self._rank]

    def _reaches_all(self) -> bool:
        if any(it.address.startswith("127.") for it in self._places) and len({it.host for it in self._places}) > 1:
            return False
        return all(self._said(rank, _HELLO) == _YES for rank in self._others())

    def _said(self, rank: int, question: str) -> bytes | None:
        """The rank's answer; None where it is gone."""
        try:
            with self._asked(rank, question) as connection:
                return connection.recv_bytes()
        except _TROUBLE:
            return None

    def _wait_for_others(self) -> None:
        """At the end of this process: until all others are at theirs, or gone."""
        if os.getpid() != self._process:
            return
        self._is_done = True
        while any(self._said(rank, _IS_DONE) == _NO for rank in self._others()):
            time.sleep(_POLL_SECONDS)

    # -- answering -----------------------------------------------------------------------------

    def _answer(self) -> None:
        from multiprocessing import AuthenticationError

        while True:
            try:
                connection = self._listener.accept()
            except AuthenticationError:
                continue
            except _TROUBLE:
                if self._listener_is_closed():
                    return
                continue
            with contextlib.suppress(*_TROUBLE), connection:
                self._answer_one(connection)

    def _listener_is_closed(self) -> bool:
        return getattr(self._listener, "_listener", None) is None

    def _answer_one(self, connection: Connection) -> None:
        question = connection.recv_bytes(_LARGEST_REQUEST).decode()
        if question in (_HELLO, _IS_DONE):
            connection.send_bytes(_YES if question == _HELLO or self._is_done else _NO)
            return
        version, _, name = question.partition(" ")
        with self._given:  # this rank may be a little behind
            self._given.wait_for(lambda: self._version_of(name) >= int(version), timeout=_ANSWER_SECONDS / 2)
            has, parts = self._shares.get(name, (-1, None))
        if parts is None or has != int(version):
            connection.send_bytes(_NO)
            return
        connection.send_bytes(_YES)
        for piece in parts():
            connection.send_bytes(piece)
        connection.send_bytes(b"")

    def _version_of(self, name: str) -> int:
        return self._shares[name][0] if name in self._shares else -1


def _own_address() -> str:
    """The address by which other nodes reach this one: that from which it reaches the first of them."""
    master = os.environ.get("MASTER_ADDR", "")
    if master:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
            found.connect((master, 9))
            return str(found.getsockname()[0])
    return "127.0.0.1"
