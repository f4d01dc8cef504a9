"""``hotlap tune`` with real trials and a real journal, but a search that takes one replicate after another.

``STORM_MODE`` is how trials are isolated. A new study goes on until it is ended; a resumed one measures one small
replicate that the journal does not hold.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.cli.main import main
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.records import Assignment, Isolation, Progress, Study, TurnRequest, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor

ARMS = 3
MOST_REPLICATES = 1000


def executor(directory: Path, isolation: Isolation) -> Executor:
    return api.local_executor(directory, msgspec.structs.replace(isolation, mode=os.environ["STORM_MODE"]))


def search(
    workload: Workload, options: Options, journal: Journal, inner: Executor, on_progress: api.OnProgress
) -> Study:
    measured = JournaledExecutor(inner, journal)
    arms = tuple(Assignment(workload=workload, seed=number) for number in range(ARMS))
    study = Study(identifier=journal.header.identifier, workload=workload, status="running")
    for number in range(len(journal.answers) + 1 if "--resume" in sys.argv else MOST_REPLICATES):
        if number == len(journal.answers) and "--resume" in sys.argv:
            arms = arms[:1]
        on_progress(Progress(stage="trial", text=f"set {number}"))
        request = TurnRequest(arms=arms, rounds=4, block_seconds=0.01, block_steps=2, order_seed=number)
        measured.take_turns([request])
        journal.save(study)
    return msgspec.structs.replace(study, status="complete")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], engine=api.Engine(executor=executor, search=search)))
