"""Connections as the kernel lists them, and how they are merged with what the run's processes recorded."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from hotlap.records import Contact
from hotlap.runtime import connections as in_child
from hotlap.trial import connections
from hotlap.trial.connections import merged_hosts, remote_peers

# Connected datagram sockets are listed like connections, though nothing is sent.
HOLDER = """
import socket, sys
held = []
for address, port in (("192.0.2.7", 5432), ("127.0.0.1", 9), ("192.0.2.8", 53)):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.connect((address, port))
    held.append(made)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[psutil.Process]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            pytest.skip("this machine has no route to other machines")
        yield psutil.Process(process.pid)
        process.kill()


def test_peers_of_a_process(holder: psutil.Process) -> None:
    assert remote_peers([holder]) == {Contact(address="192.0.2.7", port=5432)}


def test_other_processes_do_not_count(holder: psutil.Process) -> None:
    assert remote_peers([psutil.Process()]) == frozenset()


def test_a_process_that_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        gone = psutil.Process(process.pid)
    assert remote_peers([gone]) == frozenset()


def table(folder: Path, *rows: str) -> Path:
    path = folder / "tcp"
    path.write_text("\n".join(["  sl  local_address rem_address   st ...", *rows]) + "\n", encoding="ascii")
    return path


def test_incoming_connections_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = "00000000:00000000 00:00000000 00000000  0  0"
    path = table(
        tmp_path,
        f"0: 00000000:1F90 00000000:0000 0A {rest} 10 1",  # listens at 8080
        f"1: 0200000A:1F90 0700000A:C001 01 {rest} 11 1",  # incoming connection
        f"2: 0200000A:C002 0700000A:01BB 01 {rest} 12 1",  # outgoing connection to 10.0.0.7:443
        f"3: 0200000A:C003 0200000A:01BB 01 {rest} 13 1",  # outgoing connection to this machine
        f"4: 0200000A:C004 0800000A:01BB 01 {rest} 99 1",  # connection of another process
    )
    rows = connections._rows
    monkeypatch.setattr(connections, "_rows", lambda asked: rows(path) if asked.name == "tcp" else iter(()))
    assert set(connections._peers(1, {"10", "11", "12", "13"})) == {Contact(address="10.0.0.7", port=443)}


@pytest.mark.skipif(sys.byteorder != "little", reason="the lines are those of a little-endian machine")
@pytest.mark.parametrize(
    ("printed", "address", "port"),
    [
        ("0700000A:01BB", "10.0.0.7", 443),
        ("B80D0120000000000000000001000000:01BB", "2001:db8::1", 443),
        ("0000000000000000FFFF00000700000A:1F90", "10.0.0.7", 8080),
    ],
)
def test_addresses_are_parsed_as_the_kernel_prints_them(printed: str, address: str, port: int) -> None:
    assert connections._endpoint(printed) == (address, port)


def write(folder: Path, *contacts: Contact, more: bytes = b"") -> None:
    lines = b"".join(msgspec.json.encode(it) + b"\n" for it in contacts)
    (folder / connections.FILE).write_bytes(lines + more)


def test_names_and_addresses_are_joined(tmp_path: Path) -> None:
    write(
        tmp_path,
        Contact(address="192.0.2.9", name="models.example"),
        Contact(address="192.0.2.9", port=443),
        Contact(address="192.0.2.5", name="never.used"),
        more=b'{"address": "192.0.2',
    )
    peers = [Contact(address="192.0.2.9", port=8443), Contact(address="192.0.2.4", port=50051)]
    assert merged_hosts(tmp_path, peers, ["models.example:443", "other.example:80"]) == (
        "192.0.2.4:50051",
        "models.example:443",
        "models.example:8443",
        "other.example:80",
    )


def test_this_machines_own_addresses_are_left_out(tmp_path: Path) -> None:
    own = {it.address for them in psutil.net_if_addrs().values() for it in them if it.family is socket.AF_INET}
    assert merged_hosts(tmp_path, [Contact(address=it, port=29500) for it in own]) == ()
    assert merged_hosts(tmp_path, [], [f"{it}:29500" for it in own]) == ()


def test_records_written_by_a_run_are_not_trusted(tmp_path: Path) -> None:
    assert merged_hosts(tmp_path) == ()
    (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(Contact(address="192.0.2.1", port=1)))
    (tmp_path / connections.FILE).symlink_to(tmp_path / "elsewhere")
    assert merged_hosts(tmp_path) == ()
    (tmp_path / connections.FILE).unlink()
    write(tmp_path, *(Contact(address="192.0.2.1", port=it) for it in range(1, 50_000)))
    assert len(merged_hosts(tmp_path)) == connections.MOST_HOSTS


def test_runtime_and_trial_use_the_same_file() -> None:
    assert connections.FILE == in_child.FILE
