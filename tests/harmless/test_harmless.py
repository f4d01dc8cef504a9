"""The table of file operations: each has the same result in a trial as without, and changes nothing outside of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias, get_args

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from ahead import Ahead
from harmless import harness
from harmless.harness import MODES, Launched, Mode, Plain, Result, Trial
from harmless.operation import Group, Operation
from harmless.table import TABLE

LEAST_ROWS = 250
GROUPS = get_args(Group)

# Without protection the rows do harm, which shows that the table would detect it; `make test-all` runs that.
ALL_MODES = [pytest.param(it, marks=[pytest.mark.slow] if it == "none" else []) for it in MODES]
Launch: TypeAlias = Callable[[Group, Mode | None], Launched]


@pytest.fixture(scope="module")
def launch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """The rows of a group, launched once in each mode, or plainly for None. A kernel may forbid a mode: then skips."""
    unavailable = {mode: Trial(mode, tmp_path_factory.mktemp("probe")).unavailable() for mode in MODES}
    wanted = dict.fromkeys(
        it for item in request.session.items if item.path == request.path for it in launches_of(item)
    )
    arguments = {
        (group, mode): (group, mode, tmp_path_factory.mktemp("h"))
        for group, mode in wanted
        if mode is None or not unavailable[mode]
    }
    with Ahead(harness.launch_group, arguments) as found:

        def launched(group: Group, mode: Mode | None) -> Launched:
            if mode is not None and unavailable[mode]:
                pytest.skip(unavailable[mode])
            return found[group, mode]

        yield launched


def launches_of(test: pytest.Item) -> list[tuple[Group, Mode | None]]:
    """The modes of a test: each is compared with the plain launch."""
    given = test.callspec.params if hasattr(test, "callspec") else {}
    group = given["operation"].group if "operation" in given else given.get("group")
    return [(group, None), (group, given.get("mode"))] if group is not None else []


def result_of(launched: Launched, operation: Operation) -> Result:
    found = launched.results.get(operation.name)
    if found is None:
        pytest.fail(f"The row was not run. {launched.failure} {launched.output[-2000:]}")
    return found


def test_the_table_is_large_and_names_each_row_once() -> None:
    names = [it.name for it in TABLE]
    assert len(names) >= LEAST_ROWS
    assert len(set(names)) == len(names)


def described(operation: Operation) -> str:
    return operation.name.replace(" ", "-")


@pytest.mark.parametrize("operation", TABLE, ids=described)
def test_without_hotlap(operation: Operation, launch: Launch) -> None:
    """Each row does what it says where nothing isolates it, or its result in a trial would prove nothing."""
    skip_what_is_missing(operation)
    assert not result_of(launch(operation.group, None), operation).error


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_rows_always_have_the_same_result(group: Group, launch: Launch, tmp_path: Path) -> None:
    again = harness.launch(Plain(), harness.operations_of(TABLE, group), tmp_path / "t")
    first = launch(group, None)
    different = [name for name, it in again.results.items() if not it.is_like(first.results[name])]
    assert different == []


@pytest.mark.parametrize("mode", ALL_MODES)
@pytest.mark.parametrize("operation", TABLE, ids=described)
def test_in_a_trial(operation: Operation, mode: Mode, launch: Launch) -> None:
    skip_what_is_missing(operation)
    plain = result_of(launch(operation.group, None), operation)
    trial = result_of(launch(operation.group, mode), operation)
    allowed = harness.expected(operation, mode)
    found = harness.verdict(plain, trial)
    assert found in allowed, f"{found}, expected {sorted(allowed)}: plainly {plain}, in a trial {trial}"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("mode", ALL_MODES)
def test_nothing_else_is_changed(group: Group, mode: Mode, launch: Launch) -> None:
    """Outside of the rows' own folders, such as by the trial itself; and the launch ends as a script does."""
    if not harness.operations_of(TABLE, group):
        pytest.skip("none of its packages is installed")
    launched = launch(group, mode)
    assert launched.changed == ()
    assert launched.failure == ""


def skip_what_is_missing(operation: Operation) -> None:
    missing = operation.missing()
    if missing is not None:
        pytest.skip(f"{missing} is not installed")
