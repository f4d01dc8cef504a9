"""The public surface: small, and changed only on purpose."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import hotlap
from hotlap.errors import StudyError
from hotlap.records import Workload
from hotlap.study import create_study
from hotlap.tune.options import Options


def test_the_surface_is_what_it_is() -> None:
    named = {"HotlapError", "Plan", "Study", "__version__", "apply", "load_study", "profile", "tune"}
    assert set(hotlap.__all__) == named
    assert dir(hotlap) == sorted(hotlap.__all__)
    for name in hotlap.__all__:
        assert getattr(hotlap, name) is not None


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'diagnosis'"):
        hotlap.diagnosis  # noqa: B018


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        ("apply", ["path"]),
        ("load_study", ["path"]),
        (
            "profile",
            ["script", "arguments", "module", "budget_seconds", "seed", "batch_sizes", "network", "unprotected",
             "directory", "on_progress"],
        ),
        (
            "tune",
            ["script", "arguments", "module", "budget_seconds", "only", "skip", "allow", "accept_unverified", "delta",
             "seed", "parity_steps", "network", "unprotected", "directory", "plan_path", "on_progress"],
        ),
    ],
)  # fmt: skip
def test_signatures(function: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(hotlap, function)).parameters) == parameters


def test_tune_stays_the_function_although_a_room_has_its_name() -> None:
    """Importing ``hotlap.tune.options`` (above) sets the attribute ``tune`` of the package, were it not kept."""
    assert inspect.isfunction(hotlap.tune)
    assert Options.__module__ == "hotlap.tune.options"


def test_load_study(tmp_path: Path) -> None:
    with pytest.raises(hotlap.HotlapError, match="no study"):
        hotlap.load_study(tmp_path)
    workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python="python")
    with create_study(tmp_path, workload, Options()) as journal:
        pass
    found = hotlap.load_study(tmp_path)
    assert isinstance(found, hotlap.Study)
    assert (found.identifier, found.workload, found.plan) == (journal.identifier, workload, hotlap.Plan())


def test_errors_have_one_root() -> None:
    assert issubclass(StudyError, hotlap.HotlapError)
