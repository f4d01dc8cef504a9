"""Collect the lines that traced processes run (see ``tests/simulated/lines.py``)."""

from __future__ import annotations

import os
import socket
import threading
from collections import defaultdict
from types import TracebackType

_LONGEST = 4096


class Listener:
    """Collects, for as long as it is entered, what all processes with its ``variables`` run."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._name = f"hotlap-lines-{os.getpid()}-{id(self)}"
        self._socket.bind(f"\0{self._name}")
        self._thread = threading.Thread(target=self._add_audit_hook, daemon=True)
        self.ran: dict[str, set[int]] = defaultdict(set)

    @property
    def variables(self) -> dict[str, str]:
        return {"TRACED_LINES": self._name}

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", f"\0{self._name}")
        self._thread.join()
        self._socket.close()

    def _add_audit_hook(self) -> None:
        while (told := self._socket.recv(_LONGEST)) != b"end":
            file, _, line = told.decode().rpartition(":")
            self.ran[file].add(int(line))
