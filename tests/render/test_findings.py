"""Findings as they are shown: their cost, and the outcome of the levers that address them."""

from __future__ import annotations

import io

import fakes
import msgspec
import pytest
from rich.console import Console

from hotlap.records import (
    CallSite,
    Ceiling,
    Estimate,
    Failed,
    Finding,
    NoGain,
    Outcome,
    Seen,
    Skipped,
    TimedOut,
    Verdict,
)
from hotlap.render.brief import Brief, brief_text
from hotlap.render.findings import answers, fates, findings_list, label
from hotlap.render.headline import headline
from hotlap.render.lever_table import row
from hotlap.render.lines import Paper
from hotlap.render.summary import summary
from hotlap.render.terminal import report

KEPT, UNTRIED = fakes.OUTCOMES[0], Outcome(lever="loader", verdict=Skipped(reason="The budget leaves 3 s."))
NOTHING = Estimate(value=0.0, low=0.0, high=0.0)


def share(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high, unit="of the step")


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (share(0.48, 0.46, 0.5), "48 %"),
        (share(0.12, 0.0, 0.12), "up to 12 %"),
        (share(0.034, 0.034, 0.034), "3.4 %"),
        (share(0.0, 0.0, 0.0), "0 %"),
    ],
)
def test_the_cost_of_a_finding(of: Estimate, words: str) -> None:
    assert label(Finding(rule="r", share=of, title="t")) == words


@pytest.mark.parametrize(("kind", "words"), [("risk", "risk"), ("hint", "hint"), ("wrong-numbers", "numbers")])
def test_findings_without_a_cost_are_labelled_by_kind(kind: str, words: str) -> None:
    assert label(Finding(rule="r", share=NOTHING, title="t", kind=kind)) == words  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (KEPT.verdict, "Addressed by loader: 1.91x (95 % interval 1.86 to 1.96), kept."),
        (NoGain(comparison=KEPT.verdict.comparison), "loader tried: 1.91x (95 % interval 1.86 to 1.96), no gain."),
        (NoGain(reason="Not in sight."), "loader tried: no gain."),
        (Failed(ending=TimedOut(limit_seconds=3.0)), "loader tried: timed out."),
        (Skipped(reason="pinned at line 3", already=True), "loader is in the script. Pinned at line 3."),
        (UNTRIED.verdict, "loader was not tried. The budget leaves 3 s."),
    ],
)
def test_the_outcome_of_a_finding(verdict: Verdict, says: str) -> None:
    finding = fakes.FINDINGS[0]
    assert [words for _, words in fates(finding, [Outcome(lever="loader", verdict=verdict)])] == [says]


def test_a_finding_with_an_untried_lever_may_still_be_addressed() -> None:
    assert fates(fakes.FINDINGS[0], [])[0][1] == "loader was not tried."
    assert "No lever addresses it" in fates(fakes.FINDINGS[2], fakes.OUTCOMES)[0][1]


def test_the_findings_that_a_lever_addresses() -> None:
    twice = (*fakes.FINDINGS, fakes.FINDINGS[0], msgspec.structs.replace(fakes.FINDINGS[2], levers=("loader",)))
    assert answers("loader", twice) == "answers loader-bound (48 % of a step) and close-to-limit"
    assert answers("compile", twice) == ""


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/home/ada/work/src/train.py", "src/train.py:12"),
        ("/usr/lib/data.py", "/usr/lib/data.py:12"),
        ("train.py", "train.py:12"),
        ("/opt/env/lib/python3.11/site-packages/torch/nn/functional.py", "torch/nn/functional.py:12"),
        ("/home/ada/work/.venv/lib/python3.11/site-packages/torch/nn/functional.py", "torch/nn/functional.py:12"),
        ("/usr/lib/python3/dist-packages/einops/einops.py", "einops/einops.py:12"),
        ("/usr/lib/python3.11/json/encoder.py", "json/encoder.py:12"),
    ],
)
def test_lines_are_relative_to_the_working_directory(file: str, shown: str) -> None:
    assert fakes.PROFILED.workload.directory == "/home/ada/work"
    finding = msgspec.structs.replace(fakes.FINDINGS[0], site=CallSite(role="loader", file=file, line=12))
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(findings_list(msgspec.structs.replace(fakes.PROFILED, findings=(finding,))))
    assert f"loader-bound  {shown}  46 % to 50 % of a step" in console.file.getvalue()  # type: ignore[attr-defined]


