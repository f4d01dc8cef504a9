"""``--within SECONDS``: tests in pieces, for a machine that is lent for minutes at a time.

No test is begun after that time. The next run leaves out what has passed since, as long as neither hotlap nor these
tests changed; where all have passed, it begins anew.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_KEY = "hotlap/passed-within"
_TESTS = Path(__file__).resolve().parent
_WATCHED = (_TESTS.parent / "src", _TESTS / "gpu")


def digest_of(folders: Sequence[Path]) -> str:
    """A name for the sources in these folders as they are."""
    digest = hashlib.sha256()
    for path in sorted(it for folder in folders for it in folder.rglob("*.py")):
        digest.update(path.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@dataclass
class GoingOn:
    """The plugin; ``digest`` is of what the tests test."""

    cache: pytest.Cache
    seconds: float
    digest: str
    passed: list[str] = field(default_factory=list)
    before: int = 0
    left: list[str] = field(default_factory=list)
    began: float = 0.0

    @pytest.hookimpl(trylast=True)  # after -m has deselected
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = self.cache.get(_KEY, {})
        self.passed = list(known.get("tests", ())) if known.get("digest") == self.digest else []
        done = [it for it in items if it.nodeid in self.passed]
        if len(done) == len(items):
            self.passed, done = [], []
        self.before = len(done)
        config.hook.pytest_deselected(items=done)
        items[:] = [it for it in items if it not in done]
        self.began = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() - self.began > self.seconds:
            self.left.append(item.nodeid)
            pytest.skip("the time is over; the next run goes on here")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid)
            self.cache.set(_KEY, {"digest": self.digest, "tests": self.passed})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.before:
            terminalreporter.write_line(f"{self.before} tests had passed in earlier runs.")
        if self.left:
            terminalreporter.write_line(f"{len(self.left)} tests are left, as the time was over. Run the same again.")


def install(config: pytest.Config) -> None:
    """Where ``--within`` asks for it."""
    seconds: float | None = config.getoption("--within")
    if seconds is not None and config.cache is not None:
        config.pluginmanager.register(GoingOn(config.cache, seconds, digest_of(_WATCHED)))
