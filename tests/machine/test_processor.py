"""The processor's name, instruction sets and cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.machine import processor

X86 = """\
processor\t: 0
model name\t: Some Processor 9000
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
model name\t: Some Other
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimdhp bf16\n\nModel\t\t: A Board\n"


def with_cpuinfo(root: Path, text: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(text, encoding="utf-8")
    return root


def with_quota(root: Path, cpu_max: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n", encoding="utf-8")
    mount = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (root / "proc/self/mountinfo").write_text(mount, encoding="utf-8")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text(cpu_max, encoding="utf-8")
    return root


def with_topology(root: Path, cores: dict[int, tuple[int, int]]) -> Path:
    for number, (package, core) in cores.items():
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n", encoding="utf-8")
        (folder / "core_id").write_text(f"{core}\n", encoding="utf-8")
    return root


def test_x86(tmp_path: Path) -> None:
    with_cpuinfo(tmp_path, X86)
    assert processor.name(tmp_path) == "Some Processor 9000"
    assert processor.claimed_dtypes(processor.flags(tmp_path)) == ("float32", "bfloat16")


def test_arm(tmp_path: Path) -> None:
    with_cpuinfo(tmp_path, ARM)
    assert processor.name(tmp_path) == "A Board"
    assert processor.claimed_dtypes(processor.flags(tmp_path)) == ("float32", "bfloat16", "float16")


def test_without_cpuinfo_there_is_a_name_and_no_claim(tmp_path: Path) -> None:
    assert processor.name(tmp_path)
    assert processor.claimed_dtypes(processor.flags(tmp_path)) == ("float32",)


@pytest.mark.parametrize("converts_only", ["f16c", "avx_ne_convert", "avx512f", "avx2"])
def test_instructions_that_only_convert_claim_nothing(converts_only: str) -> None:
    assert processor.claimed_dtypes(frozenset({converts_only})) == ("float32",)


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [("max 100000", 8), ("400000 100000", 4), ("199999 100000", 1), ("1000 100000", 1), ("9900000 100000", 8)],
)
def test_a_quota_leaves_whole_cores_and_at_least_one(tmp_path: Path, cpu_max: str, cores: int) -> None:
    with_quota(tmp_path, cpu_max)
    assert processor.cores_available(tmp_path, tuple(range(8))) == cores


def test_siblings_are_one_physical_core(tmp_path: Path) -> None:
    with_topology(tmp_path, {0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 1), 4: (1, 0), 5: (1, 1)})
    assert processor.physical_cores(tmp_path, (0, 1, 2, 3, 4, 5)) == 4
    assert processor.physical_cores(tmp_path, (0, 2)) == 1


@given(logical=st.integers(1, 64), quota=st.integers(1, 100))
def test_no_more_physical_cores_than_available_ones(
    tmp_path_factory: pytest.TempPathFactory, logical: int, quota: int
) -> None:
    root = with_quota(tmp_path_factory.mktemp("root"), f"{quota * 50_000} 100000")
    visible = tuple(range(logical))
    physical, available = processor.physical_cores(root, visible), processor.cores_available(root, visible)
    assert 1 <= physical <= available <= logical
    assert available == max(1, min(logical, quota // 2))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_affinity_is_kept() -> None:
    before = os.sched_getaffinity(0)
    first = min(before)
    try:
        os.sched_setaffinity(0, {first})
        assert processor.visible_cores() == (first,)
        assert processor.cores_available() == 1
        assert processor.physical_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
