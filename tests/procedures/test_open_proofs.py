"""Where the results of some levers cannot be verified, the others are kept at once, and the report says why."""

from __future__ import annotations

from collections.abc import Sequence

from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, kept, outcomes, proof_runs, search, switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import LaunchRequest, NotVerified, Run, Study

FASTER = {
    setting("half"): Effect(compute=0.5, loss=1.002),
    setting("step"): Effect(optimizer=0.2),
    setting("feed"): Effect(data=0.05),
}


def not_verified(study: Study, name: str) -> NotVerified:
    verdict = outcomes(study)[name].verdict
    assert isinstance(verdict, NotVerified), verdict
    return verdict


def test_an_exact_lever_is_kept_at_once_where_the_noise_hides_what_another_changes() -> None:
    script = FakeScript(effects=FASTER, nudge=0.03, **QUIET)
    study, executor = search(script, switchable("half"), lever("feed", proof="exact"))
    assert chosen(study) == {"feed"}
    verdict = not_verified(study, "half")
    assert "rounding alone changes the losses" in verdict.reason and "--accept-unverified" in verdict.reason
    assert verdict.comparison is not None and verdict.comparison.within_launch
    assert len(proof_runs(executor)) == 5
    assert [it.arms[2].plan for it in executor.fresh()] == [study.plan] * 5, "no lever had a trial of its own"
    assert study.status == "finished"


def test_a_lever_that_changes_less_is_verified_next_to_one_that_the_noise_hides() -> None:
    script = FakeScript(effects=FASTER, nudge=0.03, optimizer=0.004, **QUIET)
    study, executor = search(script, switchable("half"), switchable("step"), lever("feed", proof="exact"))
    assert chosen(study) == {"step", "feed"}
    not_verified(study, "half")
    assert kept(study, "step").comparison.quality is not None
    assert len(executor.fresh()) == 5


class Grouped(Counting):
    """Keeps the levers of launches that start together."""

    def __init__(self, script: FakeScript) -> None:
        super().__init__(script)
        self.groups: list[list[set[str]]] = []

    def launch_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        self.groups.append([{it.lever for it in one.assignment.plan.settings} for one in requests])
        return super().launch_together(requests)


def test_several_levers_that_the_noise_may_hide_are_proved_by_themselves_at_the_same_time() -> None:
    names = ("half", "step", "more")
    effects = {setting(name): Effect(compute=0.8, optimizer=0.5, loss=1.002) for name in names}
    script = FakeScript(effects={**effects, setting("feed"): Effect(data=0.05)}, nudge=0.03, optimizer=0.004, **QUIET)
    executor = Grouped(script)
    levers = named(*map(switchable, names), lever("feed", proof="exact"))
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == {"feed"}
    for name in names:
        not_verified(study, name)
    of_pairs = [it for it in executor.groups if it and all(len(one) == 2 for one in it)]
    assert [sorted(map(sorted, it)) for it in of_pairs] == [[["feed", "half"], ["feed", "more"], ["feed", "step"]]]
    assert len(proof_runs(executor)) == 5 + 3


def test_where_the_script_allows_no_proof_none_is_tried_lever_by_lever() -> None:
    script = FakeScript(effects=FASTER, optimizer=0.004, reads_loss=False, **QUIET)
    study, executor = search(script, switchable("half"), switchable("step"))
    assert not chosen(study)
    for name in ("half", "step"):
        assert "Not verified" in not_verified(study, name).reason
    assert len(proof_runs(executor)) == 5 and not executor.fresh()


def test_levers_that_need_no_proof_of_their_own_share_the_answer_that_none_is_possible() -> None:
    effects = {setting("feed"): Effect(data=0.05), setting("more"): Effect(compute=0.5)}
    levers = (lever("feed", proof="exact"), lever("more", proof="exact"))
    study, executor = search(FakeScript(effects=effects, reads_loss=False, **QUIET), *levers)
    assert not chosen(study)
    for name in ("feed", "more"):
        assert "Not verified" in not_verified(study, name).reason
    assert len(executor.fresh()) == 5


def test_with_accept_unverified_all_are_kept() -> None:
    script = FakeScript(effects=FASTER, nudge=0.03, **QUIET)
    levers = (switchable("half"), lever("feed", proof="exact"))
    study, _ = search(script, *levers, accept_unverified=True)
    assert chosen(study) == {"half", "feed"}
    assert "without proof" in kept(study, "half").reason
