"""Studies as a program asks for them, with arithmetic in place of launches."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_executor import FakeExecutor

import hotlap
from hotlap.api import engine
from hotlap.experiment.options import Options, ScaleChoices
from hotlap.records import (
    AccountMemory,
    FakeTensors,
    Isolation,
    LaunchRequest,
    MemoryAccount,
    MemoryAmounts,
    Run,
    Study,
    Workload,
)
from hotlap.study import Journal


class Counted(FakeExecutor):
    """Each sample of a batch of 32 takes a mebibyte, and everything else 16; what it was asked to count is kept."""

    asked: tuple[LaunchRequest, ...] = ()
    isolation = Isolation()

    def launch(self, request: LaunchRequest) -> Run:
        self.asked = (*self.asked, request)
        peak = MemoryAmounts(parameters=16 * 2**20, activations=32 * 2**20)
        return msgspec.structs.replace(super().launch(request), memory=MemoryAccount(peak=peak))


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()

    def make(directory: Path, isolation: Isolation) -> Counted:
        made.isolation = isolation
        return made

    monkeypatch.setattr(engine, "local_executor", make)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return made


def test_memory_is_accounted_for(executor: Counted, tmp_path: Path) -> None:
    study = hotlap.memory("train.py", arguments=["--epochs", "1"], steps=20, network="none")
    assert study.memory is not None and study.memory.peak.activations == 32 * 2**20
    assert (study.kind, study.status, study.workload.arguments) == ("memory", "finished", ("--epochs", "1"))
    counting = executor.asked[0].assignment.instrument(AccountMemory)
    assert counting is not None and counting.steps == 20
    assert executor.isolation == Isolation(network="none")
    assert Path(study.directory).parent == tmp_path / ".hotlap" / "memory"
    assert hotlap.load_study(tmp_path / ".hotlap").identifier == study.identifier


def test_memory_is_estimated_without_running_on_data(executor: Counted, tmp_path: Path) -> None:
    study = hotlap.memory("train.py", estimate=True, batch_sizes=[32], device_memory_bytes=2**30, directory=tmp_path)
    assert study.memory_estimate is not None and study.memory is None
    assert study.memory_estimate.device_memory_bytes == 2**30
    first = study.memory_estimate.peaks[0]
    assert (first.batch_size, first.peak_bytes, first.plan) == (32, 48 * 2**20, hotlap.Plan())
    assert all(it.assignment.instrument(FakeTensors) is not None for it in executor.asked)
    assert Path(study.directory).parent == tmp_path / "memory"


def test_options_of_an_estimate_require_one(executor: Counted) -> None:
    with pytest.raises(hotlap.HotlapError, match="for an estimate"):
        hotlap.memory("train.py", batch_sizes=[64])
    assert not executor.asked


def test_a_cluster_is_given_by_its_links(executor: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    def search(workload: Workload, options: Options, journal: Journal, *_: object) -> Study:
        asked.append(options)
        return Study(
            identifier=journal.directory.name, kind="scale", workload=workload, directory=str(journal.directory)
        )

    monkeypatch.setattr("hotlap.api.searches.scale_search", search)
    study = hotlap.scale(
        "train.py", nodes=4, devices_per_node=8, device="h100", link_bytes_per_second=5e10, link_seconds=5e-6,
        node_link_bytes_per_second=3e11, utilisation=0.4, price_per_device_hour=2.0, directory=tmp_path,
    )  # fmt: skip
    (options,) = asked
    assert options.scale == ScaleChoices(
        nodes=4, devices_per_node=8, device="h100", link=5e10, link_seconds=5e-6, node_link=3e11, utilisation=0.4,
        price_per_device_hour=2.0,
    )  # fmt: skip
    assert Path(study.directory).parent == tmp_path / "scale"


def test_a_device_that_is_not_known_is_refused(executor: Counted) -> None:
    with pytest.raises(hotlap.HotlapError, match="imaginary"):
        hotlap.scale("train.py", device="imaginary")
    assert not executor.asked
