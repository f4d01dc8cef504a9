"""Which lines of hotlap a process ran, and each process that it starts: ``TRACED_LINES`` names the receiver.

That is a socket, since what children of trials write into files is thrown away; and every line is told when it first
runs, since they end without a farewell.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from types import CodeType, FrameType
from typing import Any

TOLD = "TRACED_LINES"
_PART = f"{os.sep}src{os.sep}hotlap{os.sep}"


def start() -> None:
    """Send ``<file>:<line>`` for every line that runs from here on. Without a receiver nothing is sent."""
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        told.connect(f"\0{os.environ[TOLD]}")
    except ConnectionRefusedError:
        return
    into = os.dup(told.fileno())
    kept: dict[CodeType, set[int]] = {}
    part, write, gone = _PART, os.write, contextlib.suppress(ConnectionError)  # modules end before the last line runs

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        missing = kept.get(code)
        if missing is None:
            if part not in code.co_filename:
                return None
            missing = kept[code] = {line for _, _, line in code.co_lines() if line is not None}
        if not missing:
            return None
        name = code.co_filename[code.co_filename.rindex(part) + len(part) :]

        def on_line(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_lineno in missing:
                missing.discard(frame.f_lineno)
                with gone:
                    write(into, f"{name}:{frame.f_lineno}".encode())
            return on_line if missing else None

        return on_line(frame, event, argument)

    threading.settrace(on_call)
    sys.settrace(on_call)
