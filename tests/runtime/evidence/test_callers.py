"""The origin of a call: the user's line, torch on its behalf, or hotlap itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest
import torch

from hotlap import runtime
from hotlap.runtime import call_sites
from hotlap.runtime.evidence.callers import Caller, Callers

RUNTIME = Path(runtime.__file__).parent
TORCH = Path(torch.__file__).parent


def called_through(*files: Path | str) -> Caller | None:
    """The caller that is found if functions of these files are, in this order, between us and the call."""

    def frame_of_caller() -> FrameType:
        return sys._getframe(1)

    call = frame_of_caller
    for file in reversed(files):
        names = {"call": call}
        exec(compile("def between():\n    return call()", str(file), "exec"), names)
        call = names["between"]
    return Callers(torch).of(call())


def test_a_users_line_calls_by_itself() -> None:
    caller = called_through()
    assert caller is not None and caller.site is not None
    assert (caller.site.file, caller.site.function) == (__file__, "called_through")
    assert caller.directly and not caller.updating
    assert caller.instruction is not None


def test_through_the_standard_library_it_still_does() -> None:
    import logging

    caller = called_through(logging.__file__)
    assert caller is not None and caller.site is not None and caller.directly


@pytest.mark.parametrize(
    "file",
    [
        "/home/ada/.local/lib/python3.11/site-packages/torchmetrics/metric.py",  # a user's own packages
        "/usr/lib/python3/dist-packages/einops/einops.py",  # Debian's
        "/shared/env/lib/python3.11/site-packages/timm/models/resnet.py",  # of an environment that shares packages
        "/home/ada/project/.venv/lib/python3.11/site-packages/einops/einops.py",
    ],
)
def test_the_users_line_is_found_behind_packages_wherever_they_are(file: str) -> None:
    caller = called_through(file)
    assert caller is not None and caller.site is not None
    assert (caller.site.file, caller.directly) == (__file__, False)


def test_torch_that_was_built_in_its_checkout_is_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    call_sites.is_users.cache_clear()
    try:
        assert call_sites.is_users("/opt/pytorch/torch/nn/functional.py")
        call_sites.is_users.cache_clear()
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/opt/pytorch/torch/__init__.py"))
        assert not call_sites.is_users("/opt/pytorch/torch/nn/functional.py")
        assert call_sites.is_users("/opt/pytorch/train.py")
    finally:
        call_sites.is_users.cache_clear()


def test_through_a_library_it_does_not() -> None:
    caller = called_through(TORCH / "utils" / "data" / "dataloader.py")
    assert caller is not None and caller.site is not None
    assert not caller.directly and not caller.updating


def test_torch_calls_where_it_updates_parameters() -> None:
    for file in ("optim/adam.py", "nn/utils/clip_grad.py", "amp/grad_scaler.py"):
        caller = called_through(TORCH / file)
        assert caller is not None and caller.site is not None and caller.updating, file
    for file in ("optim/lr_scheduler.py", "nn/modules/linear.py"):
        caller = called_through(TORCH / file)
        assert caller is not None and not caller.updating, file


def test_hotlap_calls_for_itself() -> None:
    assert called_through(RUNTIME / "clock.py") is None
    assert called_through(RUNTIME / "session.py", TORCH / "profiler" / "profiler.py") is None, "between two steps"


def test_hotlap_passes_calls_on() -> None:
    caller = called_through(RUNTIME / "roots.py", TORCH / "nn" / "modules" / "module.py")
    assert caller is not None and caller.site is not None, "a model's forward runs through ours"


def test_the_same_line_is_the_same_place() -> None:
    callers = Callers(torch)
    first, second = (callers.of(frame) for frame in [sys._getframe(), sys._getframe()])
    assert first is not None and second is not None and first.site == second.site
