"""What few scripts do in their training steps gives the same results, and no error, while they are watched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "unusual" / "train.py"
SOURCE = Path(__file__).parents[2] / "src"
CAME = re.compile(r"came (\d+) (\w+) (.*)")
FEWEST_CASES = 45
STEPS_WITH_ALL, STEPS_SEEN = 6, 4


def came(folder: Path, *command: str) -> list[tuple[str, str, str]]:
    """The step, the name and what came of each computation, in all launches."""
    found = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return [(it[1], it[2], it[3]) for it in CAME.finditer(found.stdout)]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("profile", ["300"]),
        ("profile", ["300", "--also", "compiled"]),
        ("nan", ["20", "--nan-at", "4", "--also", "compiled", "optimizers"]),
    ],
    ids=str,
)
def test_unusual_computations_are_what_they_are_without_hotlap(command: str, script: list[str], tmp_path: Path) -> None:
    expected = came(tmp_path, str(SCRIPT), "8", *script[script.index("--also") :] if "--also" in script else ())
    assert len(expected) >= FEWEST_CASES * STEPS_WITH_ALL
    assert not [it for it in expected if "Error" in it[2]], "without hotlap"
    found = came(tmp_path, "-m", "hotlap", command, "--show-output", str(SCRIPT), *script)
    steps = sorted({step for step, _, _ in found})
    assert steps[:STEPS_SEEN] == sorted({step for step, _, _ in expected})[:STEPS_SEEN]
    assert set(found) == {it for it in expected if it[0] in steps}
