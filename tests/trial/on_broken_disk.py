"""Launch a script on broken disks, in private mounts, and print each result as a line of JSON.

Arguments: a folder for everything, a way of isolating, and the faults: ``kind:number``.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from hotlap.errors import HotlapError
from hotlap.records import Assignment, Isolation, LaunchRequest, Workload
from hotlap.sandbox import kernel
from hotlap.trial.local import LocalExecutor

SCRIPT = """
from pathlib import Path
print("the script ran", flush=True)
Path("checkpoint.pt").write_text("spoilt")
Path("new.pt").write_text("spoilt")
"""
GREEDY = """
import time
with open("checkpoint.pt", "wb", buffering=0) as file:
    for _ in range(150):
        file.write(bytes(2**20))
time.sleep(100)
"""
_PAGE_BYTES = 4096


def enter_own_mounts() -> None:
    if not kernel.may_administrate():
        kernel.become_root_of_own_namespace()
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)


def break_disk(runs: Path, kind: str, number: int) -> None:
    """``pages``, ``inodes``: leave this many free. ``read-only``. ``no-layers``: allow no layer.
    ``small``: so many MiB."""
    runs.mkdir()
    match kind:
        case "pages":
            kernel.mount("hotlap-test", str(runs), "tmpfs", 0, f"size={(number + 64) * _PAGE_BYTES}")
            fill(runs / "filler", number)
        case "inodes":
            kernel.mount("hotlap-test", str(runs), "tmpfs", 0, f"size=64m,nr_inodes={number + 1}")
        case "read-only":
            kernel.mount("hotlap-test", str(runs), "tmpfs", kernel.MS_RDONLY, "size=1m")
        case "small":
            kernel.mount("hotlap-test", str(runs), "tmpfs", 0, f"size={number}m")
        case "no-layers":
            kernel.mount("hotlap-test", str(runs), "ramfs")


def fill(path: Path, free_pages: int) -> None:
    with path.open("wb", buffering=0) as file:
        with suppress(OSError):
            while file.write(b"x" * _PAGE_BYTES):
                pass
        file.truncate(max(0, file.tell() - free_pages * _PAGE_BYTES))


def launched(top: Path, mode: str) -> dict[str, object]:
    """Return the result of a launch: its ending, or the error and its message."""
    workload = Workload(kind="script", target="train.py", directory=str(top / "project"), python=sys.executable)
    executor = LocalExecutor(top / "runs", isolation=Isolation(mode=mode))  # type: ignore[arg-type]
    request = LaunchRequest(assignment=Assignment(workload=workload, startup_limit_seconds=30.0), steps=1)
    try:
        run = executor.launch(request)
    except HotlapError as error:
        return {"ending": type(error).__name__, "said": str(error)}
    return {"ending": type(run.ending).__name__, "said": getattr(run.ending, "error", "")}


def main() -> None:
    place, mode = Path(sys.argv[1]), sys.argv[2]
    try:
        enter_own_mounts()
    except OSError as error:
        print(json.dumps({"unavailable": errno.errorcode.get(error.errno or 0, "")}))
        return
    for number, fault in enumerate(sys.argv[3:]):
        kind, _, amount = fault.partition(":")
        top = place / str(number)
        (top / "project").mkdir(parents=True)
        (top / "project" / "train.py").write_text(GREEDY if kind == "small" else SCRIPT)
        (top / "project" / "checkpoint.pt").write_text("good")
        break_disk(top / "runs", kind, int(amount or 0))
        found = launched(top, mode)
        os.sync()
        there = {it.name: it.read_text() for it in (top / "project").glob("*.pt")}
        print(json.dumps({"fault": fault, **found, "there": there}), flush=True)


if __name__ == "__main__":
    main()
