"""A git repository in which the present is compared with the past."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "procedures"))
sys.path.insert(0, str(Path(__file__).parent))

Git = Callable[..., str]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository that is the working directory; the caller's git settings do not count."""
    top = tmp_path / "project"
    top.mkdir()
    monkeypatch.chdir(top)
    for name in [it for it in os.environ if it.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    return top


@pytest.fixture
def git(repository: Path) -> Git:
    def run(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    return run


@pytest.fixture
def commit(repository: Path, git: Git) -> Callable[..., str]:
    """Write these files, commit them, and return the commit."""

    def make(**files: str) -> str:
        for name, text in files.items():
            path = repository / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        git("add", "--all", ".")
        git("commit", "-q", "--allow-empty", "-m", "more")
        return git("rev-parse", "HEAD")

    return make
