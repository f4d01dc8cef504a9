"""The GitHub Action and the release workflow: their shell runs here, with stand-ins for what reaches out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotlap.cli.check import parser

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
RELEASE: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {it["name"]: it for it in ACTION["runs"]["steps"]}
INPUTS = {"COMMAND": "train.py --epochs 1", "BASELINE": "", "DELTA": "10%", "BUDGET": "15m", "OPTIONS": "",
          "INCONCLUSIVE_IS": "pass", "BASE_REF": "main"}  # fmt: skip
ANSWER = "### hotlap check: passed\n"


class Runner:
    """A machine of GitHub's with programs of ours, which write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()

    def program(self, name: str, body: str) -> None:
        path = self.programs / name
        path.write_text(f'#!/bin/bash\nprintf "%s\\0" "$@" >> {self.folder}/{name}.called\n{body}\n', encoding="utf-8")
        path.chmod(0o755)

    def called(self, name: str) -> list[str]:
        path = self.folder / f"{name}.called"
        return path.read_text(encoding="utf-8").split("\0")[:-1] if path.exists() else []

    def run(self, step: str, **variables: str) -> int:
        environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            **variables,
        }
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", STEPS[step]["run"]]
        return subprocess.run(command, env=environment, cwd=self.folder, check=False).returncode

    def output(self) -> dict[str, str]:
        lines = (self.folder / "output").read_text(encoding="utf-8").splitlines()
        return dict(it.split("=", 1) for it in lines)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def answering(runner: Runner, code: int) -> None:
    """Let ``hotlap`` write its answer where it is asked to, and end with that code."""
    runner.program(
        "hotlap",
        f'while [ $# -gt 0 ]; do if [ "$1" = --markdown ]; then printf {shlex.quote(ANSWER)} > "$2"; fi; shift; done\n'
        f"exit {code}",
    )


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_answer_is_in_the_summary_and_the_code_is_passed_on(runner: Runner, code: int) -> None:
    answering(runner, code)
    assert runner.run("Check", **INPUTS) == 0, "the comment comes before the job fails"
    assert (runner.folder / "summary").read_text(encoding="utf-8") == ANSWER
    assert runner.output() == {"exit-code": str(code), "markdown": str(runner.folder / "hotlap-check.md")}
    assert runner.run("Answer", CODE=runner.output()["exit-code"]) == code


def test_hotlap_accepts_what_it_is_called_with(runner: Runner) -> None:
    answering(runner, 0)
    runner.run("Check", **INPUTS | {"OPTIONS": "--speed-only --plan 'a plan.toml'"})
    command, *words = runner.called("hotlap")
    own, target = parser().split(words)
    choices = parser().parse_args(own)
    assert command == "check" and target == ["train.py", "--epochs", "1"]
    assert (choices.baseline, choices.delta, choices.budget) == ("origin/main", 0.1, 900.0)
    assert choices.speed_only and choices.plan == Path("a plan.toml") and choices.inconclusive_is == "pass"


@pytest.mark.parametrize(
    ("given", "base", "expected"), [("v1.0", "main", "v1.0"), ("", "main", "origin/main"), ("", "", "HEAD~1")]
)
def test_the_baseline(runner: Runner, given: str, base: str, expected: str) -> None:
    answering(runner, 0)
    runner.run("Check", **INPUTS | {"BASELINE": given, "BASE_REF": base})
    words = runner.called("hotlap")
    assert words[words.index("--baseline") + 1] == expected


def test_inputs_are_words_and_never_a_program(runner: Runner) -> None:
    answering(runner, 0)
    bad = "train.py --name '$(touch hacked); `touch hacked`' * \"two words\""
    assert runner.run("Check", **INPUTS | {"COMMAND": bad, "BASE_REF": "a;touch hacked"}) == 0
    assert runner.called("hotlap")[-5:] == ["train.py", "--name", "$(touch hacked); `touch hacked`", "*", "two words"]
    assert not (runner.folder / "hacked").exists()


def test_a_check_without_an_answer_says_so(runner: Runner) -> None:
    runner.program("hotlap", "exit 2")
    assert runner.run("Check", **INPUTS) == 0
    assert "no answer (exit code 2)" in (runner.folder / "summary").read_text(encoding="utf-8")
    assert runner.output()["exit-code"] == "2"


@pytest.mark.parametrize(("own", "method"), [("", "POST"), ("7\n11", "PATCH")])
def test_one_comment_is_kept_up_to_date(runner: Runner, own: str, method: str) -> None:
    markdown = runner.folder / "answer.md"
    markdown.write_text(ANSWER + "x" * 100_000, encoding="utf-8")
    runner.program("gh", f'case "$*" in *--paginate*) printf {shlex.quote(own)};; esac')
    variables = {"GH_TOKEN": "t", "REPOSITORY": "a/b", "NUMBER": "5", "MARKDOWN": str(markdown)}
    assert runner.run("Comment", **variables) == 0
    words = runner.called("gh")
    assert method in words
    assert ("repos/a/b/issues/comments/11" if own else "repos/a/b/issues/5/comments") == words[-3]
    body = (runner.folder / "hotlap-comment.md").read_text(encoding="utf-8")
    assert body.startswith("<!-- hotlap check -->\n### hotlap check") and len(body) < 65_536


def test_hotlap_is_installed_from_the_revision_of_the_action(runner: Runner) -> None:
    runner.program("python", "true")
    assert runner.run("Install hotlap", HOTLAP_SOURCE="/a folder/hotlap") == 0
    assert runner.called("python")[-1] == "/a folder/hotlap[trials]"


def test_no_program_contains_an_expression() -> None:
    """GitHub would paste the text of a branch's name into it."""
    runs = [it["run"] for it in STEPS.values()]
    runs += [it["run"] for job in RELEASE["jobs"].values() for it in job["steps"] if "run" in it]
    assert len(runs) >= 8 and not [it for it in runs if "${{" in it]


def test_every_input_is_used_and_none_is_unknown() -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", yaml.safe_dump(ACTION["runs"])))
    assert used == set(ACTION["inputs"])


def test_the_release_has_few_permissions_and_pinned_actions() -> None:
    assert RELEASE["permissions"] == {}
    allowed = {
        "build": {"contents": "read"},
        "site": {"contents": "read"},
        "publish": {"id-token": "write"},
        "pages": {"pages": "write", "id-token": "write"},
    }
    assert {name: it["permissions"] for name, it in RELEASE["jobs"].items()} == allowed
    uses = [it["uses"] for job in RELEASE["jobs"].values() for it in job["steps"] if "uses" in it]
    assert uses and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", it) for it in uses)
    secret = yaml.safe_dump(RELEASE)
    assert "secrets." not in secret and "password" not in secret


@pytest.mark.parametrize(("tag", "code"), [("v0.1.0", 0), ("v9.9.9", 1)])
def test_a_tag_that_is_not_the_version_is_refused(tag: str, code: int) -> None:
    (step,) = (it for it in RELEASE["jobs"]["build"]["steps"] if it.get("name") == "The tag is the version")
    assert 'version = "0.1.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8"), "change the tags above"
    done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=ROOT, env={**os.environ, "TAG": tag}, check=False)
    assert done.returncode == code
