"""Messages on the channel, split anywhere and from any process."""

from __future__ import annotations

import itertools
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.records import Block, BlockDone, End, Hello, Proceed, Report, Run, ToChild
from hotlap.trial import channel
from hotlap.trial.channel import Channel, Connection
from hotlap.trial.trainers import Trainers
from hotlap.trial.transport import UnixTransport

HELLO = Hello(process=1, rank=3, processes=4)
DONE = BlockDone(block=Block(steps=2, samples=8, wall_seconds=0.5), steps_done=3)
REPORT = Report(run=Run(notes=("ünïcode",)), exit_code=0)


@contextmanager
def listening() -> Iterator[tuple[Channel, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "socket"
        opened = Channel(UnixTransport(path))
        try:
            yield opened, path
        finally:
            opened.close()


@contextmanager
def calling(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        yield caller


def take_in(opened: Channel) -> None:
    while opened.poll(0.02):
        pass


def encode(*messages: Hello | BlockDone | Report) -> bytes:
    return b"".join(msgspec.json.encode(it) + b"\n" for it in messages)


@given(st.lists(st.integers(0, 400), max_size=6))
def test_messages_split_anywhere_arrive_whole(cuts: list[int]) -> None:
    raw = encode(HELLO, DONE, REPORT)
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    near, far = socket.socketpair()
    with near, far:
        connection = Connection(near)
        for start, end in itertools.pairwise(places):
            if raw[start:end]:
                far.sendall(raw[start:end])
                connection.receive()
        assert (connection.hello, connection.done, connection.report) == (HELLO, DONE, REPORT)
        assert not connection.closed
        far.close()
        connection.receive()
        assert connection.closed
        assert not connection.trouble


@given(st.binary(min_size=1, max_size=300))
def test_an_invalid_message_closes_the_connection(raw: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        connection = Connection(near)
        far.sendall(raw + b"\n")
        connection.receive()
        assert connection.hello is None
        assert connection.closed
        assert connection.trouble


def test_an_oversized_message_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LONGEST_MESSAGE_BYTES", 1000)
    near, far = socket.socketpair()
    with near, far:
        connection = Connection(near)
        for _ in range(11):
            far.sendall(b"x" * 100)
            connection.receive()
        assert connection.closed
        assert "too long" in connection.trouble


def test_a_report_is_read_after_the_sender_disconnected() -> None:
    with listening() as (opened, path):
        with calling(path) as caller:
            caller.sendall(encode(HELLO))
            take_in(opened)
            caller.sendall(encode(REPORT))
        opened.connections[0].send(End())  # the child has disconnected and never reads it
        take_in(opened)
        assert opened.connections[0].report == REPORT
        assert opened.connections[0].closed
        assert not opened.open


def test_a_trainer_that_connects_late_gets_the_same_orders() -> None:
    with listening() as (opened, path), calling(path) as first, calling(path) as second:
        trainers = Trainers(opened)
        first.sendall(encode(Hello(process=1, rank=1)))
        take_in(opened)
        trainers.attend()
        trainers.order(Proceed(steps=7))
        second.sendall(encode(Hello(process=2, rank=0)))
        take_in(opened)
        trainers.attend()
        told = [msgspec.json.decode(it.recv(1000), type=ToChild) for it in (first, second)]
        assert told == [Proceed(steps=7)] * 2
        first.sendall(encode(DONE))
        take_in(opened)
        assert not trainers.answered
        slower = BlockDone(block=Block(steps=2, samples=8, wall_seconds=0.75), steps_done=3)
        second.sendall(encode(slower))
        take_in(opened)
        assert trainers.answered
        assert trainers.block() == (Block(steps=2, samples=16, wall_seconds=0.75), 3)


def test_trainers_are_complete_once_all_announced_have_connected() -> None:
    with listening() as (opened, path), calling(path) as first, calling(path) as second:
        trainers = Trainers(opened)
        for rank, caller in enumerate((first, second)):
            trainers.attend()
            assert not trainers.complete
            caller.sendall(encode(Hello(process=rank, rank=rank, processes=2)))
            take_in(opened)
        trainers.attend()
        assert trainers.complete
