"""Two copies of the unmodified script that differ on fresh launches: nothing is claimed, and it is said why."""

from __future__ import annotations

import re

import msgspec
from fake_levers import lever
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, outcomes

from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.measure.speed import HEADLINE_REPLICATES
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.procedures.verify import MORE_REPLICATES
from hotlap.records import NoGain, Progress, Replicate, Study, TurnRequest
from hotlap.render.kinds.search import headline, next_commands

FEED = FakeScript(effects={setting("feed"): Effect(data=0.05)}, **QUIET)  # type: ignore[arg-type]


class Apart(Counting):
    """In the first ``count`` fresh replicates of a plan, the repeat takes 5 % longer than the unmodified script."""

    def __init__(self, script: FakeScript, count: int, seed: int = 0) -> None:
        super().__init__(script, seed)
        self.count = count

    def take_turns(self, request: TurnRequest) -> Replicate:
        found = super().take_turns(request)
        if request not in self.fresh() or len(self.fresh()) > self.count:
            return found
        longer = tuple(1.05 * it for it in found.rounds[1])
        return msgspec.structs.replace(found, rounds=(found.rounds[0], longer, *found.rounds[2:]))


def search(executor: Apart, *levers: Lever, **options: object) -> tuple[Study, list[str]]:
    texts: list[str] = []

    def listen(progress: Progress) -> None:
        texts.append(progress.text)

    known = {it.name: it for it in levers}
    options_given = Options(**options)  # type: ignore[arg-type]
    return tune(WORKLOAD, options_given, executor, listen, levers=known, clock=executor.clock), texts


ALL = HEADLINE_REPLICATES, MORE_REPLICATES.replicates


def test_it_is_measured_once_more_and_claimed_on_the_later_launches_only() -> None:
    executor = Apart(FEED, ALL[1])
    study, texts = search(executor, lever("feed", proof="exact"))
    assert len(executor.fresh()) == ALL[1] + ALL[0]
    assert chosen(study) == {"feed"} and study.status == "finished"
    assert study.verification is not None and study.verification.speed.replicates == ALL[0]
    assert study.verification.speed.baseline_agrees and study.verification.speed.verdict == "faster"
    (remark,) = study.verification.speed.remarks
    assert re.fullmatch(rf"Measured a second time.* first {ALL[1]} replicates.* differed: 0.9\d\dx \(0.9.*", remark)
    assert remark in headline(study).details
    assert any("once more" in it for it in texts)


def test_if_they_differ_again_the_plan_is_shown_as_disturbed_and_not_as_useless() -> None:
    executor = Apart(FEED, 2 * ALL[1])
    study, _ = search(executor, lever("feed", proof="exact"))
    assert len(executor.fresh()) == 2 * ALL[1], "it is measured twice at most"
    assert not study.plan.settings and study.status == "finished"
    verdict = outcomes(study)["feed"].verdict
    assert isinstance(verdict, NoGain) and "measured against itself" in verdict.reason
    found = headline(study)
    assert found.tone == "bad" and found.sentence.startswith("No claim: two copies of the unmodified script differed")
    assert found.details[0].startswith("The plan measured 1.2")
    assert [words for _, words in next_commands(study, "") if "quieter" in words]
    assert "again when the machine is quieter" in " ".join(found.details)


def test_without_time_for_that_it_is_shown_at_once() -> None:
    whole, _ = search(Apart(FEED, 0), lever("feed", proof="exact"))
    executor = Apart(FEED, 2 * ALL[1])
    study, _ = search(executor, lever("feed", proof="exact"), budget_seconds=whole.spent_seconds * 1.7)
    assert ALL[0] <= len(executor.fresh()) <= ALL[1]
    assert headline(study).sentence.startswith("No claim: two copies of the unmodified script differed")
    assert study.spent_seconds <= whole.spent_seconds * 1.7


def test_a_lever_that_is_kept_afterwards_is_what_the_study_shows() -> None:
    """What is left is tried one by one after it, and then what it was about once more; the plan of both is verified."""
    effects = {setting("feed"): Effect(data=0.05), setting("half"): Effect(compute=0.5)}
    script = FakeScript(effects=effects, **QUIET)  # type: ignore[arg-type]
    levers = lever("half", proof="exact"), lever("feed", proof="behaviour")
    executor = Apart(script, 2 * ALL[1])
    study, _ = search(executor, *levers, allow=("feed",))
    assert chosen(study) == {"half", "feed"} and study.verification is not None
    assert study.verification.candidate == study.plan and study.verification.speed.baseline_agrees
    assert headline(study).tone == "good"
