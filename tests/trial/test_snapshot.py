"""Which files of a directory changed, whichever process changed them."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hotlap.trial.snapshot import changed, snapshot

SNAPSHOTS = st.dictionaries(st.text("ab", min_size=1, max_size=2), st.tuples(st.integers(0, 2), st.integers(0, 2)))


def test_made_changed_and_removed_files_are_named(tmp_path: Path) -> None:
    for name in ("kept", "grown", "touched", "removed"):
        (tmp_path / name).write_text("x")
    before = snapshot(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "made").write_text("x")
    (tmp_path / "grown").write_text("xx")
    os.utime(tmp_path / "touched", ns=(1, 1))
    (tmp_path / "removed").unlink()
    names = [str(Path(path).relative_to(tmp_path)) for path in changed(before, snapshot(tmp_path))]
    assert names == ["grown", "removed", "sub/made", "touched"]


def test_links_environments_and_the_study_are_left_out(tmp_path: Path) -> None:
    for folder in (".hotlap", ".git", "__pycache__", ".venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "a").write_text("x")
    assert list(snapshot(tmp_path)) == [str(tmp_path / "a")]


def test_the_nearest_files_come_first_and_no_more_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(3):
        (tmp_path / "a" / f"far{number}").write_text("x")
        (tmp_path / f"near{number}").write_text("x")
    assert [Path(path).name for path in snapshot(tmp_path, limit=4)] == ["near0", "near1", "near2", "far0"]


def test_a_missing_directory_is_empty(tmp_path: Path) -> None:
    assert snapshot(tmp_path / "missing") == {}


@given(SNAPSHOTS, SNAPSHOTS)
def test_only_differing_files_count_as_changed(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> None:
    found = changed(before, after)
    assert list(found) == sorted(found)
    assert set(found) == {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
