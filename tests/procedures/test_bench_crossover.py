"""The comparison of switched levers with launched ones: what it measures, what it writes, and that it goes on."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import scipy
from fake_levers import lever, named
from fake_script import Effect, FakeExecutor, FakeScript, Interrupt

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.crossover.__main__ import Row, earlier, measure, text_of, welch
from bench.pieces import KeptAnswers, TimeIsUp
from bench.report import write

from hotlap.levers.api import Lever
from hotlap.levers.support.switching import Switch
from hotlap.plan import setting
from hotlap.records import Estimate, Replicate, Setting, TurnRequest

EFFECTS = {
    setting("half"): Effect(compute=0.5),
    setting("broken"): Effect(fails="crash"),
    setting("step"): Effect(optimizer=0.2),
}


def switchable(name: str) -> Lever:
    def switch(hooks: object, setting: Setting) -> Switch:
        raise AssertionError("a fake executor switches nothing")

    return replace(lever(name), switch=switch)


LEVERS: Mapping[str, Lever] = named(*map(switchable, ("half", "broken", "step", "idle")), lever("launched"))


class Biased(FakeExecutor):
    """An executor in whose launches that switch the lever ``step`` seems to gain a fifth more than it does."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if not request.one_launch:
            return turns
        factors = [1 / 1.2 if any(it.lever == "step" for it in run.plan.settings) else 1.0 for run in turns.runs]
        rows = tuple(tuple(factor * it for it in row) for factor, row in zip(factors, turns.rounds, strict=True))
        return msgspec.structs.replace(turns, rounds=rows)


def script() -> FakeScript:
    return FakeScript(effects=EFFECTS, launch_noise=0.005, round_noise=0.01)


def by_setting(rows: list[Row]) -> dict[str, Row]:
    return {it.setting: it for it in rows}


def test_what_a_switch_measures_otherwise_is_found() -> None:
    measured = measure("bert", 5, Biased(script()), LEVERS)
    rows = measured.rows
    assert measured.is_whole
    found = by_setting(rows)
    assert set(found) == {"half", "broken", "step", "idle"}, "what cannot be switched has no row"
    assert found["half"].within.value == pytest.approx(20 / 13, rel=0.03)
    assert found["half"].over.value == pytest.approx(20 / 13, rel=0.03)
    assert found["half"].apart.low < 1 < found["half"].apart.high
    assert found["step"].apart.value == pytest.approx(1.2, rel=0.03)
    assert "It crashed" in found["broken"].trouble
    text = text_of(rows)
    assert "disagree beyond noise (5 %, Holm's procedure over 3 settings) for 1: step of bert." in text
    assert "| bert |  | broken | It crashed" in text


def test_it_goes_on_after_what_is_stored(tmp_path: Path) -> None:
    whole = measure("bert", 3, FakeExecutor(script()), LEVERS)
    for _ in range(2):
        killed = FakeExecutor(script(), interrupt=Interrupt(4, TimeIsUp))
        assert not measure("bert", 3, KeptAnswers(killed, tmp_path), LEVERS).is_whole
    last = FakeExecutor(script())
    assert measure("bert", 3, KeptAnswers(last, tmp_path), LEVERS) == whole
    again = FakeExecutor(script())
    assert measure("bert", 3, KeptAnswers(again, tmp_path), LEVERS) == whole
    assert last.requests and not again.requests


def test_what_is_not_measured_yet_is_said(tmp_path: Path) -> None:
    killed = FakeExecutor(script(), interrupt=Interrupt(7, TimeIsUp))
    found = measure("bert", 3, KeptAnswers(killed, tmp_path), LEVERS)
    assert not found.is_whole
    troubles = {it.setting: it.trouble for it in found.rows}
    assert troubles["half"] == "Not measured yet: 3 of 3 launches that switch, 0 of 3 of its own."
    assert "crashed" in troubles["broken"]
    text = text_of(found.rows, ["bert"])
    assert text.startswith("Not finished: bert.") and "Not measured yet" in text
    further = FakeExecutor(script(), interrupt=Interrupt(3, TimeIsUp))
    part = measure("bert", 3, KeptAnswers(further, tmp_path), LEVERS)
    assert not part.is_whole and by_setting(part.rows)["half"].apart is not None, "two launches of each kind"


def test_the_time_of_a_call_ends_before_a_request(tmp_path: Path) -> None:
    executor = FakeExecutor(script())
    with pytest.raises(TimeIsUp):
        measure("bert", 3, KeptAnswers(executor, tmp_path, until=0.0), LEVERS)
    assert not executor.requests


def test_the_difference_of_both_agrees_with_scipy() -> None:
    one, other = [0.1, 0.14, 0.12, 0.09], [0.2, 0.13, 0.28]
    found, p_value = welch(one, other)
    expected = scipy.stats.ttest_ind(one, other, equal_var=False)
    assert p_value == pytest.approx(expected.pvalue, abs=1e-6)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)), rel=1e-3)


def ratio(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, unit="x")


def test_the_table_has_both_ratios_and_their_ratio() -> None:
    rows = [
        Row("bert", "one", ratio(1.1, 1.3), ratio(1.2, 1.4), ratio(0.8, 1.1), 0.5, base="below", launches=3),
        Row("gpt", "three", trouble="It crashed."),
    ]
    text = text_of(rows)
    ratios = "1.200x (1.100 to 1.300) | 1.300x (1.200 to 1.400) | 0.950x (0.800 to 1.100)"
    assert f"| bert | below | one | 3 | {ratios} | unknown |" in text
    assert "| gpt |  | three | It crashed. |" in text
    assert "for 0." in text
    assert "No setting was measured both ways." in text_of(rows[1:])


def test_everything_is_measured_on_top_of_a_lever() -> None:
    executor = Biased(script())
    found = by_setting(measure("bert", 2, executor, LEVERS, base="launched").rows)
    assert {it.base for it in found.values()} == {"launched"}
    assert found["half"].over.value == pytest.approx(20 / 13, rel=0.05)
    assert all(b"launched" in it for it in executor.requests if b"half" in it)


def test_rows_of_other_examples_stay(tmp_path: Path) -> None:
    kept = Row("gpt", "one", ratio(1.1, 1.3), ratio(1.2, 1.4), ratio(0.8, 1.1), 0.5, launches=3, machine="elsewhere")
    write(tmp_path / "out", title="", command="", text="", data=msgspec.to_builtins([kept]))
    assert earlier(tmp_path / "out") == [kept]
    assert earlier(tmp_path / "none") == []
    assert "- gpt: elsewhere." in text_of([kept])
