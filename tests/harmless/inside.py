"""The script that runs the rows: ``inside.py JOB``. It prints one marked line of JSON for each.

Copied next to the rows' folders and run as a user's script is, so it imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import select
import shlex  # noqa: F401 (for rows)
import shutil  # noqa: F401 (for rows)
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "@@row "
_TMPDIR = os.environ.get("TMPDIR")


# -- what rows may call -------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        return file.read()


def write(path: str | os.PathLike[str], text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)


def names(path: str | os.PathLike[str] = ".") -> list[str]:
    return sorted(os.listdir(path))  # noqa: PTH208


def sh(command: str, **variables: str) -> str:
    """Return the output of a shell that ends at the first error."""
    return run("/bin/sh", "-ec", command, **variables)


def run(*command: str, feed: str = "", **variables: str) -> str:
    """Return the output of a program. Raises CalledProcessError if it fails."""
    done = subprocess.run(
        command, input=feed, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **variables}
    )
    return done.stdout


def python(code: str, *flags: str, env: dict[str, str] | None = None) -> str:
    """Return the output of another Python process."""
    command = [sys.executable, *flags, "-c", textwrap.dedent(code)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=env).stdout


def exits_well(status: int) -> None:
    """Raise for an exit status (of ``os.system``) that is not 0."""
    if status != 0:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), "the command")


def caught(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> str:
    """The name of the error that a call raises, or "none"."""
    try:
        function(*arguments, **keywords)
    except OSError as failure:
        return errno.errorcode.get(failure.errno or 0, type(failure).__name__)
    except Exception as failure:  # rows show errors of every library by their names
        return type(failure).__name__
    return "none"


def look(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The properties of a file that are the same on every machine."""
    try:
        status = os.lstat(path)
    except OSError as failure:
        return {"error": errno.errorcode[failure.errno or 0]}
    found: dict[str, Any] = {"kind": oct(stat.S_IFMT(status.st_mode)), "mode": oct(stat.S_IMODE(status.st_mode))}
    if stat.S_ISLNK(status.st_mode):
        return {"kind": found["kind"], "target": os.readlink(path)}  # noqa: PTH115
    if stat.S_ISREG(status.st_mode):
        data = Path(os.fsdecode(path)).read_bytes()
        found |= {"size": status.st_size, "links": status.st_nlink}
        found["content"] = data.decode() if len(data) < 200 and data.isascii() else hashlib.sha1(data).hexdigest()
    return found


def tree(path: str = ".") -> dict[str, Any]:
    """Everything below a folder."""
    found = {}
    for top, folders, files in os.walk(path):
        for name in (*folders, *files):
            place = os.path.join(top, name)  # noqa: PTH118
            found[os.path.relpath(place, path)] = look(place)
    return dict(sorted(found.items()))


def wait_for(path: str | os.PathLike[str], seconds: float = 10.0) -> str:
    """The content of a file that another process is about to write, ending in a newline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.path.exists(path) and read(path).endswith("\n"):  # noqa: PTH110
            return read(path)
        time.sleep(0.01)
    raise TimeoutError(f"{Path(path).name} did not appear")


def in_fork(function: Callable[[], Any]) -> int:
    """Run a function in a forked child; returns the exit status, 0 for success."""
    process = os.fork()
    if process == 0:
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def libc(name: str, *arguments: Any) -> int:
    """Call a function of the C library; raises OSError where it returns -1."""
    library = ctypes.CDLL(None, use_errno=True)
    result = int(getattr(library, name)(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def attributes(path: str | os.PathLike[str]) -> dict[str, str]:
    """The extended attributes that users may set."""
    held = sorted(it for it in os.listxattr(path, follow_symlinks=False) if it.startswith("user."))
    return {it: os.getxattr(path, it, follow_symlinks=False).decode() for it in held}


# -- running them -------------------------------------------------------------------------------------


def operation_of(row: dict[str, str]) -> Callable[[], Any]:
    """The row's code as a function. It may use every import and function of this file."""
    source = "def operation():\n" + textwrap.indent(textwrap.dedent(row["code"]), "    ")
    scope = {**globals(), **{name: Path(row[name]) for name in ("HOME", "DATA", "SHARED", "TMP")}}
    exec(compile(source, f"<{row['name']}>", "exec"), scope)
    operation: Callable[[], Any] = scope["operation"]
    return operation


def outcome_of(row: dict[str, str]) -> dict[str, Any]:
    os.chdir(row["folder"])
    os.environ["HOME"] = row["HOME"]
    if os.path.dirname(row["TMP"]) == _TMPDIR:  # noqa: PTH120
        os.environ["TMPDIR"] = row["TMP"]  # or else the trial gave a temporary directory of its own
    tempfile.tempdir = None
    os.umask(0o022)
    try:
        return {"value": json.loads(json.dumps(operation_of(row)()))}
    except (Exception, SystemExit) as failure:  # the outcome of the row, whatever its library raises
        traceback.print_exc()
        shown = f"{type(failure).__module__}.{type(failure).__qualname__}".removeprefix("builtins.")
        return {"error": shown, "message": str(failure)[:300]}


def in_child(row: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a row that runs in a fork, which is killed where it takes too long."""
    receiving, sending = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receiving)
        answer = json.dumps(outcome_of(row)).encode() + b"\n"
        while answer:
            answer = answer[os.write(sending, answer) :]
        os._exit(0)
    os.close(sending)
    answer = b""
    deadline = time.monotonic() + row["longest_seconds"]
    while not answer.endswith(b"\n"):
        ready, _, _ = select.select([receiving], [], [], max(0.0, deadline - time.monotonic()))
        block = os.read(receiving, 65536) if ready else b""
        if not block:
            break
        answer += block
    os.close(receiving)
    if not answer.endswith(b"\n") and time.monotonic() >= deadline:
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    if answer.endswith(b"\n"):
        return dict(json.loads(answer))
    return {"error": "ended", "message": f"exit status {os.waitstatus_to_exitcode(status)}"}


def main() -> None:
    job = json.loads(read(sys.argv[1]))
    out = os.dup(1)
    os.dup2(2, 1)
    for row in job["rows"]:
        began = time.perf_counter()
        outcome = in_child(row) if row["group"] == "plain" else outcome_of(row)
        outcome |= {"name": row["name"], "seconds": round(time.perf_counter() - began, 3)}
        line = json.dumps(outcome).replace(job["top"], "TOP")
        os.write(out, f"\n{MARK}{line}\n".encode())
    os.write(out, f"\n{MARK}{json.dumps({'name': '', 'seconds': 0})}\n".encode())


if __name__ == "__main__":
    main()
