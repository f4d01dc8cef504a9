"""The child's connection to the controller when the script closes descriptors that are not its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from hotlap.records import CONNECTION_LOST

CHILD = """
import os, sys
from hotlap.records import Hello
from hotlap.runtime.channel import Channel

channel = Channel(sys.argv[1])
channel.send(Hello(process=1))
number = channel._socket.fileno()
os.closerange(3, 4096)
if sys.argv[2] == "reused":
    files = [os.open("checkpoint", os.O_RDWR | os.O_CREAT) for _ in range(number)]
    assert number in files
elif sys.argv[2] == "socket":
    import socket
    pairs = [socket.socketpair() for _ in range(number)]
    assert any(number in (one.fileno(), other.fileno()) for one, other in pairs)
channel.send(Hello(process=2))
"""


def test_a_connection_that_was_closed_ends_the_process_and_no_file_is_written(tmp_path: Path) -> None:
    for what in ("closed", "reused", "socket"):
        address = tmp_path / what
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(address))
            listener.listen()
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run(
                [sys.executable, "-c", CHILD, str(address), what],
                env=environment,
                cwd=tmp_path,
                timeout=300,
                check=False,
            )
        assert done.returncode == CONNECTION_LOST
    assert (tmp_path / "checkpoint").read_bytes() == b""
