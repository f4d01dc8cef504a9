"""Process groups within trials: their own timeouts do not end a script that stood still for its turn."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import distributed
from torch.distributed import distributed_c10d

from hotlap.runtime.patches import Patches
from hotlap.runtime.process_groups import PATIENCE, be_patient, wait_until_forgotten


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Patches]:
    monkeypatch.setenv("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "")  # to be put back
    monkeypatch.delenv("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC")
    made = Patches()
    be_patient(torch, made.replace)
    yield made
    made.suspend()
    if distributed.is_initialized():
        distributed.destroy_process_group()


def timeout_of(group: distributed.ProcessGroup) -> timedelta:
    found = group._get_backend(torch.device("cpu")).options._timeout
    assert isinstance(found, timedelta)
    return found


@pytest.mark.parametrize("given", [None, timedelta(seconds=3), timedelta(hours=7)])
def test_no_group_gives_up_before_hotlap_does(patches: Patches, tmp_path: Path, given: timedelta | None) -> None:
    store = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", store, rank=0, world_size=1, timeout=given)
    expected = max(given or PATIENCE, PATIENCE)
    assert timeout_of(distributed.group.WORLD) == expected  # type: ignore[arg-type]
    assert timeout_of(distributed.new_group([0], timeout=given)) == expected


def test_the_monitor_of_nccl_is_as_patient_unless_the_script_has_said_otherwise(
    patches: Patches, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == str(int(PATIENCE.total_seconds()))
    monkeypatch.setenv("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "77")
    be_patient(torch, patches.replace)
    assert os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "77"


def test_wrong_arguments_and_the_way_back(patches: Patches) -> None:
    with pytest.raises(TypeError):
        distributed.init_process_group(nonsense=1)  # type: ignore[call-arg]
    ours = distributed.init_process_group
    assert inspect.signature(ours).parameters["timeout"].default is None
    patches.suspend()
    assert distributed.init_process_group is not ours
    assert distributed.init_process_group is distributed.distributed_c10d.init_process_group


class Group:
    """A process group; ``pending`` says what its wait does."""

    def __init__(self, pending: Exception | None = None) -> None:
        self.pending = pending
        self.waits = 0

    def _wait_for_pending_works(self) -> None:
        self.waits += 1
        if self.pending is not None:
            raise self.pending


def world_of(groups: dict[Group, str], monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimpleNamespace(pg_map={group: (backend, None) for group, backend in groups.items()})
    monkeypatch.setattr(distributed_c10d, "_world", world)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)


def test_nothing_of_nccl_is_under_way_when_an_arm_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, host = Group(), Group(), Group(AssertionError("of gloo nothing is remembered"))
    world_of({first: "nccl", second: "cpu:gloo,cuda:nccl", host: "gloo"}, monkeypatch)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    wait_until_forgotten(torch)
    assert (first.waits, second.waits, host.waits, slept) == (1, 1, 0, [])


def test_a_group_without_information_is_checked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world_of({Group(RuntimeError("not supported by this backend")): "cpu:gloo,cuda:nccl"}, monkeypatch)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    wait_until_forgotten(torch)
    assert slept == [0.2]


def test_without_process_groups_there_is_nothing_to_wait_for() -> None:
    wait_until_forgotten(torch)
    wait_until_forgotten(SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: False)))
