"""The command line as a user sees it: output, files and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import fakes
import msgspec
import pytest
from fake_executor import FakeExecutor

from hotlap import plan
from hotlap.api import Engine, OnProgress
from hotlap.cli.main import COMMANDS, main
from hotlap.cli.page import _command
from hotlap.errors import BudgetError, HotlapError, ScriptError
from hotlap.experiment.options import Options
from hotlap.objective import for_memory
from hotlap.records import Crashed, Isolation, Machine, Objective, Progress, Run, Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor

Search = Callable[[Workload, Options, Journal, Executor, OnProgress], Study]


class Recorder:
    """A search that returns a finished study and records its arguments."""

    def __init__(self, answer: Study) -> None:
        self.answer = answer
        self.workload: Workload | None = None
        self.options: Options | None = None

    def __call__(
        self, workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress
    ) -> Study:
        self.workload, self.options = workload, options
        tell(Progress(stage="baseline", text="unmodified script", spent_seconds=1.0))
        study = msgspec.structs.replace(self.answer, workload=workload, identifier=journal.header.identifier)
        journal.save(study)
        return study


def engine(search: Search) -> Engine:
    return Engine(executor=lambda directory, isolation: FakeExecutor(), search=search, lab=search, profile=search)


def test_tune_prints_the_report_and_writes_plan_and_study(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = Recorder(fakes.FINISHED)
    assert main(["tune", "train.py", "--epochs", "1"], engine=engine(search)) == 0
    out, err = capsys.readouterr()
    assert "3.65x faster (95 % interval 3.58 to 3.72)" in out
    assert "hotlap run --plan hotlap.toml train.py --epochs 1" in out
    assert "running the unmodified script" in err
    assert plan.read(work / "hotlap.toml") == fakes.FINISHED.plan
    assert main(["report"]) == 0
    assert "3.65x faster" in capsys.readouterr().out


def test_arguments_after_the_script_belong_to_the_script(work: Path) -> None:
    search = Recorder(fakes.FINISHED)
    own = ["--budget", "10m", "--only", "loader,compile", "--delta=2%", "--seed", "7", "--quiet"]
    its = ["--budget", "3", "-m", "x", "--", "--json", "--help", "--debug"]
    assert main(["tune", *own, "train.py", *its], engine=engine(search)) == 0
    assert search.workload is not None and search.options is not None
    assert search.workload == Workload(
        kind="script", target="train.py", arguments=tuple(its), directory=str(work), python=sys.executable
    )
    repeated = ("--only", "loader,compile", "--delta=2%", "--seed", "7")
    expected = Options(budget_seconds=600.0, only=("loader", "compile"), delta=0.02, seed=7, repeated=repeated)
    assert search.options == expected


@pytest.mark.parametrize(
    ("words", "kind", "target", "arguments"),
    [
        (["train.py", "-m"], "script", "train.py", ("-m",)),
        (["-m", "train", "--lr", "3e-4"], "module", "train", ("--lr", "3e-4")),
        (["torchrun", "--nproc-per-node", "2", "train.py"], "module", "torch.distributed.run",
         ("--nproc-per-node", "2", "train.py")),
        (["--", "train.py", "a"], "script", "train.py", ("a",)),
        (["python", "train.py", "a"], "script", "train.py", ("a",)),
        (["python3", "-m", "train"], "module", "train", ()),
    ],
)  # fmt: skip
def test_forms_of_a_workload(work: Path, words: list[str], kind: str, target: str, arguments: tuple[str, ...]) -> None:
    search = Recorder(fakes.FINISHED)
    assert main(["tune", "--quiet", *words], engine=engine(search)) == 0
    found = search.workload
    assert found is not None
    assert (found.kind, found.target, found.arguments) == (kind, target, arguments)


def test_json_is_one_document_on_standard_output(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--json", "train.py"], engine=engine(Recorder(fakes.FINISHED))) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Study)
    assert found.plan == fakes.FINISHED.plan
    assert Path(found.directory).is_dir()
    assert main(["report", "--json", found.directory]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "finished"


def test_quiet_prints_only_the_report(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--quiet", "train.py"], engine=engine(Recorder(fakes.FINISHED))) == 0
    assert capsys.readouterr().err == ""


def test_no_gain_exits_with_zero_and_writes_no_plan(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "train.py"], engine=engine(Recorder(fakes.NOTHING))) == 0
    assert "No lever is shown to make it faster with the same results." in capsys.readouterr().out
    assert not (work / "hotlap.toml").exists()


def test_an_interrupted_search_prints_its_results(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "train.py"], engine=engine(Recorder(fakes.INTERRUPTED))) == 130
    out = capsys.readouterr().out
    assert "Interrupted with 2 min 13 s of trials done: loader 1.91x" in out
    assert "hotlap tune --resume" in out


def test_ctrl_c_during_a_search_still_prints_the_report(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def search(workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress) -> Study:
        journal.save(msgspec.structs.replace(fakes.INTERRUPTED, status="running", workload=workload))
        raise KeyboardInterrupt

    assert main(["tune", "train.py"], engine=engine(search)) == 130
    assert "Interrupted with 2 min 13 s of trials done: loader 1.91x" in capsys.readouterr().out
    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "interrupted"


def test_resume_uses_the_original_options(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = ["tune", "--quiet", "--seed", "7", "--only", "loader", "train.py", "--epochs", "1"]
    assert main(began, engine=engine(Recorder(fakes.INTERRUPTED))) == 130
    search = Recorder(fakes.FINISHED)
    assert main(["tune", "--resume", "--quiet"], engine=engine(search)) == 0
    assert search.workload is not None and search.workload.arguments == ("--epochs", "1")
    assert search.options == Options(seed=7, only=("loader",), repeated=("--seed", "7", "--only", "loader"))
    capsys.readouterr()
    folder = next((work / ".hotlap").iterdir())
    assert main(["tune", "--resume", "--quiet", str(folder)], engine=engine(search)) == 0
    assert "3.65x faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "objective"),
    [
        (["--goal", "memory"], for_memory()),
        (["--goal", "memory", "--slowdown", "1.3x"], for_memory(1.3)),
        (["--goal", "speed"], Objective()),
    ],
)
def test_the_goal_is_passed_to_the_search(words: list[str], objective: Objective, work: Path) -> None:
    search = Recorder(fakes.FINISHED)
    assert main(["tune", "--quiet", *words, "train.py"], engine=engine(search)) == 0
    assert search.options is not None and search.options.objective == objective
    page = _command(msgspec.structs.replace(fakes.FINISHED, directory=str(work / "study")), search.options)
    assert ("--goal memory" in page) is (objective != Objective())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--slowdown", "1.3"], "no effect when the goal is speed"),
        (["--goal", "memory", "--slowdown", "0.9"], "not a number of at least 1"),
        (["--goal", "memory", "--slowdown", "nan"], "not a number of at least 1"),
        (["--goal", "beauty"], "invalid choice: 'beauty'"),
        (["--resume", "--goal", "memory"], "--goal cannot be given with --resume"),
    ],
)
def test_an_invalid_goal_is_refused(
    words: list[str], said: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = [] if "--resume" in words else ["train.py"]
    assert main(["tune", *words, *rest], engine=engine(Recorder(fakes.FINISHED))) == 2
    assert said in capsys.readouterr().err


def test_a_failing_script_gives_its_exit_code_and_last_output(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def search(workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress) -> Study:
        ending = Crashed(exit_code=3, error="ValueError: [red]no", output_tail="loading\x1b[2J\nValueError: [red]no\n")
        study = Study(workload=workload, status="script-failed", baseline=Run(ending=ending))
        journal.save(study)
        raise ScriptError("The script failed: ValueError: [red]no", remedy="Make it run first.", exit_code=3)

    assert main(["tune", "--quiet", "train.py"], engine=engine(search)) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "  | loading\n  | ValueError: [red]no\n"
        "hotlap: The script failed: ValueError: [red]no\n        Make it run first.\n"
    )
    assert main(["tune", "--quiet", "--json", "train.py"], engine=engine(search)) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "script-failed"


def test_a_script_killed_by_a_signal_gives_the_shell_exit_code(work: Path) -> None:
    killed = msgspec.structs.replace(fakes.SCRIPT_FAILED, baseline=Run(ending=Crashed(exit_code=-9)))
    assert main(["tune", "--quiet", "train.py"], engine=engine(Recorder(killed))) == 137


def test_a_screening_result_claims_nothing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A budget that was too small gives its own exit code and no plan."""
    search = Recorder(fakes.QUICK_LOOK)
    assert main(["tune", "--quiet", "--budget", "4m", "train.py"], engine=engine(search)) == 4
    out = capsys.readouterr().out
    assert "Quick look, nothing proved: loader 1.84x in one replicate, without an interval." in out
    assert "hotlap tune --budget 9m train.py" in out
    assert not (work / "hotlap.toml").exists()
    for words in (["patch"], ["report", "--plan-out", "a.toml"]):
        assert main(words) == 2
        assert "kept no lever" in capsys.readouterr().err


