"""The energy of a block: from the driver's counter, from samples of power, and from the processors' files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from hotlap.machine.energy import ProcessorEnergy
from hotlap.records import Block
from hotlap.trial import load
from hotlap.trial.energy import CountedEnergy, SampledPower
from hotlap.trial.load import BlockWatch, Device

BLOCK = Block(steps=1, samples=1, wall_seconds=0.2)


class Driver:
    """Two devices; each reading of the first one's counter advances time by 0.1 s."""

    def __init__(self) -> None:
        self.readings = 0
        self.watts = (300.0, 50.0)
        self.counts = True
        self.asked: list[int] = []

    def energy(self, handle: int) -> int:
        if not self.counts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self.asked.append(handle)
        if handle == 0:
            self.readings += 1
        return round(1e6 + 1000 * self.watts[handle] * self.seconds)

    def power(self, handle: int) -> int:
        return round(1000 * self.watts[handle])

    @property
    def seconds(self) -> float:
        return 0.1 * self.readings


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()

    def unsupported(*anything: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index if index < 2 else unsupported())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", unsupported)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", made.energy)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", made.power)
    monkeypatch.setattr(load.time, "perf_counter", lambda: made.seconds)
    load._library_present.cache_clear()
    yield made
    load._library_present.cache_clear()


def watched(trainers: int = 1, processors: ProcessorEnergy | None = None) -> Block:
    watch = BlockWatch([], Device(""), trainers=trainers, processors=processors)
    for _ in range(3):
        watch.look()
    watch.stop()
    return watch.complete(BLOCK, [])


def test_the_counter_gives_the_energy_during_the_block(driver: Driver) -> None:
    block = watched()
    assert block.device_energy_joules == pytest.approx(300 * 0.2, rel=0.01)
    assert not block.device_power_sampled
    assert set(driver.asked) == {0}


def test_each_trainer_has_its_own_device(driver: Driver) -> None:
    block = watched(trainers=2)
    assert block.device_energy_joules == pytest.approx(350 * 0.2, rel=0.01)


def test_power_is_sampled_without_an_energy_counter(driver: Driver) -> None:
    driver.counts = False
    block = watched()
    assert block.device_energy_joules == pytest.approx(300 * 0.2)
    assert block.device_power_sampled


def test_without_a_device_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    load._library_present.cache_clear()
    block = watched()
    load._library_present.cache_clear()
    assert block.device_energy_joules is None and not block.device_power_sampled


def test_processors_are_distinguished_from_devices(driver: Driver, tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n", encoding="utf-8")
    (zone / "energy_uj").write_text("1000000\n", encoding="utf-8")
    watch = BlockWatch([], Device("7"), processors=ProcessorEnergy(tmp_path))
    driver.readings += 4
    (zone / "energy_uj").write_text("9000000\n", encoding="utf-8")
    watch.stop()
    block = watch.complete(BLOCK, [])
    # 8 J in 0.4 s; the block lasts 0.2 s of these.
    assert block.processor_energy_joules == pytest.approx(4.0)
    assert block.device_energy_joules is None


def test_energy_before_the_first_counter_update_is_left_out() -> None:
    """Start with 0.1 s of another arm at 1000 W, then 200 W, with counter updates every 0.1 s."""
    energy = CountedEnergy()
    for seconds, joules in ((0.0, 0.0), (0.05, 0.0), (0.1, 100.0), (0.15, 100.0), (0.2, 120.0), (0.3, 140.0)):
        energy.read(seconds, joules)
    assert energy.watts() == pytest.approx(200.0)


def test_a_single_counter_update_counts_for_the_whole_block() -> None:
    energy = CountedEnergy()
    for seconds, joules in ((0.0, 10.0), (0.2, 10.0), (0.4, 50.0)):
        energy.read(seconds, joules)
    assert energy.watts() == pytest.approx(100.0)


@pytest.mark.parametrize("readings", [[], [(0.0, 5.0)], [(0.0, 5.0), (1.0, 5.0)], [(0.0, 5.0), (0.1, 6.0), (0.2, 1.0)]])
def test_a_counter_that_stops_or_falls_gives_no_energy(readings: list[tuple[float, float]]) -> None:
    energy = CountedEnergy()
    for seconds, joules in readings:
        energy.read(seconds, joules)
    assert energy.watts() is None
    assert energy.has_readings == bool(readings)


def test_power_samples_are_averaged() -> None:
    power = SampledPower()
    assert power.watts() is None
    for watts in (100.0, None, 300.0):
        power.read(watts)
    assert power.watts() == 200.0
