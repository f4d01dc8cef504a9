"""What ``--baseline`` means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import msgspec
import pytest

from hotlap import api
from hotlap.errors import HotlapError, UsageError
from hotlap.experiment.options import Options
from hotlap.gain import comparison_of_plan, recorded_gain
from hotlap.machine.label import machine_label
from hotlap.measure.cost import costs
from hotlap.procedures.check import find_against
from hotlap.records import Against, Machine, Plan, Study, StudyStatus, Workload
from hotlap.render.headline import headline
from hotlap.study import create_study

Commit = Callable[..., str]
STUDIES = Path(".hotlap")


@pytest.fixture
def work(repository: Path, commit: Commit) -> Workload:
    """A script in a repository with one commit."""
    commit(train_dot_py="old")
    return Workload(kind="script", target="train.py", directory=str(repository), python="python")


def keep(found: Study, work: Workload, root: Path = STUDIES) -> Path:
    """Write a study of that workload, as a search would leave it."""
    with create_study(root, work, Options()) as journal:
        journal.save(msgspec.structs.replace(found, workload=work, identifier=journal.header.identifier))
    return journal.directory


def ask(work: Workload, name: str | None = None, **more: Any) -> Against:
    return find_against(name, work, STUDIES, **more)


def test_a_revision(work: Workload, commit: Commit) -> None:
    second = commit(train_dot_py="new")
    for name in ("HEAD", "main", second, second[:8]):
        found = ask(work, name)
        assert (found.kind, found.name, found.commit, found.plan) == ("revision", name, second, Plan())


def test_a_revision_under_a_plan(work: Workload) -> None:
    api.write_plan(fakes.FINISHED, Path("hotlap.toml"))
    api.write_plan(msgspec.structs.replace(fakes.FINISHED, plan=Plan(settings=(fakes.FUSED,))), Path("other.toml"))
    assert ask(work, "HEAD").plan == fakes.FINISHED.plan
    assert ask(work, "HEAD").plan_name == "hotlap.toml"
    assert ask(work, "HEAD", plan_path=Path("other.toml")).plan.settings == (fakes.FUSED,)
    assert ask(work, "HEAD", without_plan=True).plan == Plan()
    with pytest.raises(UsageError, match="exclude each other"):
        ask(work, "HEAD", plan_path=Path("other.toml"), without_plan=True)
    with pytest.raises(HotlapError, match="cannot be read"):
        ask(work, "HEAD", plan_path=Path("none.toml"))


def test_a_plan_file_brings_its_gain(work: Workload) -> None:
    api.write_plan(fakes.FINISHED, Path("a.toml"))
    found = ask(work, "a.toml")
    assert (found.kind, found.plan) == ("plan", fakes.FINISHED.plan)
    assert found.recorded is not None
    assert found.recorded.speedup.value == pytest.approx(3.65)
    assert found.recorded.machine == machine_label(fakes.MACHINE) == "AMD EPYC 7742, 16 cores, NVIDIA A10"
    assert found.recorded.torch_version == "2.13.0"


def test_a_plan_that_was_edited_brings_none(work: Workload) -> None:
    api.write_plan(fakes.FINISHED, Path("a.toml"))
    text = Path("a.toml").read_text()
    Path("a.toml").write_text(text.replace("workers = 4", "workers = 8"))
    found = ask(work, "a.toml")
    assert found.recorded is None and dict(found.plan.settings[0].values)["num_workers"] == 8


@pytest.mark.parametrize(
    "head",
    ['gain = "much"', "gain = {speedup = 2.0}", "[hotlap.gain]\nplan = 3"],
)
def test_a_gain_that_makes_no_sense_is_reported(work: Workload, head: str) -> None:
    Path("a.toml").write_text(f"[hotlap]\nformat = 1\n{head}\n[levers.channels-last]\n")
    with pytest.raises(HotlapError, match="is invalid"):
        ask(work, "a.toml")


@pytest.mark.parametrize(
    "change", [("low = ", "low = -"), ("high = ", "high = inf # "), ("replicates = ", "replicates = 0 # ")]
)
def test_an_interval_that_is_none_is_reported(work: Workload, change: tuple[str, str]) -> None:
    api.write_plan(fakes.FINISHED, Path("a.toml"))
    Path("a.toml").write_text(Path("a.toml").read_text().replace(*change))
    with pytest.raises(HotlapError, match="its interval is none"):
        ask(work, "a.toml")


def test_a_study(work: Workload) -> None:
    directory = keep(fakes.FINISHED, work)
    for name in (str(directory), str(directory / "study.json"), ".hotlap"):
        found = ask(work, name)
        assert (found.kind, found.plan) == ("plan", fakes.FINISHED.plan) and found.recorded is not None
    empty = keep(fakes.NOTHING, work)
    with pytest.raises(UsageError, match="kept no lever"):
        ask(work, str(empty))


def test_by_default_the_last_finished_study_of_this_script(work: Workload) -> None:
    wanted = keep(fakes.FINISHED, work)
    keep(fakes.FINISHED, msgspec.structs.replace(work, target="other.py"))
    keep(fakes.INTERRUPTED, work)
    keep(fakes.NOTHING, work)
    broken = keep(fakes.FINISHED, work)
    (broken / "study.json").write_text("{")
    api.write_plan(fakes.FINISHED, Path("hotlap.toml"))
    assert ask(work).name == str(wanted)
    assert ask(msgspec.structs.replace(work, arguments=("--big",))).name == "hotlap.toml"


def test_by_default_without_a_study(work: Workload) -> None:
    with pytest.raises(UsageError, match="nothing to compare with"):
        ask(work)
    Path("hotlap.toml").write_text("[hotlap]\nformat = 1\n")
    with pytest.raises(UsageError, match="has no levers"):
        ask(work)


def test_a_name_that_means_two_things(work: Workload, commit: Commit) -> None:
    Path("main").mkdir()
    with pytest.raises(UsageError, match="both a file and a git revision"):
        ask(work, "main")
    assert ask(work, "refs/heads/main").kind == "revision"
    with pytest.raises(HotlapError, match="There is no study"):
        ask(work, "./main")


def test_names_that_mean_nothing(work: Workload) -> None:
    with pytest.raises(UsageError, match=r"No plan or study 'none\.toml'"):
        ask(work, "none.toml")
    with pytest.raises(UsageError, match="no git revision 'none'"):
        ask(work, "none")


def test_the_plans_options_need_a_revision(work: Workload) -> None:
    api.write_plan(fakes.FINISHED, Path("a.toml"))
    for more in ({"plan_path": Path("a.toml")}, {"without_plan": True}):
        with pytest.raises(UsageError, match="is the plan that is compared with no plan"):
            ask(work, "a.toml", **more)


def test_only_a_gain_that_was_shown_is_recorded() -> None:
    assert recorded_gain(fakes.FINISHED) is not None
    for found in (fakes.NOTHING, fakes.DISTURBED, fakes.NOT_CONFIRMED, fakes.INTERRUPTED):
        assert recorded_gain(found) is None


def cut_after_its_first_lever(status: StudyStatus) -> Study:
    """A search that kept a lever against the untouched script, and ended before it verified anything."""
    return msgspec.structs.replace(
        fakes.FINISHED,
        status=status,
        verification=None,
        account_after=None,
        plan=Plan(settings=(fakes.LOADER,)),
        outcomes=fakes.OUTCOMES[:1],
    )


@pytest.mark.parametrize("status", ["interrupted", "out-of-budget", "running"])
def test_a_gain_that_was_not_verified_is_no_promise(status: StudyStatus, tmp_path: Path) -> None:
    found = cut_after_its_first_lever(status)
    assert recorded_gain(found) is None and costs(found) is not None
    assert costs(found).seconds_per_sample_after is None
    assert "not verified" in headline(found).sentence
    api.write_plan(found, tmp_path / "a.toml")
    assert "gain" not in (tmp_path / "a.toml").read_text()


def test_a_plan_that_was_given_up_promises_nothing() -> None:
    assert recorded_gain(msgspec.structs.replace(fakes.FINISHED, plan=Plan())) is None


def test_a_comparison_of_the_whole_plan_is_its_verification() -> None:
    """As in the three-run lab."""
    kept = fakes.OUTCOMES[0]
    lab = msgspec.structs.replace(
        fakes.FINISHED, verification=None, plan=Plan(settings=(fakes.LOADER,)), outcomes=(kept, fakes.OUTCOMES[1])
    )
    assert comparison_of_plan(lab) is kept.verdict.comparison
    assert comparison_of_plan(msgspec.structs.replace(lab, plan=Plan(settings=(fakes.FUSED,)))) is None


def test_a_machine_in_one_line() -> None:
    assert machine_label(Machine()) == ""
    assert machine_label(Machine(processor="X", cores=1)) == "X, 1 core"
    two = msgspec.structs.replace(fakes.MACHINE, accelerators=fakes.MACHINE.accelerators * 2)
    assert machine_label(two) == "AMD EPYC 7742, 16 cores, 2x NVIDIA A10"
