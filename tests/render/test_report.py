"""A study on a terminal, at every width, with and without colours, for any output of a script."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Literal

import fakes
import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from hotlap.records import Kept, Outcome, Parity, PhaseAccount, Plan, Skipped, Study, StudyKind
from hotlap.render.headline import headline
from hotlap.render.json import study_json
from hotlap.render.terminal import report

RATIO = re.compile(r"\d+(?:\.\d+)?x\b")


def shown(study: Study, width: int = 80, *, encoding: str = "utf-8", colour: bool = False) -> str:
    """Return the report for a terminal of that width."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    console.print(report(study))
    stream.flush()
    stream.seek(0)
    return stream.read()


@pytest.mark.parametrize("name", fakes.STUDIES)
def test_report_at_80_columns(name: str, matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot(f"{name}-80", shown(fakes.STUDIES[name]))


@pytest.mark.parametrize("width", [60, 120])
def test_report_at_other_widths(width: int, matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot(f"finished-{width}", shown(fakes.FINISHED, width))


def test_report_without_unicode(matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot("finished-ascii", shown(fakes.FINISHED, encoding="ascii"))


@pytest.mark.parametrize("name", fakes.STUDIES)
@pytest.mark.parametrize("width", [60, 73, 80, 97, 120, 160])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = shown(fakes.STUDIES[name], width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert not [line for line in lines if line != line.rstrip()]


def test_colours_only_if_requested() -> None:
    assert "\x1b[" not in shown(fakes.FINISHED)
    assert "\x1b[" in shown(fakes.FINISHED, colour=True)


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    coloured = re.findall(r"\x1b\[([0-9;]*)m", shown(fakes.FINISHED, colour=True))
    assert not [codes for codes in coloured if re.search(r"\b(?:3[0-8]|9[0-7])\b", codes)]
    assert "▒" in shown(fakes.FINISHED, colour=True)


@pytest.mark.parametrize("name", fakes.STUDIES)
def test_no_ratio_without_its_interval(name: str) -> None:
    """Every ratio has an interval, is called a bound, or is marked as measured once."""
    text = " ".join(shown(fakes.STUDIES[name], 120).split())
    bounds = {"2.12x", "1.94x", "1.01x", "4.50x"}
    for found in RATIO.finditer(text):
        after = text[found.end() : found.end() + 60]
        followed = re.match(r"(?: faster| of the script's)? \(?(?:[\d.]+ % interval )?[\d.]+ to [\d.]+", after)
        seen = re.match(r" in one replicate,? (?:without|not proved)| no interval", after)
        limit = text[: found.start()].endswith(", within ")
        assert followed or seen or limit or (found[0] in bounds and re.search("bound|at most", text)), text[
            found.start() - 40 : found.end() + 40
        ]


def test_control_characters_of_scripts_are_removed() -> None:
    text = shown(fakes.HOSTILE, 160)
    assert "[red]bold[/red]" in text
    assert "[link=x]" in text
    assert not [it for it in text if it != "\n" and not it.isprintable()]
    for poison in ("\x1b", "\u202e", "\u2066", "\r", "title"):
        assert poison not in text


def test_lone_surrogates_in_arguments_can_be_printed() -> None:
    workload = msgspec.structs.replace(fakes.WORKLOAD, arguments=("--name", "caf\udce9"))
    assert "--name" in shown(msgspec.structs.replace(fakes.FINISHED, workload=workload))


@pytest.mark.parametrize(
    ("study", "tone", "words"),
    [
        (fakes.FINISHED, "good", "3.65x faster (95 % interval 3.58 to 3.72), no difference found within 0.1 %"),
        (fakes.NOTHING, "neutral", "No lever is shown to make it faster with the same results."),
        (
            fakes.INTERRUPTED,
            "neutral",
            "Interrupted with 2 min 13 s of trials done: loader 1.91x (95 % interval 1.86 to 1.96)",
        ),
        (fakes.OUT_OF_BUDGET, "neutral", "The budget ended the search after 15 min: loader 1.91x"),
        (fakes.SCRIPT_FAILED, "bad", "The script failed: ValueError: data/train.bin is empty."),
        (fakes.DISTURBED, "bad", "No claim: two copies of the unmodified script differed"),
        (fakes.NOT_CONFIRMED, "neutral", "Inconclusive: fresh launches could not confirm a gain, 1.02x (95 % interval"),
    ],
)
def test_headline(study: Study, tone: str, words: str) -> None:
    found = headline(study)
    assert found.tone == tone
    assert found.sentence.startswith(words)


@pytest.mark.parametrize(
    ("parity", "tone", "words"),
    [
        (fakes.EXACT, "good", "losses agree to the last bit over 300 steps"),
        (fakes.UNKNOWN, "neutral", "not verified that training still produces the same results"),
        (None, "neutral", "results not compared"),
        (fakes.LOST, "bad", "but training no longer produces the same results"),
    ],
)
def test_headline_never_claims_unproven_parity(parity: Parity | None, tone: str, words: str) -> None:
    verification = fakes.comparison((fakes.LOADER,), fakes.speed(1.83), parity)
    found = headline(msgspec.structs.replace(fakes.FINISHED, verification=verification))
    assert (found.tone, words in found.sentence) == (tone, True)
    assert "identical" not in found.sentence


def test_next_command_carries_the_script_and_its_arguments() -> None:
    workload = msgspec.structs.replace(fakes.WORKLOAD, kind="module", target="pkg.train", arguments=("--name", "a b"))
    text = shown(msgspec.structs.replace(fakes.FINISHED, workload=workload), 120)
    assert "hotlap run --plan hotlap.toml -m pkg.train --name 'a b'" in text


def test_an_abandoned_plan_is_not_offered() -> None:
    given_up = msgspec.structs.replace(fakes.NOT_CONFIRMED, plan=Plan(), status_text="The plan was given up.")
    text = shown(given_up)
    assert "hotlap run" not in text
    assert "The plan was given up." in text
    assert "given up" in text.split("Where a step's time goes")[1].split("Levers")[0]


def test_steps_of_other_batch_sizes_are_scaled_to_equal_samples() -> None:
    twice = msgspec.structs.replace(fakes.BEFORE, samples_per_step=64)
    text = shown(msgspec.structs.replace(fakes.FINISHED, account_after=twice))
    assert "106.0  100 %" in text
    assert "64 samples instead of 32" in text


def test_an_empty_account_does_not_break_the_report() -> None:
    text = shown(msgspec.structs.replace(fakes.FINISHED, account_before=PhaseAccount(), account_after=None))
    assert "whole step" in text


def test_compile_states_after_how_many_steps_it_pays_back() -> None:
    """Compiling takes 41 s; a step of 212 ms / 1.91 / 1.62 becomes 1.18x faster, which saves 10.45 ms."""
    assert "pays back after about 3,923 steps" in shown(fakes.FINISHED)


def test_loader_without_values_is_shown_by_its_name() -> None:
    verdict = Kept(comparison=fakes.comparison((), fakes.speed(1.5)))
    study = msgspec.structs.replace(fakes.FINISHED, outcomes=(Outcome(lever="loader", verdict=verdict),))
    assert re.search(r"loader +1\.50x  1\.46 to 1\.54", shown(study))


@pytest.mark.parametrize("name", fakes.STUDIES)
def test_json_reads_back_as_the_same_study(name: str) -> None:
    assert msgspec.json.decode(study_json(fakes.STUDIES[name]), type=Study) == fakes.STUDIES[name]


def _printed(study: Study) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100, color_system=None).print(report(study))
    return stream.getvalue()


@pytest.mark.parametrize("count", [2, 3])
def test_a_reason_that_many_levers_share_is_one_line(count: int) -> None:
    shared = [Outcome(lever=it, verdict=Skipped(reason="Excluded by `--only`.")) for it in ("a", "b", "c")[:count]]
    other = Outcome(lever="channels-last", verdict=Skipped(reason="The model has no convolution."))
    said = _printed(msgspec.structs.replace(fakes.NOTHING, outcomes=(*shared, other)))
    assert said.count("Excluded by `--only`") == (2 if count == 2 else 1)
    assert bool(re.search(r"^ +3 levers +Excluded by `--only`: a, b, c$", said, re.MULTILINE)) is (count == 3)
    assert re.search(r"^ +channels-last +The model has no convolution\.$", said, re.MULTILINE)


def test_the_answer_and_the_plan_are_repeated_at_the_end() -> None:
    _, end = _printed(fakes.FINISHED).split("In short\n")
    assert "3.65x faster (95 % interval 3.58 to 3.72)" in end
    assert "In the plan: loader, mixed-precision and compile." in end
    assert "Read the 2 warnings above" in end
    dropped = msgspec.structs.replace(fakes.FINISHED, plan=Plan(), warnings=())
    _, end = _printed(dropped).split("In short\n")
    assert "In the plan" not in end and "Read the warning above" in end


@pytest.mark.parametrize(
    ("kind", "of", "into_source"),
    [("search", "script", True), ("inference", "script", True), ("inference", "inference", False)],
)
def test_only_a_plan_that_can_be_written_into_the_source_offers_it(
    kind: StudyKind, of: Literal["script", "inference"], into_source: bool
) -> None:
    """A model that was given without a script is exported instead."""
    workload = msgspec.structs.replace(fakes.WORKLOAD, kind=of)
    said = _printed(msgspec.structs.replace(fakes.FINISHED, kind=kind, workload=workload))
    assert ("hotlap patch" in said) is into_source
    assert "hotlap report .hotlap/20260131-142501-337 --html" in said
    assert "hotlap patch" not in _printed(msgspec.structs.replace(fakes.INTERRUPTED, kind=kind)), "not verified yet"
