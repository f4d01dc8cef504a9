"""First launches on a busy machine: rounds differ by far more than usual, and no lever is dropped for that."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from fake_findings import each_answered_by
from fake_levers import lever
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, outcomes, switchable

from hotlap.diagnose.shares import at_most
from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.measure.speed import compare_within_launch
from hotlap.plan import EMPTY, setting
from hotlap.procedures.screen import Screened, is_hopeful
from hotlap.procedures.search import tune
from hotlap.records import Comparison, NoGain, Replicate, Setting, Study, TurnRequest

EFFECTS = {setting("half"): Effect(compute=0.6), setting("step"): Effect(optimizer=0.1)}
LEVERS = tuple(map(switchable, ("half", "step", "odd", "slower")))

SLOWER_BY_CHANCE, FASTER_BY_CHANCE = (1.3, 0.9, 1.15, 0.85), (0.8, 1.25, 0.75, 1.1)
FAR_SLOWER_BY_CHANCE = tuple(1.2 * it for it in SLOWER_BY_CHANCE)
"""More than such a lever gains."""

ALIKE = (1.06, 1.05, 1.07, 1.05)


class Busy(Counting):
    """In the first launches that switch, or that do not, the rounds of these levers take so many times as long as they
    would."""

    def __init__(
        self,
        disturbed: Mapping[str, Sequence[float]],
        effects: Mapping[Setting, Effect] = EFFECTS,
        *,
        launches: int = 1,
        that_switch: bool = True,
    ) -> None:
        super().__init__(FakeScript(effects=effects, optimizer=0.004, **QUIET))
        self._disturbed = disturbed
        self._launches = launches
        self._that_switch = that_switch
        self._at_turn: list[set[str]] = []

    def take_turns(self, request: TurnRequest) -> Replicate:
        earlier = sum(it.one_launch == self._that_switch for it in self.replicates)
        is_busy = request.one_launch == self._that_switch and earlier < self._launches
        self._at_turn = [{it.lever for it in arm.plan.settings} for arm in request.arms] if is_busy else []
        return super().take_turns(request)

    def rows(
        self, noise: random.Random, levels: Sequence[float], rounds: int, *, one_launch: bool
    ) -> list[list[float]]:
        found = super().rows(noise, levels, rounds, one_launch=one_launch)
        for names, row in zip(self._at_turn, found, strict=False):
            for factors in (it for name, it in self._disturbed.items() if name in names):
                row[:] = [it * factors[number % len(factors)] for number, it in enumerate(row)]
        return found


def search(executor: Busy, levers: Sequence[Lever] = LEVERS) -> tuple[Study, list[set[str]]]:
    """The study, and the levers of each launch that switches."""
    study = tune(WORKLOAD, Options(), executor, levers={it.name: it for it in levers}, clock=executor.clock)
    shared = [it for it in executor.replicates if it.one_launch]
    return study, [{one.lever for arm in it.arms for one in arm.plan.settings} for it in shared]


def screened(seconds: Sequence[float]) -> Screened:
    own = [1.0] * len(seconds)
    speed = compare_within_launch(own, own, seconds)
    comparison = Comparison(baseline=EMPTY, candidate=EMPTY, speed=speed, within_launch=True)
    return Screened(setting("step"), speed.speedup.value, comparison=comparison)


def test_a_loss_is_clear_only_where_rounds_agree_on_it() -> None:
    assert is_hopeful(screened(SLOWER_BY_CHANCE), 0.01, noise=0.03)
    assert not is_hopeful(screened(ALIKE), 0.01, noise=0.03)
    assert is_hopeful(screened((1.01, 1.011, 1.01, 1.009)), 0.01, noise=0.03), "launches may differ by the noise"


def test_what_answers_a_finding_and_was_slower_by_chance_is_part_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    each_answered_by(monkeypatch, (("half",), at_most(0.3)), (("step",), at_most(0.13)))
    study, launches = search(Busy({"step": FAR_SLOWER_BY_CHANCE, "slower": ALIKE}))
    assert launches[:2] == [{"half", "step", "odd", "slower"}, {"half", "step"}]
    assert chosen(study) == {"half", "step"}


@pytest.mark.parametrize(("share", "takes_part"), [(0.13, True), (0.005, False)])
def test_a_finding_that_costs_too_little_is_no_reason_for_longer_rounds(
    monkeypatch: pytest.MonkeyPatch, share: float, takes_part: bool
) -> None:
    each_answered_by(monkeypatch, (("half",), at_most(0.3)), (("odd",), at_most(share)))
    study, launches = search(Busy({"odd": SLOWER_BY_CHANCE}))
    assert ("odd" in launches[1]) == takes_part
    assert chosen(study) == {"half", "step"}


def test_what_looks_faster_by_chance_is_not_combined_with_what_is_shown() -> None:
    study, launches = search(Busy({"odd": FASTER_BY_CHANCE}))
    assert all("odd" not in it for it in launches[1:])
    assert chosen(study) == {"half", "step"} and isinstance(outcomes(study)["odd"].verdict, NoGain)


@pytest.mark.parametrize("answers", [("step",), ("half",), ()])
def test_of_what_answers_a_finding_one_standard_error_is_enough(
    monkeypatch: pytest.MonkeyPatch, answers: Sequence[str]
) -> None:
    """It gains 7 %, and its rounds differ by 40 %: its interval within each launch contains 1."""
    each_answered_by(monkeypatch, *(((it,), at_most(0.1)) for it in answers))
    effects = {setting("half"): Effect(compute=0.6), setting("step"): Effect(data=0.93, compute=0.93, optimizer=0.93)}
    executor = Busy({"step": (1.2, 0.835)}, effects, launches=4)
    search(executor)
    (candidate,) = {it.arms[2].plan for it in executor.fresh()[:1]}
    assert {it.lever for it in candidate.settings} == {"half", *answers}


ONE_SLOWER, ANOTHER_SLOWER = (1.05, 0.85, 1.05, 0.95), (0.85, 1.05, 0.95, 1.05)
ONE_FASTER, ANOTHER_FASTER = tuple(0.88 * it for it in ONE_SLOWER), tuple(0.88 * it for it in ANOTHER_SLOWER)


@pytest.mark.parametrize(
    ("rounds", "are_combined"),
    [((SLOWER_BY_CHANCE, SLOWER_BY_CHANCE[::-1]), False), ((ONE_FASTER, ANOTHER_FASTER), True)],
)
def test_if_none_is_shown_those_are_combined_that_promise_more_than_noise(
    rounds: tuple[Sequence[float], Sequence[float]], are_combined: bool
) -> None:
    """The rounds of both differ by more than either seems to gain."""
    executor = Busy(dict(zip(("odd", "even"), rounds, strict=True)), {})
    _, launches = search(executor, [switchable("odd"), switchable("even"), switchable("third"), switchable("fourth")])
    assert ({"odd", "even"} in [it & {"odd", "even"} for it in launches[1:]]) == are_combined


def test_of_two_that_answer_one_finding_only_the_better_one_is_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    each_answered_by(monkeypatch, (("half", "odd"), at_most(0.3)))
    study, launches = search(Busy({"odd": SLOWER_BY_CHANCE}))
    assert all("odd" not in it for it in launches[1:])
    assert chosen(study) == {"half", "step"}


@pytest.mark.parametrize(("factors", "is_kept"), [((1.4, 0.95, 1.25, 0.95), True), ((1.2, 1.19, 1.21, 1.2), False)])
def test_a_lever_with_its_own_launch_is_not_dropped_for_rounds_that_differ(
    factors: Sequence[float], is_kept: bool
) -> None:
    """It gains 7 %, and looks slower in its first replicate: by chance, or in every round alike."""
    executor = Busy({"early": factors}, {setting("early"): Effect(compute=0.9)}, that_switch=False)
    study, _ = search(executor, [lever("early"), lever("late")])
    assert (chosen(study) == {"early"}) == is_kept
    reasons = {it.lever: it.verdict.reason for it in study.outcomes if isinstance(it.verdict, NoGain)}
    assert ("A first measurement" in reasons.get("early", "")) == (not is_kept)
