"""The processors' energy, from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotlap.machine.energy import ProcessorEnergy


def zone(root: Path, name: str, label: str, microjoules: int | str, most: int = 1000) -> Path:
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True)
    for file, content in (("name", label), ("energy_uj", microjoules), ("max_energy_range_uj", most)):
        (folder / file).write_text(f"{content}\n", encoding="utf-8")
    return folder


def write(folder: Path, microjoules: int | str) -> None:
    (folder / "energy_uj").write_text(f"{microjoules}\n", encoding="utf-8")


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 900)
    zone(tmp_path, "intel-rapl:0:0", "core", 5)
    mirrored = zone(tmp_path, "intel-rapl-mmio:0", "package-0", 100)
    energy = ProcessorEnergy(tmp_path)
    assert energy.joules() == 0.0
    for folder, now in ((first, 400), (second, 950), (mirrored, 400)):
        write(folder, now)
    assert energy.joules() == pytest.approx(350e-6)
    write(first, 500)
    assert energy.joules() == pytest.approx(450e-6)


def test_a_counter_that_starts_over(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 900)
    energy = ProcessorEnergy(tmp_path)
    write(folder, 50)
    assert energy.joules() == pytest.approx(150e-6)


def test_a_machine_without_counters_gives_nothing(tmp_path: Path) -> None:
    assert ProcessorEnergy(tmp_path).joules() is None


@pytest.mark.parametrize("content", ["", "nonsense", "-5", "9" * 30, "1 2"])
def test_what_is_not_a_number_gives_nothing(tmp_path: Path, content: str) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", content)
    assert ProcessorEnergy(tmp_path).joules() is None


def test_a_counter_that_may_not_be_read_gives_nothing(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    (folder / "energy_uj").unlink()
    (folder / "energy_uj").mkdir()  # cannot be read even by root
    assert ProcessorEnergy(tmp_path).joules() is None


def test_this_machine_is_queried_without_harm() -> None:
    found = ProcessorEnergy().joules()
    assert found is None or found >= 0.0
