"""A search says early how many launches are planned, revises that openly, and says what it came to."""

from __future__ import annotations

import re
from itertools import pairwise

from fake_levers import lever, named
from fake_script import Effect, FakeExecutor, FakeScript
from test_search import search

from hotlap.plan import setting
from hotlap.records import Progress

GOOD = FakeScript(effects={setting("half"): Effect(compute=0.5)})
PLANS = re.compile(r"(?:About|Now about) (\d+) launch(?:es)? in (\d+ (?:s|min)) are planned in all")


class Counting(FakeExecutor):
    """Count the launches that were really made."""

    made = 0

    def launch(self, request):
        self.made += 1
        return super().launch(request)

    def take_turns(self, request):
        self.made += 1 if request.one_launch else len(request.arms)
        return super().take_turns(request)


def listened(script: FakeScript | None = None, **more) -> tuple[list[Progress], FakeExecutor]:
    told: list[Progress] = []
    _, executor = search(script, listen=told.append, **more)
    return told, executor


def test_the_plan_is_said_after_the_first_launch_and_before_the_next() -> None:
    told, _ = listened(GOOD, levers=named(lever("half")))
    said = [it for it in told if PLANS.match(it.text)]
    assert said[0].launches == 1 and said[0].launches_planned > 20
    assert "for first measurements, then" in said[0].text and "to prove what looks faster are to come" in said[0].text
    before = told[: told.index(said[0])]
    assert before and not any(it.launches_planned for it in before)
    assert all(it.launches_planned and it.seconds_planned for it in told[told.index(said[0]) :])


def test_a_plan_changes_only_where_it_is_said() -> None:
    """Ten levers, of which most fail in ways that cost time, so that the first plan cannot be kept."""
    told, _ = listened()
    said = [it for it in told if PLANS.match(it.text)]
    assert len(said) >= 2 and all("instead of" in it.text for it in said[1:])
    plans = [it.launches_planned for it in told if it.launches_planned]
    changes = [new for old, new in pairwise(plans) if new != old]
    assert changes == [it.launches_planned for it in said[1:]]
    for it in said:
        found = PLANS.match(it.text)
        assert found is not None and int(found[1]) == it.launches_planned


def test_the_end_says_what_was_made(monkeypatch) -> None:
    monkeypatch.setattr("test_search.FakeExecutor", Counting)
    for script, levers in ((GOOD, named(lever("half"))), (FakeScript(), named(lever("idle")))):
        told, executor = listened(script, levers=levers)
        assert told[-1].stage == "end"
        assert told[-1].launches == executor.made
        assert told[-1].text.startswith(f"{executor.made} launches in ")
        assert f"; about {told[-1].launches_planned} launches in " in told[-1].text


def test_a_search_without_surprises_keeps_to_its_plan() -> None:
    told, _ = listened(GOOD, levers=named(lever("half")))
    last = told[-1]
    assert abs(last.launches - last.launches_planned) <= 0.2 * last.launches_planned
    assert abs(last.spent_seconds - last.seconds_planned) <= 0.3 * last.seconds_planned


def test_a_plan_is_never_longer_than_the_budget() -> None:
    for quick in (False, True):
        told, _ = listened(GOOD, levers=named(lever("half")), budget_seconds=200.0, quick=quick)
        planned = [it.seconds_planned for it in told if it.launches_planned]
        assert planned and max(planned) <= 200.0


def test_a_quick_look_plans_no_proof() -> None:
    told, _ = listened(GOOD, levers=named(lever("half")), budget_seconds=200.0, quick=True)
    said = [it.text for it in told if PLANS.match(it.text)]
    assert said and not any("to prove" in it for it in said)
