"""Hunts on real launches: planted causes are found at their line, and sound scripts have no findings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.errors import ScriptError
from hotlap.procedures.numbers_hunt import HuntOptions, hunt
from hotlap.records import Completed, NumberOrigin, NumbersHunt, Workload
from hotlap.trial.local import LocalExecutor

SCRIPT = Path(__file__).with_name("spoilt.py")
LINES = SCRIPT.read_text(encoding="utf-8").split("\n")
AT = 12


def hunted(folder: Path, cause: str, *launcher: str, **options: object) -> NumbersHunt:
    workload = Workload(
        kind="module" if launcher else "script",
        target=launcher[0] if launcher else str(SCRIPT),
        arguments=(*launcher[1:], *((str(SCRIPT),) if launcher else ()), "--cause", cause, "--at", str(AT)),
        directory=str(folder),
        python=sys.executable,
    )
    return hunt(workload, HuntOptions(**options), LocalExecutor(folder / "runs"))  # type: ignore[arg-type]


def origin(found: NumbersHunt) -> NumberOrigin:
    assert found.repeated is not None
    assert found.repeated.origin is not None
    return found.repeated.origin


def line(mark: str) -> int:
    (number,) = [index + 1 for index, text in enumerate(LINES) if text.endswith(f"  # {mark}")]
    return number


def test_a_logarithm(tmp_path: Path) -> None:
    found = hunted(tmp_path, "log")
    assert found.noticed is not None
    assert (found.noticed.step, found.noticed.noticed_in, found.finite_steps) == (AT, "loss", AT)
    it = origin(found)
    assert (it.operation, it.phase, it.module, it.step) == ("log", "forward", "3 (Spoil)", AT)
    assert it.site is not None
    assert (it.site.file, it.site.line) == (str(SCRIPT), line("log"))
    assert it.outputs[0].nan == 8 * 16
    assert found.checked_from == AT - 2
    assert not found.compiled


def test_a_sound_script(tmp_path: Path) -> None:
    found = hunted(tmp_path, "none")
    assert (found.noticed, found.repeated, found.finite_steps, found.losses_read) == (None, None, 30, 30)
    assert isinstance(found.ending, Completed)


@pytest.mark.slow
def test_a_scaler_that_skips_and_half_precision(tmp_path: Path) -> None:
    found = hunted(tmp_path, "scaler")
    assert found.noticed is None
    assert 5 < found.finite_steps < 30, "the first updates were left out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "noticed_in", "phase", "operation"),
    [
        ("gradient", "gradients", "backward", "div"),
        ("rate", "weights", "optimizer", ""),
        ("vector-loss", "gradients", "forward", "log"),
        ("half", "loss", "forward", ""),
    ],
)
def test_other_places(cause: str, noticed_in: str, phase: str, operation: str, tmp_path: Path) -> None:
    found = hunted(tmp_path, cause)
    assert found.noticed is not None and found.noticed.noticed_in == noticed_in
    it = origin(found)
    assert it.phase == phase
    assert operation in it.operation
    assert it.site is not None and it.site.line == line("log" if cause == "vector-loss" else cause)
    if cause == "half":
        assert it.outputs[0].dtype == "float16"


@pytest.mark.slow
def test_a_worker_that_delivers_nan(tmp_path: Path) -> None:
    it = origin(hunted(tmp_path, "worker"))
    assert (it.source, it.name, it.step) == ("batch", "Samples", AT)
    assert (it.outputs[0].nan, it.outputs[0].rows) == (1, (3,))


@pytest.mark.slow
def test_data_that_was_damaged_before_the_first_step(tmp_path: Path) -> None:
    """The check from shortly before the step finds only that the data is bad; the one from the first line finds why."""
    found = hunted(tmp_path, "setup")
    assert found.noticed is not None and found.noticed.step == AT
    assert found.checked_from == 0
    it = origin(found)
    assert (it.operation, it.phase) == ("div", "setup")
    assert it.site is not None and it.site.line == line("setup")


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["leaves", "raises"])
def test_a_script_that_ends_by_itself_because_of_nan(cause: str, tmp_path: Path) -> None:
    found = hunted(tmp_path, cause)
    assert found.noticed is not None
    assert (found.noticed.noticed_in, found.noticed.step) == ("script", AT)
    it = origin(found)
    assert it.operation == "log"
    assert it.site is not None and it.site.line == line("log")


@pytest.mark.slow
def test_weights_that_are_updated_by_hand(tmp_path: Path) -> None:
    found = hunted(tmp_path, "by-hand")
    assert found.noticed is not None and found.noticed.step == AT + 1
    it = origin(found)
    # Without an optimizer a step ends with its backward, so what the script then does is the next one's.
    assert (it.step, it.phase, it.arguments) == (AT + 1, "other", ("other=inf",))
    assert it.site is not None and it.site.line == line("by-hand")


@pytest.mark.slow
def test_a_compiled_model_is_checked_without_its_compiler(tmp_path: Path) -> None:
    found = hunted(tmp_path, "compiled")
    assert found.compiled
    it = origin(found)
    assert it.operation == "log"
    assert it.site is not None and it.site.line == line("log")


@pytest.mark.slow
def test_chance_is_distinguished_from_what_repeats_itself(tmp_path: Path) -> None:
    """Whatever the outcome, nothing is claimed that a run did not show."""
    found = hunted(tmp_path, "chance")
    assert found.noticed is not None
    assert found.repeated is None or origin(found).operation == "div"


@pytest.mark.slow
def test_one_of_several_processes(tmp_path: Path) -> None:
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29571")
    found = hunted(tmp_path, "log", *launcher)
    assert found.noticed is not None and found.noticed.step == AT
    assert origin(found).operation == "log"


@pytest.mark.slow
def test_a_script_that_fails_otherwise(tmp_path: Path) -> None:
    workload = Workload(kind="script", target="broken.py", directory=str(tmp_path), python=sys.executable)
    (tmp_path / "broken.py").write_text("import torch\nraise ValueError('no data')\n", encoding="utf-8")
    with pytest.raises(ScriptError, match="ValueError: no data") as caught:
        hunt(workload, HuntOptions(), LocalExecutor(tmp_path / "runs"))
    assert caught.value.exit_code == 1
