"""Which mode of isolation is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotlap.records import Isolation
from hotlap.sandbox import landlock
from hotlap.trial.isolating import Isolator


@pytest.fixture
def without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Isolator._tried
    monkeypatch.setattr(Isolator, "_tried", lambda self, way: "no" if way.mode == "namespaces" else tried(self, way))


@pytest.mark.usefixtures("without_namespaces")
@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
def test_unprotected_runs_without_the_fence(tmp_path: Path) -> None:
    fence = Isolator(Isolation(), tmp_path / "runs", {}).protection
    none = Isolator(Isolation(unprotected=True), tmp_path / "runs", {}).protection
    assert (fence.mode, none.mode) == ("fence", "none")
    assert "fence: `--unprotected` was given" in none.reasons
    wanted = Isolator(Isolation(unprotected=True, mode="fence"), tmp_path / "runs", {}).protection
    assert wanted.mode == "fence"


def test_unprotected_keeps_namespaces_where_they_work(tmp_path: Path) -> None:
    usual = Isolator(Isolation(), tmp_path / "runs", {}).protection
    if usual.mode != "namespaces":
        pytest.skip(f"no namespaces here: {usual.reasons}")
    assert Isolator(Isolation(unprotected=True), tmp_path / "runs", {}).protection.mode == "namespaces"
