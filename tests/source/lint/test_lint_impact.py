"""What the patterns cost: a pair of scripts shows one rule and nothing else, and rules quote the committed figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from bench.lint_impact.__main__ import SLOW, pairs, without_pattern  # noqa: E402
from bench.lint_impact.report import Impact, sentence  # noqa: E402

from hotlap.source.lint.api import all_rules  # noqa: E402
from hotlap.source.lint.run import Options, lint_file  # noqa: E402

RESULT = json.loads((ROOT / "docs" / "benchmarks" / "lint-impact.json").read_text(encoding="utf-8"))
MEASURED = {it.code: it for it in msgspec.convert(RESULT["data"], list[Impact])}


@pytest.mark.parametrize("code", pairs())
def test_a_pair_differs_by_its_pattern_alone(code: str, tmp_path: Path) -> None:
    folder = pairs()[code]
    options = Options(rules=tuple(all_rules().values()))
    assert [it.code for it in lint_file(folder / SLOW, options).findings] == [code]
    rest = lint_file(without_pattern(all_rules()[code], folder, tmp_path), options).findings
    assert code not in {it.code for it in rest}


def test_every_pair_was_measured() -> None:
    assert set(MEASURED) == set(pairs())
    assert not [it for it in MEASURED.values() if it.trouble]


@pytest.mark.parametrize("code", all_rules())
def test_a_rule_quotes_what_was_measured_of_it(code: str) -> None:
    impact = MEASURED.get(code)
    assert all_rules()[code].measured == (sentence(impact, RESULT["machine"]) if impact is not None else "")
