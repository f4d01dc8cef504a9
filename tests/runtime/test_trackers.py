"""Trackers are silenced within the study by variables that all have a source."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hotlap.runtime.trackers import TABLE, tracker_environment


def test_no_tracker_is_sent_to_the_network(tmp_path: Path) -> None:
    variables = tracker_environment(tmp_path / "a study")
    assert variables["WANDB_MODE"] == "disabled"
    assert not [value for value in variables.values() if value.startswith(("http:", "https:"))]


def test_folders_are_in_the_study(tmp_path: Path) -> None:
    study = tmp_path / "a study"
    variables = tracker_environment(study)
    address = urlsplit(variables["MLFLOW_TRACKING_URI"])
    assert address.scheme == "file"
    assert study in Path(unquote(address.path)).parents
    assert study in Path(variables["WANDB_DIR"]).parents


def test_every_variable_has_one_line_and_a_source() -> None:
    assert len({it.name for it in TABLE}) == len(TABLE)
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", it.name) and it.value and it.source.partition(", ")[2] for it in TABLE)
