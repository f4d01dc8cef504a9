"""Planted causes are found, at their line and before all else, and clean scripts yield nothing: on real runs.

The scripts and what is true of them are in the folder ``causes``. The quick ones run always; all of them by
``make test-all``, and those for an accelerator by ``make test-gpu``. ``bench.findings`` counts how many are right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.findings.__main__ import CAUSES, manifest, measure, missing

from hotlap.diagnose.api import all_rules
from hotlap.machine.facts import machine_facts

MANIFEST = manifest()


def _parameters() -> list[Any]:
    found = []
    for planted in MANIFEST.ALL:
        marks = [pytest.mark.gpu] if planted.need == "device" else [pytest.mark.slow] if planted.slow else []
        found.append(pytest.param(planted, id=planted.name, marks=marks))
    return found


@pytest.mark.parametrize("planted", _parameters())
def test_what_was_planted_is_found(planted: Any, tmp_path: Path) -> None:
    lack = missing(planted.need, machine_facts())
    if lack:
        pytest.skip(f"needs {lack}")
    score = measure(planted, tmp_path)
    assert not score.missed and not score.wrong_lines, (score.in_words(), score.titles, score.warnings)
    if planted.slow:  # what else is said depends on how quiet the machine is; the gate must not
        assert score.is_right, (score.in_words(), score.titles, score.warnings)


def test_every_script_is_in_the_manifest() -> None:
    listed = {it.file for it in MANIFEST.ALL}
    assert listed | {"manifest.py"} == {it.name for it in CAUSES.glob("*.py")}


def test_the_manifest_names_rules_that_exist() -> None:
    named = {rule for it in MANIFEST.ALL for rule in (*it.wanted, *it.true)}
    assert named <= set(all_rules())


@pytest.mark.parametrize("planted", MANIFEST.ALL, ids=lambda it: it.name)
def test_marked_lines_belong_to_planted_causes(planted: Any) -> None:
    assert set(planted.lines()) <= planted.wanted
