"""Files of other users are found before an ordinary user's overlay layers cover them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotlap.trial.others_files import of_others

ME = 1000


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project owned by user and group 1000."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    (tmp_path / "project" / "ckpt").mkdir(parents=True)
    (tmp_path / "project" / "ckpt" / "best.pt").touch()
    for path in (tmp_path / "project", tmp_path / "project" / "ckpt", tmp_path / "project" / "ckpt" / "best.pt"):
        os.chown(path, ME, ME)
    monkeypatch.setattr("hotlap.trial.others_files.os.geteuid", lambda: ME)
    monkeypatch.setattr("hotlap.trial.others_files.os.getegid", lambda: ME)
    return tmp_path / "project"


def test_a_project_owned_by_the_user(project: Path) -> None:
    assert of_others(project) == ""


@pytest.mark.parametrize(("user", "group"), [(1001, ME), (ME, 2000)])
def test_files_of_other_users_or_groups_are_found(project: Path, user: int, group: int) -> None:
    """Find, for example, files of a team's group that is not the user's primary group."""
    os.chown(project / "ckpt" / "best.pt", user, group)
    assert of_others(project) == str(project / "ckpt" / "best.pt")
