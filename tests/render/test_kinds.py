"""Every kind of study has one file for what is specific to it, and no other code checks the kind."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from dataclasses import fields
from pathlib import Path
from typing import get_args

import fakes
import msgspec
import pytest

import hotlap
from hotlap import plan as plans_of
from hotlap.diagnose.shares import at_most, exactly
from hotlap.history import Entry
from hotlap.objective import for_inference, for_memory
from hotlap.records import (
    Estimate,
    EstimatedPeak,
    Finding,
    MemoryEstimate,
    NotVerified,
    Objective,
    Outcome,
    Plan,
    QualityLost,
    Seen,
    Study,
    StudyKind,
    StudyStatus,
)
from hotlap.render import kinds
from hotlap.render.headline import headline
from hotlap.render.kinds.api import Presenter, presenter_of
from hotlap.study.kinds import KINDS

NAMES: tuple[StudyKind, ...] = get_args(StudyKind)
STATES: tuple[StudyStatus, ...] = get_args(StudyStatus)


def test_each_kind_is_one_file_and_one_line() -> None:
    files = {it.name for it in pkgutil.iter_modules(kinds.__path__)} - {"api"}
    assert files == set(NAMES) == set(KINDS)


@pytest.mark.parametrize("kind", NAMES)
def test_a_kind_defines_only_what_a_presenter_has(kind: StudyKind) -> None:
    module = importlib.import_module(f"{kinds.__name__}.{kind}")
    own = {name for name, it in inspect.getmembers(module, inspect.isfunction) if it.__module__ == module.__name__}
    assert {it for it in own if not it.startswith("_")} <= {it.name for it in fields(Presenter)}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize("found", [fakes.FINISHED, Study(workload=fakes.WORKLOAD)])
def test_every_status_of_a_kind_has_its_sentences(kind: StudyKind, status: StudyStatus, found: Study) -> None:
    study = msgspec.structs.replace(found, kind=kind, status=status)
    presenter = presenter_of(kind)
    assert headline(study).sentence[-1] in ".:" and presenter.what_was_done(study).endswith(".")
    assert all(command.startswith("hotlap ") and purpose for command, purpose in presenter.next_commands(study, "p"))
    entry = Entry(directory="", identifier="", sort="", kind=kind, started="", status=status, workload=study.workload)
    assert presenter.result(entry)


def test_a_memory_estimate_is_the_answer_without_data() -> None:
    peaks = (EstimatedPeak(batch_size=32, peak_bytes=2**30), EstimatedPeak(batch_size=64, peak_bytes=2**31))
    estimate = MemoryEstimate(peaks=peaks, device_memory_bytes=3 * 2**29)
    study = Study(kind="memory", status="finished", workload=fakes.WORKLOAD, memory_estimate=estimate)
    said = headline(study).sentence
    assert "would peak at 1.0 GiB" in said and "a batch size of 32 fits into 1.5 GiB" in said
    lever = plans_of.setting("activation-checkpointing", share="all")
    two = Plan(settings=(plans_of.setting("mixed-precision", dtype="bfloat16"), lever))
    fitting = (
        EstimatedPeak(batch_size=64, plan=two, peak_bytes=2**30),
        EstimatedPeak(batch_size=64, plan=Plan(settings=(lever,)), peak_bytes=2**29),
    )
    several = msgspec.structs.replace(study, memory_estimate=msgspec.structs.replace(estimate, peaks=peaks + fitting))
    sentence = headline(several).sentence
    assert "a batch size of 64 fits into 1.5 GiB with activation-checkpointing" in sentence
    assert "mixed-precision" not in sentence, "one lever is enough"
    assert "no data" in presenter_of("memory").what_was_done(study)
    assert "not accounted for" in headline(msgspec.structs.replace(study, status="interrupted")).sentence


@pytest.mark.parametrize(
    ("kind", "objective", "said"),
    [
        ("search", for_memory(1.3), "hotlap tune --goal memory --slowdown 1.3 --budget 5m train.py"),
        ("search", Objective(), "hotlap tune --budget 5m train.py"),
        ("inference", for_inference("latency", p99_seconds=0.02), "hotlap infer --goal latency --p99 20ms train.py"),
    ],
)
def test_the_next_command_has_the_same_goal(kind: StudyKind, objective: Objective, said: str) -> None:
    study = Study(kind=kind, status="quick-look", workload=fakes.WORKLOAD, needed_seconds=300.0, objective=objective)
    commands = [command for command, _ in presenter_of(kind).next_commands(study, "")]
    assert any(it.startswith(said) for it in commands)


def test_the_cause_that_is_explained_is_the_one_that_the_summary_names() -> None:
    """Measured costs are listed before those of which only a bound is known, however large."""
    counted = Finding(rule="page-faults", title="Pages are provided again.", share=exactly(0.045))
    bounded = Finding(rule="slow-matmul-precision", title="Products are slow.", share=at_most(0.21))
    study = msgspec.structs.replace(fakes.QUICK_LOOK, findings=(counted, bounded))
    assert any("Products are slow." in it for it in headline(study).details)
    explained = [it for it in presenter_of("search").next_commands(study, "") if it[0].startswith("hotlap findings")]
    assert explained == [("hotlap findings slow-matmul-precision", "explains the costliest cause")]


def test_an_interrupted_check_is_not_resumed_as_a_search() -> None:
    study = msgspec.structs.replace(fakes.INTERRUPTED, kind="check")
    assert not tuple(presenter_of("check").next_commands(study, "hotlap.toml"))


def test_no_code_compares_the_kind_of_a_study() -> None:
    """Only folders and tables with the kind as key may depend on it."""
    source = Path(hotlap.__file__).parent
    asking = [f"{path.name}:{node.lineno}" for path in source.rglob("*.py")  # type: ignore[attr-defined]
              for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if _compares_a_kind(node)]  # fmt: skip
    assert asking == []


def _compares_a_kind(node: ast.AST) -> bool:
    """Return whether a node compares a study's kind, as ``x.kind == "search"`` does; a workload's kind differs."""
    if not isinstance(node, ast.Compare):
        return False
    words = {it.value for it in ast.walk(node) if isinstance(it, ast.Constant)}
    asked = [it for it in ast.walk(node) if isinstance(it, ast.Attribute)]
    names = {it.attr for it in asked if not ast.unparse(it.value).endswith("workload")}
    return bool(names & {"kind", "sort"} and words & {*NAMES, *(it.command for it in KINDS.values())})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen(speedup=1.23, rounds=8), "keep-freed-memory 1.23x in one replicate, without an interval"),
        (Seen(speedup=1.03, rounds=8), ""),
        (Seen(speedup=1.23, rounds=8, bound=1.1), ""),
        (
            Seen(speedup=1.2, rounds=8, within_launch=Estimate(value=1.2, low=1.1, high=1.3)),
            "(1.10 to 1.30) within one",
        ),
        (Seen(speedup=1.2, rounds=8, within_launch=Estimate(value=1.2, low=0.9, high=1.6)), ""),
    ],
    ids=["clear", "little", "more than is possible", "shown within one launch", "not shown there"],
)
def test_what_looked_faster_is_named_next_to_a_plan_that_was_verified_without_it(seen: Seen, words: str) -> None:
    outcomes = (*fakes.FINISHED.outcomes, Outcome(lever="keep-freed-memory", verdict=seen))
    study = msgspec.structs.replace(fakes.FINISHED, status="out-of-budget", outcomes=outcomes)
    details = " ".join(headline(study).details)
    assert "The budget ended the search" in details
    assert words in details if words else "not proved" not in details


def test_where_the_budget_ended_before_a_plan_what_looked_faster_is_named() -> None:
    within = Estimate(value=1.19, low=1.11, high=1.26)
    outcomes = (
        Outcome(lever="fused-optimizer", verdict=Seen(speedup=1.19, rounds=4, within_launch=within)),
        Outcome(lever="huge-pages", verdict=Seen(speedup=1.02, rounds=4)),
        *(it for it in fakes.FINISHED.outcomes if isinstance(it.verdict, QualityLost)),
        Outcome(lever="compile", verdict=NotVerified(speedup=1.4, reason="Not verified: no losses were seen.")),
    )
    study = msgspec.structs.replace(
        fakes.FINISHED, status="out-of-budget", plan=Plan(), verification=None, outcomes=outcomes, spent_seconds=241.0
    )
    found = headline(study)
    assert found.sentence == (
        "The budget ended the search after 4 min 01 s: no lever is known to be faster yet; not proved: "
        "fused-optimizer 1.19x (1.11 to 1.26) within one launch."
    )
    changed, unverified = found.details
    assert "but changed the results" in changed
    assert unverified == "Faster, but not verified: compile 1.40x in one replicate. No losses were seen."


WIDE = Estimate(value=7.37, low=0.2, high=270.0)


def test_a_look_whose_rounds_differ_too_much_is_no_figure_of_the_headline() -> None:
    """Seen where two searches and a test suite shared two cores: threads 7.37x, of two rounds."""
    threads = Outcome(lever="cpu-threads", verdict=Seen(speedup=7.37, rounds=2, within_launch=WIDE))
    pages = Outcome(lever="huge-pages", verdict=Seen(speedup=1.14, rounds=7))
    alone = headline(msgspec.structs.replace(fakes.QUICK_LOOK, outcomes=(threads,)))
    assert alone.sentence == "Quick look, nothing proved: rounds differed too much to say what levers give."
    both = headline(msgspec.structs.replace(fakes.QUICK_LOOK, outcomes=(threads, pages)))
    assert both.sentence == "Quick look, nothing proved: huge-pages 1.14x in one replicate, without an interval."
    for found in (alone, both):
        assert "Rounds within one launch differed too much to say what cpu-threads gives." in found.details
        assert "7.37" not in " ".join((found.sentence, *found.details))
