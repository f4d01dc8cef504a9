"""Where a step takes long, few steps fit into a budget."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_script import Effect, FakeScript
from test_together import QUIET, Counting, chosen, search, switchable

from hotlap.plan import setting
from hotlap.records import Study

SLOW = {"data": 0.01, "compute": 0.24, "optimizer": 0.02, "startup_seconds": 8.0}
FAST = {"data": 0.001, "compute": 0.014, "optimizer": 0.002, "startup_seconds": 8.0}


def searches(seconds: dict[str, float], budgets: range) -> Iterator[tuple[Study, Counting]]:
    """A search for a lever that gains, with each of these budgets."""
    for budget in budgets:
        script = FakeScript(effects={setting("half"): Effect(compute=0.6)}, **seconds, **QUIET)
        # By chance, copies of the script differ in one search of thirty; by these draws in none.
        yield search(script, switchable("half"), budget_seconds=float(budget), seed=1)


@pytest.mark.parametrize("seconds", [SLOW, FAST])
def test_only_long_blocks_are_as_few_as_three_where_no_more_fit(seconds: dict[str, float]) -> None:
    """Three blocks of eight slow steps measure for longer than five usual ones.

    Where two copies of the script differed by chance, which takes eight replicates to find, five more are measured.
    """
    rounds: set[int] = set()
    for study, executor in searches(seconds, range(140, 700, 20)):
        if study.verification is not None:
            rounds |= {it.rounds for it in executor.fresh()}
            once_more = any("second time" in it for it in study.verification.speed.remarks)
            assert chosen(study) == {"half"} and len(executor.fresh()) == (8 + 5 if once_more else 5)
    assert (min(rounds) == 3) == (seconds is SLOW) and max(rounds) >= 8
