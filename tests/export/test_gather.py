"""What an export finds in a study's folder."""

from __future__ import annotations

from pathlib import Path

import fakes
import msgspec
import pytest

from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.export.gather import gather
from hotlap.records import Plan, Replicate, Run, Setting, Study
from hotlap.study import TurnAnswer, create_study, load_study

OTHER = Plan(settings=(Setting(lever="loader"),))


def turns(*plans: Plan, seconds: float = 1.0) -> Replicate:
    runs = tuple(Run(plan=plan, wall_seconds=seconds) for plan in plans)
    return Replicate(runs=runs, rounds=((0.1,),) * len(runs))


def kept(root: Path, *replicates: Replicate, study: Study = fakes.FINISHED) -> Study:
    """A study on disk whose journal holds these replicates."""
    with create_study(root, study.workload, Options()) as journal:
        for number, answer in enumerate(replicates):
            journal.append(TurnAnswer(key="k", ordinal=number, elapsed_seconds=1.0, answer=answer))
        journal.save(msgspec.structs.replace(study, identifier=journal.header.identifier))
        return load_study(journal.directory)


def test_the_verification_is_the_last_comparison_with_the_script(tmp_path: Path) -> None:
    plan = fakes.FINISHED.plan
    first, last = turns(Plan(), Plan(), plan), turns(Plan(), Plan(), plan, seconds=2.0)
    found = gather(kept(tmp_path, first, turns(Plan(), Plan(), OTHER), last, turns(OTHER, OTHER, plan)))
    assert len(found.replicates) == 4
    assert (found.baseline, found.planned) == (last.runs[0], last.runs[2])


def test_without_verification_the_first_run_is_the_baseline(tmp_path: Path) -> None:
    study = msgspec.structs.replace(fakes.INTERRUPTED, baseline=Run(wall_seconds=3.0))
    found = gather(kept(tmp_path, turns(Plan(), Plan(), study.plan), study=study))
    assert (found.baseline, found.planned) == (study.baseline, None)
    assert len(found.replicates) == 1


def test_a_study_that_is_a_file_alone() -> None:
    found = gather(fakes.FINISHED)
    assert (found.replicates, found.planned) == ((), None)


def test_a_damaged_journal_is_an_error(tmp_path: Path) -> None:
    study = kept(tmp_path, turns(Plan(), Plan(), fakes.FINISHED.plan))
    journal = Path(study.directory) / "journal.jsonl"
    journal.write_text(journal.read_text(encoding="utf-8").replace('"k"', "17"), encoding="utf-8")
    with journal.open("a", encoding="utf-8") as file:
        file.write("{}\n")
    with pytest.raises(StudyError, match="damaged"):
        gather(study)