def bound(loader: float, model: float) -> tuple[Ceiling, ...]:
    return (
        Ceiling(name="loader-alone", seconds_per_sample=0.1, bound_speedup=loader),
        Ceiling(name="model-alone", seconds_per_sample=0.1, bound_speedup=model),
    )


@pytest.mark.parametrize(
    ("loader", "model", "says"),
    [
        (4.0, 1.01, "It is bound by the model, which alone takes 99 % of that."),
        (1.02, 3.0, "It is bound by the loader, which alone takes 98 % of that."),
        (1.02, 1.0, "It is bound by the model, which alone takes 100 % of that."),
        (2.0, 4.0, "Alone, the loader takes 50 % of that and the model 25 %: neither binds it by itself."),
    ],
)
def test_a_script_without_findings_shows_its_limit(loader: float, model: float, says: str) -> None:
    found = headline(msgspec.structs.replace(fakes.CLEAN, ceilings=bound(loader, model)))
    assert (found.tone, found.sentence) == ("good", "No known cause of lost time was found.")
    assert found.details[0] == "A step takes 58.1 ms; its largest part is backward (50 %)."
    assert found.details[1].startswith(says)


def test_an_unprofiled_script_is_not_called_free_of_findings() -> None:
    found = headline(msgspec.structs.replace(fakes.CLEAN, profiled_steps=0))
    assert found.tone == "neutral" and "found in the time account" in found.sentence
    assert "was not profiled" in found.details[-1]
    with_causes = headline(msgspec.structs.replace(fakes.PROFILED, profiled_steps=0))
    assert "was not profiled" in with_causes.details[-1]


def test_a_killed_profile_is_reported() -> None:
    text = "The run was killed; only its results up to then are known."
    found = headline(msgspec.structs.replace(fakes.PROFILED, status="interrupted", status_text=text))
    assert found.sentence.startswith("Not finished") and found.details[0] == text


def test_wrong_numbers_come_before_slow_ones() -> None:
    wrong = Finding(
        rule="non-finite-loss", kind="wrong-numbers", share=NOTHING, title="The loss is NaN from step 31 on."
    )
    study = msgspec.structs.replace(fakes.PROFILED, findings=(wrong, *fakes.FINDINGS))
    found = headline(study)
    assert found.tone == "bad"
    assert found.sentence == "Fix the numbers first: The loss is NaN from step 31 on."


def test_one_cause_and_several() -> None:
    one = headline(msgspec.structs.replace(fakes.PROFILED, findings=fakes.FINDINGS[:1]))
    assert one.sentence == "1 cause of lost time was found; it costs 48 % of a step."
    assert "risk" not in " ".join(one.details)
    several = headline(fakes.PROFILED)
    assert several.sentence == "2 causes of lost time were found; the largest costs 48 % of a step."
    assert several.details[-1] == "Also 1 risk or hint; see below."


def test_a_look_that_arithmetic_forbids_is_never_shown_as_a_gain() -> None:
    noise = Outcome(lever="loader", setting=fakes.LOADER, verdict=Seen(speedup=1.84, bound=1.12, rounds=8))
    study = msgspec.structs.replace(fakes.QUICK_LOOK, outcomes=(noise, *fakes.QUICK_LOOK.outcomes[1:]))
    for page in (report(study), summary(study)):
        console = Console(width=100, file=io.StringIO(), color_system=None)
        console.print(brief_text(page, Paper(width=100)) if isinstance(page, Brief) else page)
        shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
        assert "1.84" not in shown and "1.12x at most" in shown
    assert fates(fakes.FINDINGS[0], [noise])[0][1] == (
        "loader can give 1.12x at most; one replicate showed more, which is noise."
    )
    assert row(noise).verdict == "above its bound" and "1.84" not in row(noise).speedup
