"""Planted causes are found, at their line and before all else, and clean scripts yield nothing: on real runs.

The scripts and what is true of them are in the folder ``causes``. The quick ones run always; all of them by
``make test-all``, and those for an accelerator by ``make test-gpu``. ``bench.findings`` counts how many are right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.findings.__main__ import measure, missing
from bench.findings.planted import FOLDER, Planted, all_planted
from bench.findings.variants import both_copies

from hotlap.diagnose.api import all_rules
from hotlap.machine.facts import machine_facts

ALL = all_planted()


def _parameters() -> list[Any]:
    found = []
    for planted in ALL:
        marks = [pytest.mark.gpu] if planted.need == "device" else [pytest.mark.slow] if planted.slow else []
        found.append(pytest.param(planted, id=planted.name, marks=marks))
    return found


@pytest.mark.parametrize("planted", _parameters())
def test_what_was_planted_is_found(planted: Planted, tmp_path: Path) -> None:
    lack = missing(planted.need, machine_facts())
    if lack:
        pytest.skip(f"needs {lack}")
    score = measure(planted, tmp_path)
    assert not score.missed and not score.wrong_lines, (score.in_words(), score.titles, score.warnings)
    if planted.slow:  # other findings depend on how quiet the machine is; the gate must not
        assert score.is_right, (score.in_words(), score.titles, score.warnings)


def test_every_script_is_described() -> None:
    described = {it.path.relative_to(FOLDER).parts[0] for it in ALL}
    there = {it.name for it in FOLDER.iterdir() if it.suffix != ".toml" and it.name != "__pycache__"}
    assert described == there


def test_descriptions_name_rules_that_exist() -> None:
    named = {rule for it in ALL for rule in it.allowed(busy=True)}
    assert named <= set(all_rules())


@pytest.mark.parametrize("planted", ALL, ids=lambda it: it.name)
def test_marked_lines_belong_to_planted_causes(planted: Planted) -> None:
    assert set(planted.lines()) <= set(planted.wanted)


@pytest.mark.parametrize("planted", [it for it in ALL if it.need != "device"], ids=lambda it: it.name)
def test_whatever_is_called_true_has_a_cure_that_can_be_measured(planted: Planted, tmp_path: Path) -> None:
    cured = {rule for cure in planted.cures for rule in cure.rules}
    hints = set(planted.hints())
    assert planted.allowed(busy=True) == cured | hints
    assert set(planted.busy) == {rule for cure in planted.cures if cure.busy for rule in cure.rules}
    for number, cure in enumerate(planted.cures):
        _, copy = both_copies(planted, cure, tmp_path / str(number))
        for path in copy.parent.rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")
