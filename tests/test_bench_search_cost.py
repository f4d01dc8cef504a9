"""What the benchmark of a search's cost counts and writes."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.pieces import store
from bench.report import command_line, machine_line, today
from bench.search_cost.__main__ import (
    BEFORE,
    HERE,
    SLOW_START,
    Begun,
    Case,
    Row,
    Search,
    launches_in,
    main,
    text_of,
    until_a_plan_was_verified,
)

TUNE = """
import json, pathlib, sys, time
journal = pathlib.Path(".hotlap/one/journal.jsonl")
journal.parent.mkdir(parents=True, exist_ok=True)
with journal.open("a") as lines:
    lines.write(json.dumps({"type": "launch"}) + "\\n")
if "--resume" not in sys.argv:
    pathlib.Path("ready").touch()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        sys.exit(130)
speedup = {"value": 1.5, "low": 1.4, "high": 1.6}
study = {"spent_seconds": 90.0, "status": "finished", "plan": {"settings": [{"lever": "loader"}]}}
print(json.dumps(study | {"verification": {"speed": {"speedup": speedup}}}))
"""
"""Stands in for hotlap: a search that takes too long, and ends when it is resumed."""


def stand_in(folder: Path) -> list[str]:
    program = folder / "hotlap.py"
    program.write_text(TUNE)
    return [sys.executable, str(program)]


def entry(kind: str, *outputs: str) -> str:
    runs: list[dict[str, Any]] = [{"output_path": it} for it in outputs]
    answer: dict[str, Any] = {"runs": runs} if kind == "turns" else {"output_path": "x"}
    return json.dumps({"type": kind, "answer": answer})


def test_arms_that_share_a_process_are_one_launch() -> None:
    journal = [
        json.dumps({"type": "header"}),
        entry("machine"),
        entry("launch"),
        entry("turns", "run-2/output.txt", "run-2/output.txt", "run-2/output.txt"),
        entry("turns", "run-3/output.txt", "run-4/output.txt"),
    ]
    assert launches_in(iter(journal)) == 1 + 1 + 2


def replicate(*arms: str, seconds: float = 10.0) -> str:
    plans = [{"settings": [{"lever": it} for it in names.split()]} for names in arms]
    runs = [{"output_path": f"run-{number}", "plan": it} for number, it in enumerate(plans)]
    return json.dumps({"type": "turns", "elapsed_seconds": seconds, "answer": {"runs": runs}})


def test_the_first_plan_with_five_replicates_counts_if_it_was_kept() -> None:
    journal = [
        entry("machine"),
        replicate("", "loader", "compile"),
        *[replicate("", "", "compile")] * 5,
        *[replicate("", "", "loader", "")] * 5,
        *[replicate("", "", "loader compile")] * 5,
    ]
    assert until_a_plan_was_verified(iter(journal), {"loader", "fused"}) == (3 + 15 + 20, 110.0)
    assert until_a_plan_was_verified(iter(journal), {"loader", "compile"}) == (3 + 15, 60.0)
    assert until_a_plan_was_verified(iter(journal[:9]), {"loader"}) is None


def test_the_table_has_a_row_for_each_search() -> None:
    row = Row(
        script="slow_start.py",
        startup_seconds=10.0,
        version="this",
        launches=31,
        wall_seconds=300.0,
        processor_seconds=540.0,
        status="finished",
        speedup=1.5,
        low=1.4,
        high=1.6,
        levers=("loader", "mixed-precision"),
    )
    text = text_of([row])
    ends = "31 | 5.0 min | 9.0 min | 1.50x (1.40 to 1.60) | loader, mixed-precision |"
    assert f"| slow_start.py | 10 s | this | none | none | {ends}" in text
    text = text_of([msgspec.structs.replace(row, first_launches=22, first_seconds=210.0)])
    assert f"| slow_start.py | 10 s | this | 22 | 3.5 min | {ends}" in text
    assert "| 5.0 min, then interrupted |" in text_of([msgspec.structs.replace(row, status="interrupted")])


def test_a_search_that_takes_too_long_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    case, program = Case(SLOW_START, 10.0, HERE, tmp_path), stand_in(tmp_path)
    first = Search(case, tmp_path, until=math.inf, program=program)

    def end_it() -> None:
        while not (tmp_path / case.name / "ready").exists():
            time.sleep(0.01)
        first.until = 0.0

    thread = threading.Thread(target=end_it)
    thread.start()
    assert first.row() is None
    thread.join()
    row = Search(case, tmp_path, program=program).row()
    assert row is not None and (row.parts, row.launches, row.wall_seconds, row.speedup) == (2, 2, 90.0, 1.5)
    assert row.processor_seconds is not None and row.processor_seconds > 0
    assert Search(case, tmp_path, program=["/nowhere"]).row() == row, "it is stored"


def test_the_processor_time_of_a_search_that_was_killed_is_unknown(tmp_path: Path) -> None:
    case, program = Case(SLOW_START, 10.0, HERE, tmp_path), stand_in(tmp_path)
    (tmp_path / case.name / ".hotlap" / "one").mkdir(parents=True)
    (tmp_path / case.name / ".hotlap" / "one" / "journal.jsonl").touch()
    store(tmp_path / f"{case.name}-begun.json", Begun(parts=1, processor_seconds=5.0, running=True))
    row = Search(case, tmp_path, program=program).row()
    assert row is not None and row.processor_seconds is None and row.parts == 2
    assert "| unknown |" in text_of([row])


def test_no_search_begins_after_the_time_is_over(tmp_path: Path) -> None:
    case = Case(SLOW_START, 10.0, HERE, tmp_path)
    assert Search(case, tmp_path, until=time.monotonic() - 1.0, program=["/nowhere"]).row() is None


def searched(**changes: Any) -> Row:
    usual = Row(
        script="slow_start.py",
        startup_seconds=60.0,
        version="this",
        launches=16,
        wall_seconds=1100.0,
        processor_seconds=540.0,
        status="finished",
        speedup=1.5,
        low=1.4,
        high=1.6,
        levers=("loader",),
    )
    return msgspec.structs.replace(usual, **changes)


def test_each_goal_is_said_to_be_reached_or_missed() -> None:
    reached = text_of([searched(), searched(script="bert.py", startup_seconds=0.0, wall_seconds=300.0)])
    assert reached.count(": reached, ") == 3 and "missed" not in reached
    longer = searched(script="bert.py", startup_seconds=0.0, wall_seconds=361.0, first_launches=15, first_seconds=300.0)
    assert "bert.py in 6 min: reached, 5.0 min." in text_of([longer]), "the plan came in time"
    slow = searched(launches=21, wall_seconds=1300.0)
    none = searched(script="bert.py", startup_seconds=0.0, wall_seconds=300.0, speedup=None, levers=())
    missed = text_of([slow, none])
    assert missed.count(": missed, ") == 3 and "reached" not in missed


def test_each_row_says_when_and_where_it_was_measured() -> None:
    here = searched(machine=machine_line(), date=today())
    elsewhere = searched(machine="another machine, 64 cores", date="2026-01-02")
    text = text_of([here, elsewhere, searched()])
    rows = [line for line in text.splitlines() if line.startswith("| slow_start.py")]
    assert [it.split("|")[-2].strip() for it in rows] == ["1", "2", "3"]
    assert f"1. {today()}, {machine_line()}" in text and "2. 2026-01-02, another machine, 64 cores" in text
    assert "3. unknown day, unknown machine" in text
    assert "reached, 18.3 min (another machine, 64 cores)." in text


def test_searches_of_another_checkout_are_compared_where_both_ran_on_the_same_machine_and_day() -> None:
    after = searched(launches=40, first_launches=29, first_seconds=1104.0, date="2026-01-02")
    before = searched(version=BEFORE, launches=73, first_launches=73, first_seconds=1800.0, date="2026-01-02")
    begins, ends = "- slow_start.py with a start-up of 60 s: ", "before the change"
    line = f"{begins}a verified plan in 29 launches and 18.4 min, {ends} a verified plan in 73 launches and 30.0 min."
    assert line in text_of([after, before])
    none = msgspec.structs.replace(before, first_launches=None, first_seconds=None, speedup=None)
    assert f"{ends} no verified plan in 73 launches and 18.3 min." in text_of([after, none])
    none = msgspec.structs.replace(none, status="interrupted")
    assert f"{ends} no verified plan in 73 launches and 18.3 min, then interrupted." in text_of([after, none])
    assert begins not in text_of([after, msgspec.structs.replace(before, machine="another machine")])
    assert begins not in text_of([after, msgspec.structs.replace(before, date="2026-01-03")])


def test_the_recorded_command_names_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    source = str(tmp_path.parent / "before" / "src")
    for words in (["--source", source], [f"--source={source}"]):
        monkeypatch.setattr(sys, "argv", ["__main__.py", *words, "--startups=", "--out", "x"])
        option = " ".join(words).replace(source, "../before/src")
        assert command_line("bench.search_cost") == f"python -m bench.search_cost {option} --startups= --out x"


def test_what_another_machine_measured_stays_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "search-cost"
    for machine, launches in (("one machine", 31), ("another machine", 22), ("one machine", 20)):
        row = searched(machine=machine, launches=launches)
        monkeypatch.setattr(Search, "row", lambda self, row=row: row)
        assert main(["--startups", "60", "--out", str(out)]) == 0
    rows = json.loads(out.with_suffix(".json").read_text())["data"]
    assert {it["machine"]: it["launches"] for it in rows} == {"one machine": 20, "another machine": 22}
    assert len(rows) == 2
