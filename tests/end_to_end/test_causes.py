"""A script with planted causes through the whole of ``hotlap profile``: launches, trace, rules, report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hotlap.cli.main import main

WASTEFUL = Path(__file__).with_name("wasteful.py")


def line_of(text: str) -> int:
    lines = WASTEFUL.read_text(encoding="utf-8").splitlines()
    return next(number for number, it in enumerate(lines, start=1) if it.lstrip().startswith(text))


@pytest.mark.slow
def test_planted_causes_are_found_with_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = shutil.copy(WASTEFUL, tmp_path)
    assert main(["profile", "--quiet", "--json", "wasteful.py"]) == 0
    study = json.loads(capsys.readouterr().out)
    assert study["kind"] == "profile" and not study["warnings"]
    assert study["profiled_steps"] > 0
    found = {it["rule"]: it for it in study["findings"]}
    assert {"loader-bound", "slow-transform", "memory-growth"} <= set(found)
    assert found["loader-bound"]["share"]["low"] > 0.5 and found["loader-bound"]["levers"] == ["loader"]
    for rule, line in (
        ("loader-bound", "for batch, target in DataLoader"),
        ("slow-transform", "def augment"),
        ("memory-growth", "history.append"),
    ):
        site = found[rule]["site"]
        assert Path(site["file"]) == Path(script) and site["line"] == line_of(line)
    assert sorted(it.name for it in tmp_path.iterdir()) == [".hotlap", "wasteful.py"]

    assert main(["report", "--full"]) == 0
    shown = capsys.readouterr().out
    assert f"slow-transform  wasteful.py:{line_of('def augment')}" in shown
    assert main(["trace", "--json", study["trace_path"]]) == 0
    assert len(json.loads(capsys.readouterr().out)["traces"][0]["steps"]) >= 3
