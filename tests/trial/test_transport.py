"""Both transports between child and controller, and which processes cannot connect to the public one."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hotlap.records import Assignment, Hello, LaunchRequest, Proceed, Stopped
from hotlap.runtime import channel as of_child
from hotlap.trial import child
from hotlap.trial.channel import Channel
from hotlap.trial.local import LocalExecutor
from hotlap.trial.transport import TcpTransport, Transport, UnixTransport, transport_at


@pytest.fixture
def opened() -> Iterator[Callable[[Transport], Channel]]:
    """Listen to a transport until the test is over."""
    channels: list[Channel] = []

    def listen(to: Transport) -> Channel:
        channels.append(Channel(to))
        return channels[-1]

    yield listen
    for it in channels:
        it.close()


@contextmanager
def calling(path: Path) -> Iterator[of_child.Channel]:
    """Connect as a child does, which keeps its end open until the process ends."""
    caller = of_child.Channel(str(path))
    try:
        yield caller
    finally:
        if caller._socket is not None:
            caller._socket.close()


def take_in(channel: Channel) -> None:
    while channel.poll(0.05):
        pass


@pytest.mark.parametrize("kind", [UnixTransport, TcpTransport])
def test_messages_pass_both_ways(
    kind: Callable[[Path], Transport], opened: Callable[[Transport], Channel], tmp_path: Path
) -> None:
    controller = opened(kind(tmp_path / "socket"))
    with calling(tmp_path / "socket") as caller:
        caller.send(Hello(process=7))
        take_in(controller)
        (connection,) = controller.connections
        assert connection.hello == Hello(process=7)
        connection.send(Proceed(steps=3))
        assert caller.receive() == Proceed(steps=3)


def test_only_this_user_can_read_the_secret(opened: Callable[[Transport], Channel], tmp_path: Path) -> None:
    first, second = TcpTransport(tmp_path / "first"), TcpTransport(tmp_path / "second")
    opened(first)
    opened(second)
    assert stat.S_IMODE((tmp_path / "first").stat().st_mode) == 0o600
    assert len(first.secret) >= 32 and first.secret != second.secret
    assert first.listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "said", [b'{"type":"hello","process":1}\n', b"\n", b"x" * 1000, b"0" * 64 + b'\n{"type":"hello","process":1}\n']
)
def test_connections_without_the_secret_are_refused(
    said: bytes, opened: Callable[[Transport], Channel], tmp_path: Path
) -> None:
    transport = TcpTransport(tmp_path / "socket")
    controller = opened(transport)
    with socket.create_connection(transport.listener.getsockname()) as stranger:
        stranger.sendall(said)
        take_in(controller)
        assert controller.connections == [] and not controller.open
        stranger.settimeout(10)
        with suppress(ConnectionResetError):
            assert stranger.recv(10) == b""
    with calling(tmp_path / "socket") as caller:
        caller.send(Hello(process=2))
        take_in(controller)
    assert [it.hello for it in controller.connections] == [Hello(process=2)]


def test_a_port_is_used_where_unix_sockets_cannot_be(opened: Callable[[Transport], Channel], tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    found, usual = transport_at(folder / "socket"), transport_at(tmp_path / "socket")
    opened(found)
    opened(usual)
    assert isinstance(found, TcpTransport) and isinstance(usual, UnixTransport)


def test_a_launch_is_timed_through_a_port(
    executor: LocalExecutor, assign: Callable[..., Assignment], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []

    def without_unix(path: Path) -> Transport:
        used.append(TcpTransport(path))
        return used[-1]

    monkeypatch.setattr(child, "transport_at", without_unix)
    run = executor.launch(LaunchRequest(assignment=assign(), steps=4))
    assert isinstance(run.ending, Stopped) and run.blocks[0].steps == 3 and used
    assert run.hosts == (), "the controller is not a host that the script connects to"
