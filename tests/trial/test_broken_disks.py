"""Disks that fail at any stage of a run: hotlap ends with one sentence, and the script never runs unprotected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HELPER = Path(__file__).with_name("on_broken_disk.py")
INODES = ("inodes:1", "inodes:3", "inodes:4", "inodes:6", "inodes:8", "inodes:16", "inodes:200")
PAGES = ("pages:0", "pages:1", "pages:2", "pages:4", "pages:200")


def launched(place: Path, mode: str, *faults: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(HELPER), str(place), mode, *faults]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if "unavailable" in found[0]:
        pytest.skip(f"this user may not mount anything here: {found[0]['unavailable']}")
    assert [it["fault"] for it in found] == list(faults)
    return found


@pytest.mark.parametrize("mode", ["namespaces", "fence"])
@pytest.mark.parametrize("faults", [INODES, PAGES, ("read-only", "no-layers")], ids=["inodes", "space", "others"])
def test_a_broken_disk_never_harms_the_users_files(tmp_path: Path, mode: str, faults: tuple[str, ...]) -> None:
    found = launched(tmp_path, mode, *faults)
    if any("isolated on this machine" in it["said"] for it in found):
        pytest.skip(f"there is no way of isolating by {mode} here: {found[0]['said']}")
    for it in found:
        assert it["there"] == {"checkpoint.pt": "good"}, it
        assert it["ending"] == "Completed" or it["said"], it
        assert "wrote nothing" not in it["said"] and "runs by itself" not in it["said"], it
    assert found[0]["ending"] != "Completed"
    assert found[-1]["ending"] == "Completed"


def test_a_run_that_would_fill_the_disk_is_ended(tmp_path: Path) -> None:
    (found,) = launched(tmp_path, "namespaces", "small:200")
    if "isolated on this machine" in found["said"]:
        pytest.skip(found["said"])
    assert found["ending"] == "Crashed"
    assert "would have filled the disk" in found["said"]
    assert found["there"] == {"checkpoint.pt": "good"}
