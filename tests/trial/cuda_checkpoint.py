"""Replace NVIDIA's program of that name: processes whose command line has ``--on-device`` use a device.

Stores the state of each process in a folder, with a diary of its calls; rejects what the real program rejects.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["CUDA_CHECKPOINT_FOLDER"])
BECOMES = {
    "lock": ("running", "locked"),
    "checkpoint": ("locked", "checkpointed"),
    "restore": ("checkpointed", "locked"),
    "unlock": ("locked", "running"),
}


def uses_device(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"--on-device" in words and not any(it.endswith(b"launcher.py") for it in words)


def others_on_device(own: int) -> bool:
    """Whether another once suspended process occupies the device, which has room for one."""
    kept = {int(it.name): it.read_text() for it in FOLDER.iterdir() if it.name.isdecimal()}
    return any(pid != own and state != "checkpointed" and alive(pid) for pid, state in kept.items())


def alive(pid: int) -> bool:
    try:
        return state_of(pid) not in ("Z", "X")
    except OSError:
        return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--get-state", action="store_true")
    parser.add_argument("--action", choices=sorted(BECOMES))
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--timeout", type=int)
    chosen = parser.parse_args()
    if not uses_device(chosen.pid):
        sys.stderr.write("Could not get the state of the process: invalid value\n")
        return 1
    kept = FOLDER / str(chosen.pid)
    state = kept.read_text() if kept.exists() else "running"
    if chosen.get_state:
        print(state)
        return 0
    before, after = BECOMES[chosen.action]
    if state != before or state_of(chosen.pid) == "T" or chosen.action == os.environ.get("CUDA_CHECKPOINT_FAILS"):
        sys.stderr.write(f"Could not {chosen.action}: the operation is not permitted in state {state}\n")
        return 1
    if chosen.action == "restore" and others_on_device(chosen.pid):
        sys.stderr.write("Could not restore: out of memory\n")
        return 1
    kept.write_text(after)
    with (FOLDER / "diary").open("a") as diary:
        diary.write(json.dumps({"action": chosen.action, "pid": chosen.pid, "at": time.monotonic()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
