"""Profile the script with as many threads as cores are free, if other processes do not pause.

Threads that share one operator wait for the slowest of them. If one of them has no core, each operator takes as long as
a time slice of the other program, whatever it computes: then neither the step time nor its parts are the script's. With
a core for each thread they are those of the script on a smaller machine. Only a profile does this: in a search arms
take turns, so that other processes disturb all of them alike.
"""

from __future__ import annotations

import math

from hotlap.diagnose.wording import count
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import ran_through
from hotlap.experiment.observe import first_run
from hotlap.experiment.trials import Trials
from hotlap.levers.support.situations import make_setting
from hotlap.records import Disturbance, Plan, Run

_ALMOST_FREE = 0.75
"""A core with this share unused counts as free: the load was measured while the script's own threads competed."""


def plan_for(threads: int) -> Plan:
    """Changes only the number of threads."""
    return Plan(settings=(make_setting("cpu-threads", threads=threads),))


def with_threads_that_fit(
    trials: Trials, draft: StudyDraft, run: Run, disturbed: Disturbance
) -> tuple[Run, Disturbance | None]:
    """Repeat the first run with one thread per free core, and use as many threads for all later launches of ``trials``.

    Returns the given run if it starts no more threads than that, if there is no time, and if its threads wait for a
    core even so.
    """
    threads = max(1, math.floor(disturbed.cores - disturbed.other_load + 1 - _ALMOST_FREE))
    cost_seconds = run.startup_seconds + sum(run.steps.wall_seconds)
    if threads >= run.facts.threads or run.facts.processes > 1 or not trials.fits(cost_seconds):
        return run, disturbed
    draft.report("baseline", f"The script with {count(threads, 'thread')}: other processes use the remaining cores")
    trials.own_plan = plan_for(threads)
    again = first_run(trials)
    calm = ran_through(again) and again.steps.wall_seconds and trials.disturbance("account", [again]) is None
    if not calm:
        trials.own_plan = Plan()
        return run, disturbed
    draft.update(threads_left=threads)
    draft.warn(
        f"Other processes kept {disturbed.other_load:.1f} of {disturbed.cores} cores busy and did not pause, so "
        "the script was "
        f"measured with {count(threads, 'thread')} instead of {run.facts.threads}. On a quiet machine its steps may be "
        "shorter, and their shares different."
    )
    return again, None
