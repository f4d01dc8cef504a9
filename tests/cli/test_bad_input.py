"""Bad input: one sentence on what happened, one on what to do, the right exit code, no traceback, nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import fakes
import pytest
from fake_executor import FakeExecutor

from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.errors import BudgetError
from hotlap.experiment.options import Options
from hotlap.records import Study, Workload
from hotlap.study import create_study


def no_search(*anything: object) -> Study:
    raise AssertionError("the search began although the input is bad")


ENGINE = Engine(
    executor=lambda directory, isolation: FakeExecutor(), search=no_search, lab=no_search, profile=no_search
)


def complaint(words: list[str], capsys: pytest.CaptureFixture[str], engine: Engine = ENGINE) -> tuple[int, str]:
    """Run a command that fails; check the form of its error and return it."""
    code = main(words, engine=engine)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    what, remedy = err.rstrip("\n").split("\n")
    assert what.startswith("hotlap: ")
    assert remedy.startswith("        ") and remedy.rstrip().endswith((".", "?"))
    return code, err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tune"], "No script was given."),
        (["tune", "-m"], "No script was given."),
        (["tune", "nope.py"], "There is no script 'nope.py'"),
        (["tune", "."], "is a folder without a __main__.py."),
        (["tune", "-m", "no_such_package.train"], "There is no module 'no_such_package.train'."),
        (["tune", "python", "-Z", "train.py"], "does not support the option '-Z' of Python."),
        (["tune", "python", "-c", "train()"], "`python -c` has no script."),
        (["tune", "--budget", "10x", "train.py"], "--budget: '10x' is not a time"),
        (["tune", "--budget", "0", "train.py"], "--budget: '0' is not a time above zero"),
        (["tune", "--budget"], "expected one argument"),
        (["tune", "--delta", "200%", "train.py"], "--delta: '200%' is not a share"),
        (["tune", "--seed", "x", "train.py"], "--seed: 'x' is not a whole number"),
        (["tune", "--parity-steps", "0", "train.py"], "'0' is not a whole number of at least 1"),
        (["tune", "--bugdet", "3m", "train.py"], "Did you mean '--budget'?"),
        (["tune", "--bugdet=3m", "train.py"], "There is no option '--bugdet'"),
        (["tune", "--only", "lodaer", "train.py"], "Did you mean 'loader'?"),
        (["tune", "--skip", "zzz", "train.py"], "'zzz', which is not a lever."),
        (["tune", "--allow", "compil", "train.py"], "Did you mean 'compile'?"),
        (["profile"], "No script was given."),
        (["profile", "nope.py"], "There is no script 'nope.py'"),
        (["profile", "--only", "loader", "train.py"], "There is no option '--only'"),
        (["profile", "--budget", "10x", "train.py"], "--budget: '10x' is not a time"),
        (["findings", "small-mixed-precision-gian"], "Did you mean 'small-mixed-precision-gain'?"),
        (["findings", "zzz"], "There is no rule named 'zzz'."),
        (["tune", "--resume"], "There is no study under"),
        (["tune", "--resume", "train.py"], "'train.py' is not the folder of a study."),
        (["tune", "--resume", "--seed", "3"], "--seed cannot be given with --resume."),
        (["run", "--plan", "none.toml", "train.py"], "The plan none.toml cannot be read"),
        (["report"], "There is no study under"),
        (["report", "nowhere"], "There is no study under nowhere."),
        (["levers", "lodaer"], "Did you mean 'loader'?"),
        (["levers", "a", "b"], "Unrecognized arguments: b."),
        (["tunee", "train.py"], "Did you mean 'tune'?"),
        (["train.py"], "Did you mean `hotlap tune train.py`?"),
    ],
)
def test_bad_arguments_are_refused(work: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, err = complaint(words, capsys)
    assert code == 2
    assert said in err
    assert not (work / ".hotlap").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[levers.loader]\nnum_workers = 'many'\n", "loader.num_workers is 'many'"),
        ("[levers.loader]\nwrokers = 4\n", "no key 'wrokers'"),
        ("[levers.lodaer]\nworkers = 4\n", "no lever named 'lodaer'"),
        ("[hotlap]\nformat = 99\n", "format 99"),
        ("levers = [\n", "not valid TOML"),
        ("[lever.loader]\n", "Unknown table 'lever'"),
    ],
)
def test_a_plan_edited_by_hand(work: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    (work / "hotlap.toml").write_text(text, encoding="utf-8")
    code, err = complaint(["run", "train.py"], capsys)
    assert code == 2
    assert said in err


def test_run_without_a_script(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "hotlap.toml").write_text("[hotlap]\nformat = 1\n", encoding="utf-8")
    assert complaint(["run"], capsys)[0] == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_study_folder_that_may_not_be_written(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "locked").mkdir(mode=0o500)
    assert complaint(["tune", "--study", "locked", "train.py"], capsys)[0] == 2


def test_a_study_folder_that_is_a_file(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = complaint(["tune", "--study", "train.py", "train.py"], capsys)
    assert code == 2
    assert "The study" in err
    assert (work / "train.py").read_text(encoding="utf-8") == "print('training')\n"


def test_a_study_locked_by_another_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload(kind="script", target="train.py", directory=str(work), python="python")
    with create_study(work / ".hotlap", workload, Options()):
        code, err = complaint(["tune", "--resume"], capsys)
    assert code == 2
    assert "in use by another run" in err


def test_a_damaged_study(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = Workload(kind="script", target="train.py", directory=str(work), python="python")
    with create_study(work / ".hotlap", workload, Options()) as journal:
        (journal.directory / "study.json").write_text("{", encoding="utf-8")
    code, err = complaint(["report"], capsys)
    assert code == 2
    assert "damaged" in err


def test_a_budget_that_is_too_small(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def search(*anything: object) -> Study:
        what = "The budget of 1 s is too small for a single comparison."
        raise BudgetError(what, remedy="Give at least 60s.", needed_seconds=60.0)

    engine = Engine(executor=lambda directory, isolation: FakeExecutor(), search=search)
    code, err = complaint(["tune", "--quiet", "--budget", "1s", "train.py"], capsys, engine)
    assert code == 2
    assert "too small" in err


def test_an_unwritable_plan_loses_no_results(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def search(*anything: object) -> Study:
        return fakes.FINISHED

    engine = Engine(executor=lambda directory, isolation: FakeExecutor(), search=search)
    assert main(["tune", "--quiet", "--plan-out", "no/such/folder.toml", "train.py"], engine=engine) == 2
    out, err = capsys.readouterr()
    assert "3.65x faster" in out
    assert "hotlap report --plan-out" in err
    assert err.count("\n") == 2


def test_the_demo_without_its_data_set(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    code, err = complaint(["demo"], capsys)
    assert code == 2
    assert "scikit-learn" in err
