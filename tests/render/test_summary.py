"""The answer on one screen: what it says of each kind of study, and that it always fits."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import fakes
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "html"))
sys.path.insert(0, str(Path(__file__).parents[1] / "traces"))

from materials import batch_search, estimate, hostile_material, memory_account

from hotlap.experiment.options import Options
from hotlap.objective import for_inference
from hotlap.records import (
    BatchAdvice,
    Crashed,
    Estimate,
    Finding,
    Kept,
    Latency,
    LatencyPercentile,
    NotVerified,
    Outcome,
    Parity,
    PhaseAccount,
    Plan,
    Run,
    Setting,
    Study,
    StudyKind,
    StudyStatus,
    TaskQuality,
)
from hotlap.render.brief import MOST_LINES, Brief, Next, Row, brief_lines, command_lines
from hotlap.render.html.first_screen import changes
from hotlap.render.lines import Paper, cell_width
from hotlap.render.summary import summary
from hotlap.study import load_study
from hotlap.wording import ratio_in_interval

TESTS = Path(__file__).parents[1]
PAPER = Paper(width=80)
HALF = Setting(lever="half-weights", values=(("dtype", "bfloat16"),))


def _inference() -> Study:
    percentiles = tuple(
        LatencyPercentile(share=share, seconds=Estimate(value=it, low=0.98 * it, high=1.02 * it, unit="s"))
        for share, it in ((0.5, 0.0041), (0.99, 0.0062))
    )
    latency = Latency(calls=400, worst_seconds=0.011, percentiles=percentiles)
    said = "The smallest cosine was 0.99997."
    quality = TaskQuality(verdict="within", proof="rounding", inputs=64, level=0.999, text=said)
    measured = msgspec.structs.replace(
        fakes.comparison((HALF,), fakes.speed(1.74), quality), baseline_latency=latency, candidate_latency=latency
    )
    account = PhaseAccount(wall=0.0071, phases=(("forward", 0.0071),), samples_per_step=8)
    return msgspec.structs.replace(
        fakes.FINISHED,
        kind="inference",
        objective=for_inference("throughput", p99_seconds=None),
        workload=msgspec.structs.replace(fakes.WORKLOAD, target="serve:make_model", arguments=("--inputs", "serve:it")),
        account_before=account,
        account_after=msgspec.structs.replace(account, wall=0.0041),
        findings=(),
        outcomes=(Outcome(lever="half-weights", setting=HALF, verdict=Kept(comparison=measured)),),
        plan=Plan(settings=(HALF,)),
        verification=measured,
        directory="/home/ada/work/.hotlap/infer/20260131-142501-337",
    )


ADVICE = BatchAdvice(own=32, size=64, optimizer="SGD", learning_rate=0.1, rule="linear", factor=2.0)


def _of_kind(kind: StudyKind, **fields: object) -> Study:
    bare = msgspec.structs.replace(
        fakes.FINISHED, kind=kind, outcomes=(), findings=(), plan=Plan(), verification=None, account_after=None
    )
    return msgspec.structs.replace(bare, directory=f"/home/ada/work/.hotlap/{kind}/20260131-142501-337", **fields)


EXAMPLES = {
    **fakes.STUDIES,
    "inference": _inference(),
    "batch": _of_kind("batch", batch_search=batch_search(), batch_advice=ADVICE),
    "memory": _of_kind("memory", memory=memory_account()),
    "memory-estimate": _of_kind("memory", memory_estimate=estimate()),
    "denied": fakes.DENIED,
    "failed-at-length": msgspec.structs.replace(
        fakes.SCRIPT_FAILED,
        baseline=Run(ending=Crashed(exit_code=1, error="E" * 900, output_tail="\n".join(["x" * 300] * 40))),
    ),
}
SHOWN = (
    "finished", "nothing-faster", "not-confirmed", "disturbed", "interrupted", "quick-look", "script-failed",
    "saves-memory", "profiled", "inference", "batch", "memory", "memory-estimate",
)  # fmt: skip


def shown(study: Study, paper: Paper = PAPER, plan_path: str = "hotlap.toml") -> str:
    return "\n".join(brief_lines(summary(study, plan_path=plan_path), paper))


def assert_fits(text: str, width: int = PAPER.width) -> None:
    """It fits a screen, says what to type for everything else, and holds nothing that moves the cursor."""
    lines = text.split("\n")
    assert len(lines) <= MOST_LINES < 24
    assert max(map(cell_width, lines)) <= width
    assert not [it for it in lines if it != it.rstrip()]
    assert not [it for it in text if it != "\n" and not it.isprintable()]
    assert re.search(r"^ +hotlap report --full", text, re.MULTILINE)


@pytest.mark.parametrize("name", SHOWN)
def test_summary_at_80_columns(name: str, matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot(f"{name}-summary", shown(EXAMPLES[name]) + "\n")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_example_fits_a_screen(name: str, width: int) -> None:
    assert_fits(shown(EXAMPLES[name], Paper(width=width)), width)


@pytest.mark.parametrize("kind", get_args(StudyKind))
@pytest.mark.parametrize("status", get_args(StudyStatus))
@pytest.mark.parametrize("found", [*fakes.STUDIES.values(), Study(workload=fakes.WORKLOAD)])
def test_every_kind_and_status_fits_a_screen(kind: StudyKind, status: StudyStatus, found: Study) -> None:
    assert_fits(shown(msgspec.structs.replace(found, kind=kind, status=status)))


@pytest.mark.parametrize("name", ["format-1", "format-2", "format-3"])
def test_a_study_of_an_older_format_fits_a_screen(name: str) -> None:
    assert_fits(shown(load_study(TESTS / "study" / name)))


def test_a_study_whose_every_text_is_an_attack_fits_a_screen(tmp_path: Path) -> None:
    assert_fits(shown(hostile_material(tmp_path).study))


texts = st.text(max_size=400)
settings = st.lists(st.tuples(texts, st.lists(st.tuples(texts, texts), max_size=9)), max_size=12)


@given(
    st.sampled_from(list(EXAMPLES.values())), st.lists(texts, max_size=30), st.lists(texts, max_size=12), settings,
    st.sampled_from([60, 80, 100]),
)  # fmt: skip
def test_whatever_a_script_is_called_with_fits_a_screen(
    found: Study,
    arguments: list[str],
    said: list[str],
    plan: list[tuple[str, list[tuple[str, str]]]],
    width: int,
) -> None:
    findings = tuple(
        Finding(rule=it[:40], title=it, remedy=it, share=fakes.estimate(0.2, 0.1), levers=(it[:20],)) for it in said
    )
    study = msgspec.structs.replace(
        found,
        workload=msgspec.structs.replace(found.workload, arguments=tuple(arguments)),
        plan=Plan(settings=tuple(Setting(lever=lever, values=tuple(values)) for lever, values in plan)),
        warnings=tuple(said),
        findings=findings,
    )
    assert_fits(shown(study, Paper(width=width)), width)


def test_the_commands_name_the_study_and_its_plan() -> None:
    text = shown(fakes.FINISHED, plan_path="plans/mine.toml")
    assert "  hotlap run --plan plans/mine.toml train.py --epochs 1" in text
    for command in ("hotlap patch {}", "hotlap report {} --html", "hotlap report --full {}"):
        assert command.format(".hotlap/20260131-142501-337") in text
    assert "hotlap report --json .hotlap/infer/" in shown(EXAMPLES["inference"])


def test_a_plan_without_a_form_in_the_source_offers_no_patch() -> None:
    plan = Plan(settings=(Setting(lever="garbage-collection"),))
    assert "hotlap patch" not in shown(msgspec.structs.replace(fakes.FINISHED, plan=plan))
    unknown = Plan(settings=(Setting(lever="of-another-hotlap"),))
    assert "hotlap patch" not in shown(msgspec.structs.replace(fakes.FINISHED, plan=unknown))


def test_what_is_not_claimed_is_not_called_a_change() -> None:
    assert "Changed " in shown(fakes.FINISHED)
    for study in (fakes.DISTURBED, fakes.NOT_CONFIRMED, fakes.INTERRUPTED):
        text = shown(study)
        assert "Changed " not in text and "was 212 ms" not in text
        assert "Plan " in text
    assert "again, on a quieter machine" in shown(fakes.DISTURBED)


def test_a_gain_that_was_not_proved_apart_from_the_others_is_said_to_be() -> None:
    whole = fakes.FINISHED.verification
    assert whole is not None
    together = tuple(
        Outcome(lever=it.lever, setting=it, verdict=Kept(comparison=whole), together_with=("others",))
        for it in fakes.FINISHED.plan.settings[:1]
    )
    outcomes = tuple(it for it in fakes.FINISHED.outcomes if it.lever != together[0].lever)
    study = msgspec.structs.replace(fakes.FINISHED, outcomes=(*together, *outcomes))
    assert "own gain not proved" in shown(study).replace("\N{NO-BREAK SPACE}", " ")
    assert "own gain not proved" not in shown(fakes.FINISHED).replace("\N{NO-BREAK SPACE}", " ")
    assert [it.gain == "own gain not proved" for it in changes(study)] == [True, False, False]


def test_a_gain_that_only_a_first_measurement_shows_has_no_interval() -> None:
    whole, lever = fakes.FINISHED.verification, fakes.FINISHED.plan.settings[0]
    assert whole is not None
    verdict = Kept(comparison=whole, first_ratio=2.314)
    seen = Outcome(lever=lever.lever, setting=lever, verdict=verdict, together_with=("others",))
    others = tuple(it for it in fakes.FINISHED.outcomes if it.lever != lever.lever)
    study = msgspec.structs.replace(fakes.FINISHED, outcomes=(seen, *others))
    assert "2.31x seen once, not proved" in shown(study).replace("\N{NO-BREAK SPACE}", " ")
    assert changes(study)[0].gain == "2.31x seen once, not proved"
    assert_fits(shown(study))


def test_a_gain_whose_interval_reaches_none_is_not_proved() -> None:
    """A lever may be chosen by the mean of several comparisons, or with others that only together are shown to gain."""
    first = fakes.FINISHED.outcomes[0]
    assert isinstance(first.verdict, Kept)
    speed = msgspec.structs.replace(first.verdict.comparison.speed, verdict="inconclusive")
    comparison = msgspec.structs.replace(first.verdict.comparison, speed=speed)
    kept = msgspec.structs.replace(first, verdict=msgspec.structs.replace(first.verdict, comparison=comparison))
    study = msgspec.structs.replace(fakes.FINISHED, outcomes=(kept, *fakes.FINISHED.outcomes[1:]))
    words = shown(study).replace("\N{NO-BREAK SPACE}", " ")
    assert words.count("own gain not proved") == 1
    assert [it.gain for it in changes(study)].count("own gain not proved") == 1


def test_a_long_command_is_broken_as_a_shell_continues_it() -> None:
    lines = command_lines("hotlap run --plan hotlap.toml train.py --name 'a b' --rate 0.1", 30)
    assert lines == ["hotlap run --plan \\", "  hotlap.toml train.py \\", "  --name 'a b' --rate 0.1"]
    for long in (100 * "x", f"'{50 * 'x '}'"):
        lines = command_lines(f"hotlap report --full {long}", 30)
        assert max(map(len, lines)) <= 30 and lines == [it.rstrip() for it in lines]


def test_text_is_shortened_after_a_sentence_and_lists_say_how_many_are_left() -> None:
    brief = Brief(
        top="train.py",
        tone="good",
        sentence="It is faster.",
        details=("A first sentence.", "A second one. " * 60),
        rows=(Row("List", tuple(f"entry {it}" for it in range(40)), is_list=True, most=6),),
        commands=(Next("hotlap report --full", "the whole report"),),
    )
    lines = brief_lines(brief, PAPER)
    assert "  A first sentence. ..." in lines
    assert lines[-4].strip() == "and 35 more"


def test_a_command_that_does_not_fit_is_left_out_and_the_last_one_stays() -> None:
    long = Next("hotlap run " + " ".join(f"--option-{it} value" for it in range(200)), "trains")
    brief = Brief("t", "good", "Yes.", commands=(long, Next("hotlap report --full", "everything")))
    assert brief_lines(brief, PAPER)[-2:] == ["Next", "  hotlap report --full  # everything"]


def test_a_quick_look_that_measured_no_lever_has_nothing_to_prove() -> None:
    assert summary(fakes.QUICK_LOOK).commands[0].purpose == "proves what was only measured once"
    unseen = msgspec.structs.replace(fakes.QUICK_LOOK, outcomes=fakes.OUTCOMES[-3:])
    assert summary(unseen).commands[0].purpose == "tries the levers"


def test_entries_are_counted_even_if_the_first_one_fills_the_row() -> None:
    long = Row("Warnings", ("a warning of several lines " * 20, "another", "a third"), is_list=True, most=4)
    lines = brief_lines(Brief(top="t", tone="good", sentence="s.", rows=(long,)), PAPER)
    assert lines[-1].strip() == "and 2 more" and len(lines) == 2 * 2 + 4
    alone = Row("Warning", long.items[:1], is_list=True, most=4)
    assert brief_lines(Brief(top="t", tone="good", sentence="s.", rows=(alone,)), PAPER)[-1].endswith(" ...")


def test_colours_only_if_requested() -> None:
    coloured = shown(fakes.FINISHED, Paper(width=80, colours=True))
    assert "\x1b[1;32m3.65x faster" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(fakes.FINISHED)


def ratios_of(study: Study) -> Iterator[str]:
    yield from re.findall(r"\d+(?:\.\d+)?x\b.{0,24}", " ".join(shown(study).split()))


@pytest.mark.parametrize("name", fakes.STUDIES)
def test_no_ratio_without_its_interval(name: str) -> None:
    for found in ratios_of(EXAMPLES[name]):
        assert re.match(r"[\d.]+x(?: faster| of the script's)? \(?\d|[\d.]+x in one replicate", found), found


def test_the_command_after_a_quick_look_tries_no_more_levers_than_it_did() -> None:
    options = Options(only=("fused-optimizer", "loader"), allow=("batch-size",))
    study = msgspec.structs.replace(fakes.QUICK_LOOK, narrowed_by=options.which_levers)
    command = summary(study).commands[0].command
    assert command.startswith("hotlap tune --only fused-optimizer,loader --allow batch-size --budget 9m ")


def unverified(study: Study) -> Study:
    """What was faster could not be verified."""
    first = study.outcomes[0]
    assert isinstance(first.verdict, Kept)
    quality = Parity(verdict="not-verified", proof="rounding", text="Not verified: rounding alone changes too much.")
    comparison = msgspec.structs.replace(first.verdict.comparison, quality=quality)
    verdict = NotVerified(comparison=comparison, reason=f"{quality.text} Use --accept-unverified to keep it anyway.")
    others = tuple(it for it in study.outcomes if not isinstance(it.verdict, (Kept, NotVerified)))
    outcomes = (Outcome(lever=first.lever, setting=first.setting, verdict=verdict), *others)
    return msgspec.structs.replace(study, outcomes=outcomes, plan=Plan(), verification=None)


def test_what_was_faster_and_could_not_be_verified_is_said_with_the_way_to_keep_it() -> None:
    found = unverified(fakes.FINISHED)
    brief = summary(found)
    assert brief.sentence == "No lever is shown to make it faster with the same results."
    name, gain = found.outcomes[0].lever, found.outcomes[0].verdict.comparison.speed.speedup  # type: ignore[union-attr]
    words = f"Faster, but not verified: {name} {ratio_in_interval(gain)}. Rounding alone changes too much."
    assert words in brief.details
    looked = msgspec.structs.replace(found, status="quick-look", needed_seconds=540.0)
    assert summary(looked).details[0] == words
    (way,) = [it for it in summary(looked).commands if "--accept-unverified" in it.command]
    assert way.command.startswith("hotlap tune ") and "--budget 9m" in way.command


def test_what_was_no_faster_and_could_not_be_verified_needs_no_way() -> None:
    found = unverified(fakes.FINISHED)
    verdict = found.outcomes[0].verdict
    assert isinstance(verdict, NotVerified) and verdict.comparison is not None
    speed = msgspec.structs.replace(verdict.comparison.speed, speedup=Estimate(value=1.01, low=0.97, high=1.05))
    comparison = msgspec.structs.replace(verdict.comparison, speed=speed)
    outcome = msgspec.structs.replace(found.outcomes[0], verdict=NotVerified(comparison=comparison))
    study = msgspec.structs.replace(found, outcomes=(outcome, *found.outcomes[1:]))
    assert not any("not verified" in it for it in summary(study).details)
    assert not any("--accept-unverified" in it.command for it in summary(study).commands)


def test_levers_are_named_by_the_reason_for_which_they_are_not_verified() -> None:
    """What only lacked time can be verified with more of it: the command that keeps it anyway is not for that."""
    found = unverified(fakes.FINISHED)
    first = found.outcomes[0]
    assert isinstance(first.verdict, NotVerified) and first.verdict.comparison is not None
    unproved = msgspec.structs.replace(first.verdict.comparison, quality=None)
    late = Outcome(lever="late", verdict=NotVerified(comparison=unproved, reason="There was no time for the proof."))
    both = msgspec.structs.replace(found, outcomes=(first, late, *found.outcomes[1:]))
    said = [it for it in summary(both).details if "not verified" in it]
    gain = ratio_in_interval(first.verdict.comparison.speed.speedup)
    assert said == [
        f"Faster, but not verified: {first.lever} {gain}. Rounding alone changes too much.",
        f"Faster, but not verified: late {gain}. There was no time for the proof.",
    ]
    alone = msgspec.structs.replace(found, outcomes=(late, *found.outcomes[1:]))
    assert any("late" in it for it in summary(alone).details)
    assert not any("--accept-unverified" in it.command for it in summary(alone).commands)
