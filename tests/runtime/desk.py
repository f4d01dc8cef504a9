"""A user's working directory and a study's overlay, with which scripts are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

CHILD = Path(__file__).with_name("redirected_child.py")


class Desk:
    """A user's working directory, a study next to it, and a way to run scripts between the two."""

    def __init__(self, top: Path) -> None:
        self.work = top / "work"
        self.overlay = top / "study" / "overlay"
        self.home = top / "home"
        for folder in (self.work, self.home, top / "study"):
            folder.mkdir()
        self.written: dict[str, bool] = {}

    def give(self, **files: str) -> None:
        for name, text in files.items():
            path = self.work / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def command(self, script: str) -> list[str]:
        path = self.overlay.parent / "script.py"
        path.write_text(textwrap.dedent(script))
        return [sys.executable, str(CHILD), str(self.overlay), str(path)]

    def environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.home),
            **(variables or {}),
        }

    def run(self, script: str, **variables: str) -> str:
        """What the script printed; the files it wrote are in ``written``."""
        done = subprocess.run(
            self.command(script),
            cwd=self.work,
            env=self.environment(variables),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        self.written = dict(json.loads(self.overlay.with_name("files.json").read_text()))
        return done.stdout.strip()

    def kept(self) -> dict[str, str]:
        """What is really in the working directory."""
        return {str(it.relative_to(self.work)): it.read_text() for it in self.work.rglob("*") if it.is_file()}
