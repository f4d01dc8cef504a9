"""What Python code connects to is named, by host name where one was looked up; this machine itself is not.

The addresses are those reserved for documentation (RFC 5737, RFC 3849): nothing answers, and connecting does not wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CHILD = Path(__file__).with_name("connections_child.py")
SOURCES = Path(__file__).parents[2] / "src"

CONNECT = """
import socket

def connect(address, port=443, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as made:
        made.setblocking(False)
        try:
            made.connect((address, port))
        except OSError:
            pass
"""


def hosts_of(script: str, directory: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    command = [sys.executable, str(CHILD), str(directory), CONNECT + script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_addresses_are_named_once(tmp_path: Path) -> None:
    script = """
for _ in range(3):
    connect("192.0.2.7", 5432)
connect("2001:db8::1", 443, socket.AF_INET6)
"""
    assert hosts_of(script, tmp_path) == ["192.0.2.7:5432", "[2001:db8::1]:443"]


def test_a_resolved_name_means_its_address(tmp_path: Path) -> None:
    script = """
import _socket
from hotlap.runtime import connections

answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.9", 443))]
connections._original = lambda host, *rest: answer
socket.getaddrinfo("models.example", 443)
connect("192.0.2.9")
"""
    assert hosts_of(script, tmp_path) == ["models.example:443"]


def test_this_machine_is_not_named(tmp_path: Path) -> None:
    script = """
import os, tempfile
connect("127.0.0.1", 9)
connect("localhost", 9)
connect("::1", 9, socket.AF_INET6)
connect("192.0.2.1", 80, kind=socket.SOCK_DGRAM)  # as scripts find out their own address: nothing is sent
with socket.socket(socket.AF_UNIX) as made:
    try:
        made.connect(os.path.join(tempfile.gettempdir(), "no such socket"))
    except OSError:
        pass
"""
    assert hosts_of(script, tmp_path) == []


def test_datagrams_count_when_they_are_sent(tmp_path: Path) -> None:
    script = """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    try:
        made.sendto(b"loss:1", ("192.0.2.3", 8125))
    except OSError:
        pass
"""
    assert hosts_of(script, tmp_path) == ["192.0.2.3:8125"]


def test_forked_processes_count(tmp_path: Path) -> None:
    script = """
import os
if os.fork() == 0:
    connect("192.0.2.4")
    os._exit(0)
os.wait()
"""
    assert hosts_of(script, tmp_path) == ["192.0.2.4:443"]


def test_there_is_a_bound(tmp_path: Path) -> None:
    script = "for number in range(500):\n    connect(f'192.0.2.{number % 250 + 1}', 1000 + number)"
    assert len(hosts_of(script, tmp_path)) == 100


def test_what_cannot_be_written_down_does_not_stop_the_script(tmp_path: Path) -> None:
    assert hosts_of("connect('192.0.2.4')", tmp_path / "missing") == []


def test_the_end_of_the_interpreter_says_nothing(tmp_path: Path) -> None:
    """An error there would be the last line of the script's output, and hide why it failed."""
    late = """
import sys
from hotlap.runtime import connections

class Late:
    def __init__(self):
        self.audit = sys.audit
    def __del__(self):
        self.audit("os.putenv", b"", b"")

connections._late = Late()
"""
    command = [sys.executable, str(CHILD), str(tmp_path), late]
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
