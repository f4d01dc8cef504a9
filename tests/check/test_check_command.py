"""``hotlap check`` from its command line to its answer, exit code and files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import fakes
import msgspec
import pytest
from fake_script import Effect
from json_documents import assert_valid
from pair import Pair

from hotlap import api
from hotlap.api import Engine
from hotlap.cli.check import parser
from hotlap.cli.main import main
from hotlap.history import history_of
from hotlap.records import Check, Isolation, NumbersCheck, SpeedCheck, Workload
from hotlap.render.check_files import check_junit, check_markdown

Commit = Callable[..., str]
QUICK = ["check", "--quiet", "--baseline", "HEAD~1"]


class Folders:
    """Return the same executor for every folder, and record the folders."""

    def __init__(self, executor: Pair) -> None:
        self.executor = executor
        self.seen: list[Path] = []
        self.isolations: list[Isolation] = []

    def __call__(self, directory: Path, isolation: Isolation) -> Pair:
        assert directory.is_dir()
        self.seen.append(directory)
        self.isolations.append(isolation)
        return self.executor


@pytest.fixture(autouse=True)
def project(repository: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    commit(train_dot_py="old")
    commit(train_dot_py="new")
    return repository


def run(executor: Pair, *words: str) -> int:
    folders = Folders(executor)
    code = main(list(words), engine=Engine(executor=folders))
    assert not any(it.exists() for it in folders.seen), "nothing is left behind"
    return code


def test_trials_are_isolated_as_requested() -> None:
    folders = Folders(Pair())
    words = [*QUICK, "--network", "none", "--unprotected", "train.py"]
    assert main(words, engine=Engine(executor=folders)) == 0
    assert folders.isolations == [Isolation(network="none", unprotected=True)]


def test_passing(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    assert run(Pair(), *QUICK, "--full", "train.py", "--epochs", "1") == 0
    out, err = capsys.readouterr()
    assert err == ""
    page = " ".join(out.split())
    for piece in (
        "hotlap check train.py --epochs 1",
        "Passed.",
        "speed passed Not slower than at HEAD~1 by 5 % or more",
        "numbers passed The losses of 300 steps are identical to the last bit.",
        "version at HEAD~1 (",
        "both without a plan.",
        "Run-to-run noise is",
    ):
        assert piece in page
    assert sorted(it.name for it in project.iterdir()) == [".git", ".hotlap", "train.py"]
    assert [it.name for it in (project / ".hotlap").iterdir()] == ["check"]


@pytest.mark.parametrize(("now", "word"), [(Effect(), "Passed"), (Effect(compute=1.3), "Failed")])
def test_the_answer_fits_a_screen(
    now: Effect, word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run(Pair(now), *QUICK, "train.py", "--epochs", "1")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith("hotlap check  train.py --epochs 1") and lines[2] == f"{word}."
    assert lines[-1].startswith("  hotlap report --full .hotlap/check/")


def test_both_versions_are_what_they_were() -> None:
    executor = Pair()
    seen: dict[str, str] = {}
    asked = executor._marked

    def look(arm):
        checkout = arm.workload.checkout
        seen[checkout.revision] = Path(arm.workload.directory, arm.workload.target).read_text()
        return asked(arm)

    executor._marked = look
    assert run(executor, *QUICK, "train.py") == 0
    assert sorted(seen.values()) == ["new", "old"] and seen[""] == "new"


@pytest.mark.parametrize(
    ("now", "more", "code"),
    [
        (Effect(), [], 0),
        (Effect(compute=1.3), [], 1),
        (Effect(loss=1.02), [], 1),
        (Effect(loss=1.02), ["--speed-only"], 0),
        (Effect(fails="crash"), [], 1),
        (Effect(compute=1.3), ["--delta", "40%"], 0),
    ],
)
def test_exit_codes(now: Effect, more: list[str], code: int) -> None:
    assert run(Pair(now), *QUICK, *more, "train.py") == code


def test_an_open_answer_has_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for more, code in (([], 3), (["--inconclusive-is", "pass"], 0), (["--inconclusive-is=fail"], 1)):
        assert run(Pair(launch_noise=0.3, seed=1), *QUICK, *more, "train.py") == code
        assert "Inconclusive." in capsys.readouterr().out


def test_a_budget_that_is_too_small_is_no_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """How long a check takes depends on how busy the machine is: an unchanged script must not fail for that."""
    for more, code in (([], 3), (["--inconclusive-is", "pass"], 0), (["--inconclusive-is", "fail"], 1)):
        assert run(Pair(), *QUICK, "--budget", "20s", *more, "train.py") == code
        page = " ".join(capsys.readouterr().out.split())
        assert "the budget of 20 s is too small for a check, which takes about" in page
        assert "Give at least --budget" in page


def test_checks_stand_in_the_history(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    assert run(Pair(), *QUICK, "train.py") == 0
    assert run(Pair(Effect(compute=1.3)), *QUICK, "train.py") == 1
    assert run(Pair(), *QUICK, "--budget", "20s", "train.py") == 3
    capsys.readouterr()
    assert main(["history"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "check passed, " in page and "check failed, 0." in page and "check inconclusive train.py" in page
    assert "Speedup of each plan" not in page, "a check tries no plan"
    first, second, third = history_of(project / ".hotlap").entries
    assert [it.check for it in (first, second, third)] == ["passed", "failed", "inconclusive"]
    assert (first.quality, first.status, third.speedup) == ("exact", "finished", None)
    assert main(["report", first.directory]) == 0
    assert "hotlap check: passed. Not slower than at HEAD~1" in " ".join(capsys.readouterr().out.split())
    kept = msgspec.json.decode((Path(second.directory) / "check.json").read_bytes(), type=Check)
    assert kept.verdict == "failed" and kept.speed.phases


def test_a_check_is_never_taken_for_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Pair(), *QUICK, "train.py") == 0
    for words in (["report"], ["patch"], ["tune", "--resume"]):
        assert main(words) == 2
    assert "There is no study under .hotlap" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_fails_nothing(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / ".hotlap").write_text("a file")
    assert run(Pair(), *QUICK, "train.py") == 0
    assert "`hotlap history` does not show it" in capsys.readouterr().out


def test_an_interrupted_check_says_so_in_the_history(project: Path) -> None:
    from fake_script import Interrupt

    executor = Pair()
    executor._interrupt = Interrupt(3, KeyboardInterrupt)
    assert run(executor, *QUICK, "train.py") == 130
    (entry,) = history_of(project / ".hotlap").entries
    assert (entry.status, entry.check) == ("interrupted", None)


def test_bad_words(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "folder").mkdir()
    for words, says in (
        ([], "No script was given."),
        (["--baseline", "nowhere", "train.py"], "no git revision 'nowhere'"),
        (["train.py"], "nothing to compare with"),
        (["--baseline", "HEAD", "--delta", "0", "train.py"], "is not a share"),
        (["--baseline", "HEAD", "--junit", "folder", "train.py"], "not a writable file"),
        (["--baseline", "HEAD", "--markdown", "no/where.md", "train.py"], "not a writable file"),
        (["--inconclusive-is", "maybe", "train.py"], "invalid choice"),
    ):
        assert run(Pair(), "check", *words) == 2
        assert says in capsys.readouterr().err


def test_ctrl_c_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    from fake_script import Interrupt

    for call in (1, 2, 4):
        executor = Pair()
        executor._interrupt = Interrupt(call, KeyboardInterrupt)
        assert run(executor, *QUICK, "train.py") == 130


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Pair(Effect(compute=1.3)), *QUICK, "--json", "train.py") == 1
    out = capsys.readouterr().out
    found = msgspec.json.decode(out, type=Check)
    assert (found.verdict, found.workload.target, found.against.name) == ("failed", "train.py", "HEAD~1")
    assert found.workload.checkout is None, "what was asked for, not the copy it ran in"
    assert_valid(json.loads(out))
    assert json.loads(out)["speed"]["comparison"]["speedup"]["high"] < 1


def test_against_a_plan(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    api.write_plan(fakes.FINISHED, project / "hotlap.toml")
    assert run(Pair(), "check", "--quiet", "train.py") == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "Compared: the script with and without the plan of hotlap.toml." in page
    assert "recorded on AMD EPYC 7742, 16 cores, NVIDIA A10" in page


def test_progress_goes_next_to_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Pair(), "check", "--baseline", "HEAD", "train.py") == 0
    out, err = capsys.readouterr()
    assert "trying, replicate 3 of 3" in err and "comparing numbers" in err
    assert "trying" not in out


# -- files ------------------------------------------------------------------------------------------


def test_markdown_is_appended(project: Path) -> None:
    path = project / "summary.md"
    path.write_text("# before\n\n")
    for now in (Effect(), Effect(compute=1.3)):
        run(Pair(now), *QUICK, "--markdown", str(path), "train.py")
    text = path.read_text()
    assert text.startswith("# before\n\n### hotlap check: passed\n")
    assert "\n\n### hotlap check: failed\n" in text
    assert "| speed | **failed** | Slower than at HEAD\\~1: 0\\.8" in text or "| speed | **failed** |" in text


def parts(path: Path) -> dict[str, str]:
    """Each test of the suite with its outcome."""
    suite = ElementTree.parse(path).getroot()[0]
    return {it.attrib["name"]: it[0].tag if len(it) else "passed" for it in suite.iter("testcase")}


def test_junit(project: Path) -> None:
    path = project / "hotlap.xml"
    noisy = {"launch_noise": 0.3, "seed": 1}
    for executor, more, expected in (
        (Pair(), [], {"speed": "passed", "numbers": "passed"}),
        (Pair(Effect(compute=1.3)), [], {"speed": "failure", "numbers": "passed"}),
        (Pair(Effect(loss=1.02)), [], {"speed": "passed", "numbers": "failure"}),
        (Pair(), ["--speed-only"], {"speed": "passed", "numbers": "skipped"}),
        (Pair(**noisy), [], {"speed": "error", "numbers": "passed"}),
        (Pair(**noisy), ["--inconclusive-is", "pass"], {"speed": "skipped", "numbers": "passed"}),
        (Pair(**noisy), ["--inconclusive-is", "fail"], {"speed": "failure", "numbers": "passed"}),
    ):
        run(executor, *QUICK, *more, "--junit", str(path), "train.py")
        assert parts(path) == expected


def hostile(project: Path) -> Check:
    workload = Workload(
        kind="script", target=fakes.HOSTILE_TEXT, arguments=("]]>", "|", "**"), directory=str(project), python="python"
    )
    from pair import REVISION

    bad = f"{fakes.HOSTILE_TEXT}\0\x0b\ufffe<script>alert(1)</script>|`x`](http://x)&amp;"
    return Check(
        verdict="failed",
        text=bad,
        workload=workload,
        against=msgspec.structs.replace(REVISION, name=bad, plan_name=bad),
        speed=SpeedCheck(verdict="failed", text=bad, limit=0.95),
        numbers=NumbersCheck(verdict="inconclusive", text=bad),
        delta=0.05,
        machine=bad,
        warnings=(bad,),
    )


def test_foreign_text_stays_text(project: Path) -> None:
    found = hostile(project)
    text = check_junit(found, inconclusive_is="inconclusive")
    root = ElementTree.fromstring(text)
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("2", "1", "1")
    assert "<script>" not in text and "\x1b" not in text and "\0" not in text
    (failure,) = root.iter("failure")
    assert "<script>alert(1)</script>" in failure.attrib["message"]
    markdown = check_markdown(found)
    assert "<script>" not in markdown and "](http" not in markdown and "\x1b" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert len(rows) == 3
    for row in rows[1:]:
        assert row.replace("\\|", "").count("|") == 4, "a bar in a cell is not a border"


def test_the_suite_has_what_readers_of_junit_need(project: Path) -> None:
    """As in the schema that Jenkins publishes: attributes, their types, and the order of elements."""
    root = ElementTree.fromstring(check_junit(hostile(project), inconclusive_is="failed"))
    assert root.tag == "testsuites"
    (suite,) = root
    assert {"name", "tests", "failures", "errors", "skipped", "time"} <= set(suite.attrib)
    assert [it.tag for it in suite] == ["testcase", "testcase", "system-out"]
    for case in suite.iter("testcase"):
        assert {"name", "classname", "time"} <= set(case.attrib)
        assert float(case.attrib["time"]) >= 0
        assert all(it.tag in ("failure", "error", "skipped") and it.attrib["message"] for it in case)


def test_the_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == 0
    text = capsys.readouterr().out
    for piece in ("0 passed", "1 slower", "3 inconclusive", "2 for bad usage"):
        assert piece in text
    assert parser().get_default("delta") == 0.05
