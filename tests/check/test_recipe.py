"""The GitHub Actions workflow in the documentation: it parses, and what it calls exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from hotlap.cli.check import parser
from hotlap.cli.main import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "ci.md"


def workflows() -> list[dict[str, Any]]:
    """That with the action of this repository, and that without it."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [it for it in map(yaml.safe_load, blocks) if "hotlap check" in str(it) or "/hotlap@" in str(it)]


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    _, plain = workflows()
    return plain


def test_the_action_is_given_inputs_that_it_has() -> None:
    with_action, _ = workflows()
    (step,) = (it for it in steps(with_action) if "/hotlap@" in it.get("uses", ""))
    action = yaml.safe_load((PAGE.parents[2] / "action.yml").read_text(encoding="utf-8"))
    required = {name for name, it in action["inputs"].items() if it.get("required")}
    assert required <= set(step["with"]) <= set(action["inputs"])
    assert with_action["permissions"] == {"contents": "read", "pull-requests": "write"}
    test_its_history_is_whole(with_action)


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    (job,) = workflow["jobs"].values()
    assert job["runs-on"] and job["timeout-minutes"] > 0
    return list(job["steps"])


def test_the_workflow_is_one(workflow: dict[str, Any]) -> None:
    assert workflow[True] == "pull_request", "YAML reads `on` as true"  # type: ignore[index]
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/checkout@v4"))


def test_its_history_is_whole(workflow: dict[str, Any]) -> None:
    (checkout,) = (it for it in steps(workflow) if it.get("uses", "").startswith("actions/checkout"))
    assert checkout["with"]["fetch-depth"] == 0


def test_its_command_exists(workflow: dict[str, Any]) -> None:
    (step,) = (it for it in steps(workflow) if "hotlap check" in it.get("run", ""))
    words = shlex.split(step["run"])
    assert words[:2] == ["hotlap", "check"] and words[1] in COMMANDS
    made = parser()
    own, target = made.split(words[2:])
    choices = made.parse_args(own)
    assert target == ["train.py", "--epochs", "1"]
    assert (choices.baseline, choices.budget, choices.delta) == ("$BASELINE", 900, 0.1)
    assert choices.budget / 60 < workflow["jobs"]["check"]["timeout-minutes"]
    assert str(choices.markdown) == "$GITHUB_STEP_SUMMARY"
    (upload,) = (it for it in steps(workflow) if it.get("uses", "").startswith("actions/upload"))
    assert upload["with"]["path"] == str(choices.junit) and upload["if"] == "always()"


def test_no_name_of_a_branch_reaches_the_shell(workflow: dict[str, Any]) -> None:
    """``${{ }}`` in a script is pasted into it, whatever the branch's name holds."""
    for step in steps(workflow):
        assert "${{" not in step.get("run", "")
    (step,) = (it for it in steps(workflow) if "env" in it)
    assert step["env"] == {"BASELINE": "origin/${{ github.base_ref }}"}


def test_the_exit_codes_are_those_of_the_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    said = {int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    assert said == {0, 1, 2, 3}
    assert f"`--delta` ({100 * parser().get_default('delta'):.0f} %)" in text