def test_a_requested_screening_result_exits_with_zero(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = Recorder(msgspec.structs.replace(fakes.QUICK_LOOK, quick=True))
    assert main(["tune", "--quiet", "--quick", "--json", "train.py"], engine=engine(search)) == 0
    assert search.options == Options(quick=True, budget_seconds=120.0)
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["needed_seconds"], found["plan"]["settings"]) == ("quick-look", 540.0, [])
    assert found["outcomes"][0]["verdict"]["type"] == "seen"
    assert main(["tune", "--quiet", "--quick", "--budget", "5m", "train.py"], engine=engine(search)) == 0
    assert search.options == Options(quick=True, budget_seconds=300.0)


def test_debug_shows_the_traceback(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def search(workload: Workload, options: Options, journal: Journal, executor: Executor, tell: OnProgress) -> Study:
        raise BudgetError("The budget is too small.", remedy="Give more.", needed_seconds=9.0)

    assert main(["tune", "train.py", "--debug"], engine=engine(search)) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["tune", "--debug", "train.py"], engine=engine(search)) == 2
    assert "Traceback" in capsys.readouterr().err


def test_lab_is_reported_but_cannot_be_resumed_as_a_search(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--quiet", "train.py"], engine=engine(Recorder(fakes.FINISHED))) == 0
    assert not (work / "hotlap.toml").exists()
    capsys.readouterr()
    assert main(["report"]) == 0
    assert "3.65x faster" in capsys.readouterr().out
    assert main(["tune", "--resume"], engine=engine(Recorder(fakes.FINISHED))) == 2


def test_profile_names_causes_and_writes_no_plan(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = Recorder(fakes.PROFILED)
    assert main(["profile", "--budget", "1m", "--seed", "7", "train.py", "--epochs", "1"], engine=engine(search)) == 0
    out, err = capsys.readouterr()
    assert out.startswith("hotlap  train.py --epochs 1  48 s\n\n2 causes of lost time were found")
    assert "A step of 212 ms waits 101 ms for its batch (train.py:12)." in out
    assert "hotlap tune --only channels-last,loader,sdpa-attention train.py --epochs 1" in out
    assert "running the unmodified script" in err
    assert search.options == Options(budget_seconds=60.0, seed=7, repeated=("--seed", "7"))
    assert not (work / "hotlap.toml").exists()
    assert main(["report"]) == 0
    assert capsys.readouterr().out == out
    assert main(["tune", "--resume"], engine=engine(search)) == 2


def test_profile_as_json_carries_the_findings(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--json", "--quiet", "train.py"], engine=engine(Recorder(fakes.PROFILED))) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["kind"], found["profiled_steps"]) == ("profile", 40)
    assert [it["rule"] for it in found["findings"]] == ["loader-bound", "eager-attention", "close-to-limit"]
    first = found["findings"][0]
    assert first["share"] == {"value": 0.48, "low": 0.46, "high": 0.5, "unit": "of the step"}
    assert (first["site"]["file"], first["site"]["line"], first["kind"]) == ("train.py", 12, "cost")
    assert first["levers"] == ["loader"] and first["remedy"] and first["evidence"]
    assert msgspec.json.decode(out, type=Study).findings == fakes.PROFILED.findings


def test_an_interrupted_profile_exits_with_130(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted = msgspec.structs.replace(fakes.PROFILED, status="interrupted", findings=(), profiled_steps=0)
    assert main(["profile", "--quiet", "train.py"], engine=engine(Recorder(interrupted))) == 130
    out = capsys.readouterr().out
    assert "Not finished" in out and "hotlap profile train.py" in out
    assert "tune --resume" not in out


def test_report_writes_a_plan_on_demand(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--quiet", "train.py"], engine=engine(Recorder(fakes.FINISHED))) == 0
    assert main(["report", "--plan-out", "again.toml"]) == 0
    assert plan.read(work / "again.toml") == fakes.FINISHED.plan
    assert "hotlap run --plan again.toml" in capsys.readouterr().out


def test_report_measures_nothing(work: Path) -> None:
    assert main(["tune", "--quiet", "train.py"], engine=engine(Recorder(fakes.FINISHED))) == 0

    def executor(directory: Path, isolation: Isolation) -> Executor:
        raise AssertionError("report asked for an executor")

    assert main(["report"], engine=Engine(executor=executor)) == 0


def test_doctor(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"], engine=engine(Recorder(fakes.FINISHED))) == 0
    short = capsys.readouterr().out
    assert "AMD EPYC 7742" in short and "hotlap doctor --full" in short
    assert len(short.splitlines()) <= 24
    assert main(["doctor", "--full"], engine=engine(Recorder(fakes.FINISHED))) == 0
    assert "Rates measured here" in capsys.readouterr().out
    assert main(["doctor", "--json"], engine=engine(Recorder(fakes.FINISHED))) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["cores"] == 16
    assert document["isolation"]["mode"] == "namespaces"
    assert document["isolation"]["shared_folders"] == ["~/.cache"]
    assert list(work.glob(".hotlap-doctor-*")) == []


def test_doctor_names_the_isolation_of_a_machine_that_has_none(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Refusing(FakeExecutor):
        def __init__(self, isolation: Isolation) -> None:
            super().__init__()
            self.isolation = isolation

        def machine(self) -> Machine:
            if not self.isolation.unprotected:
                raise HotlapError("Trials cannot be isolated on this machine.", remedy="Give up.")
            return fakes.UNPROTECTED

    def executor(directory: Path, isolation: Isolation) -> Refusing:
        return Refusing(isolation)

    assert main(["doctor"], engine=Engine(executor=executor)) == 0
    assert "Cannot isolate trials: they are refused" in " ".join(capsys.readouterr().out.split())
    assert main(["doctor", "--full"], engine=Engine(executor=executor)) == 0
    out = capsys.readouterr().out
    assert "Isolation of trials" in out and "trials are refused" in " ".join(out.split())


def test_levers_lists_every_lever_and_shows_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    from hotlap.levers.api import all_levers, inference_levers, levers_of_any_work

    assert set(levers_of_any_work()) == {*all_levers(), *inference_levers()}
    assert main(["levers"]) == 0
    listed = capsys.readouterr().out
    for name in levers_of_any_work():
        assert f"\n{name} " in listed
        assert main(["levers", name]) == 0
        assert capsys.readouterr().out.startswith(name)


def test_findings_lists_every_rule_and_shows_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    from hotlap.diagnose.api import all_rules

    assert main(["findings"]) == 0
    listed = capsys.readouterr().out
    for name, rule in all_rules().items():
        assert f"\n  {name} " in listed
        assert main(["findings", name]) == 0
        page = capsys.readouterr().out
        assert page.startswith(name)
        assert f"\n  group                   {rule.group}\n" in page
        assert all(f"\n{section}\n" in page for section in ("What it is", "Why it is slow", "How to see it"))
        assert all(f"\n{section}\n" in page for section in ("What to do", "When it is fine"))


def test_demo_tunes_the_bundled_workload(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = work / "digits.py"
    script.write_text("", encoding="utf-8")
    monkeypatch.setattr("hotlap.cli.demo.WORKLOAD", script)
    search = Recorder(fakes.FINISHED)
    assert main(["demo"], engine=engine(search)) == 0
    assert search.workload is not None and search.workload.target == str(script)
    assert search.options is not None and "cached-samples" in search.options.only
    assert not (work / "hotlap.toml").exists()
    assert plan.read(work / ".hotlap" / "demo.toml") == fakes.FINISHED.plan


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    overview = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == overview
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: hotlap {name}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import hotlap

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hotlap {hotlap.__version__}\n"


def test_levers_that_are_named_one_by_one_are_all_tried(work: Path) -> None:
    search = Recorder(fakes.FINISHED)
    named = ["--only", "loader", "--only", "compile,loader", "--skip", "huge-pages", "--skip=compile"]
    assert main(["tune", "--quiet", *named, "train.py"], engine=engine(search)) == 0
    assert search.options is not None
    assert search.options.only == ("loader", "compile") and search.options.skip == ("huge-pages", "compile")
    assert search.options.repeated == tuple(named)
