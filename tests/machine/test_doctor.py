"""Each rule fires on the machine that it is about, and none on a healthy one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.machine.doctor import GIBIBYTE, advice
from hotlap.records import Accelerator, Ceilings, Machine

DEVICE = Accelerator(
    kind="cuda",
    name="Good Device",
    memory_bytes=80 * GIBIBYTE,
    capability="9.0",
    driver="580.65.06",
    native_dtypes=("float32", "float16", "bfloat16", "tf32"),
    power_limit_watts=700.0,
)
HEALTHY = Machine(
    processor="Good Processor",
    cores=16,
    physical_cores=8,
    visible_cores=16,
    memory_bytes=128 * GIBIBYTE,
    shared_memory_bytes=64 * GIBIBYTE,
    native_dtypes=("float32", "bfloat16"),
    accelerators=(DEVICE,),
    system="Linux-6.8",
    library_versions=(("torch", "2.13.0"), ("cuda", "13.0")),
    transparent_huge_pages="madvise",
)
WITHOUT_DEVICE = msgspec.structs.replace(HEALTHY, accelerators=(), library_versions=(("torch", "2.13.0+cpu"),))

ON_DEVICE = Ceilings(matmul_flops_per_second=(("cuda:float32", 6.0e13),))


def on(machine: Machine, **changed: Any) -> Machine:
    return msgspec.structs.replace(machine, **changed)


def on_device(**changed: Any) -> Machine:
    return on(HEALTHY, accelerators=(msgspec.structs.replace(DEVICE, **changed),))


def test_a_healthy_machine_has_no_complaints() -> None:
    assert advice(HEALTHY) == ()


@pytest.mark.parametrize(
    ("machine", "level", "text"),
    [
        (on(HEALTHY, cores=4), "warning", "a quota lets them use 4"),
        (on(HEALTHY, cores=3, visible_cores=3), "warning", "3 cores for 1 accelerator"),
        (on(HEALTHY, accelerators=(DEVICE,) * 8), "warning", "16 cores for 8 accelerators"),
        (on(WITHOUT_DEVICE, cores=1, visible_cores=1), "note", "Only 1 core:"),
        (on(HEALTHY, shared_memory_bytes=64 << 20), "problem", "/dev/shm holds 64 MiB"),
        (on(HEALTHY, shared_memory_bytes=512 << 20), "warning", "/dev/shm holds 512 MiB"),
        (on(HEALTHY, transparent_huge_pages="never"), "note", "huge pages are switched off"),
        (WITHOUT_DEVICE, "note", "Only programs that request huge pages"),
        (on(HEALTHY, environment=(("OMP_NUM_THREADS", "1"),)), "warning", "leaves cores idle"),
        (on(HEALTHY, environment=(("MKL_NUM_THREADS", "64"),)), "warning", "more than there are cores"),
        (on(WITHOUT_DEVICE, native_dtypes=("float32",)), "note", "no bfloat16 products"),
        (
            on(
                WITHOUT_DEVICE,
                native_dtypes=("float32",),
                ceilings=Ceilings(matmul_flops_per_second=(("cpu:bfloat16", 1.71e11), ("cpu:float32", 3.19e11))),
            ),
            "note",
            "bfloat16 reach 171 GFLOP/s here, in float32 319: mixed precision would not pay",
        ),
        (on_device(native_dtypes=("float32", "float16")), "note", "Good Device has no bfloat16"),
        (on(HEALTHY, library_versions=(("torch", "2.13.0+cpu"),)), "problem", "built without support"),
        (on_device(kind="rocm", driver=""), "problem", "built without support"),
        (on_device(driver="570.86.15"), "problem", "which needs 580 or newer"),
        (on_device(other_processes=1), "warning", "1 other process on Good Device"),
        (on_device(other_processes=3), "warning", "3 other processes on Good Device"),
        (on_device(throttled=("power cap",)), "warning", "reduces its clocks: power cap (limit 700 W)"),
        (on_device(capability="6.1"), "note", "no tensor cores"),
        (on(HEALTHY, environment=(("CUDA_LAUNCH_BLOCKING", "1"),)), "problem", "wait for every single kernel"),
        (on(HEALTHY, environment=(("NVIDIA_TF32_OVERRIDE", "0"),)), "warning", "forbids TF32"),
    ],
)
def test_each_fault_is_found_alone(machine: Machine, level: str, text: str) -> None:
    about = [it for it in advice(machine) if text in it.text]
    assert [it.level for it in about] == [level]
    assert about[0].remedy
    expected_beside = set(advice(WITHOUT_DEVICE)) if not machine.accelerators else set()
    assert set(advice(machine)) <= {*about, *expected_beside}


@pytest.mark.parametrize(
    "machine",
    [
        on(HEALTHY, system="macOS-15", shared_memory_bytes=0),
        on(HEALTHY, environment=(("OMP_NUM_THREADS", "16"),)),
        on(HEALTHY, environment=(("OMP_NUM_THREADS", "4,2"), ("CUDA_LAUNCH_BLOCKING", "0"))),
        on(WITHOUT_DEVICE, environment=(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),)),
        on(WITHOUT_DEVICE, environment=(("CUDA_LAUNCH_BLOCKING", "1"),), transparent_huge_pages="always"),
        on_device(driver="590.1"),
        on(HEALTHY, library_versions=()),
        on(HEALTHY, library_versions=(("torch", "3.0"), ("cuda", "99.0"))),
        # A distribution's build does not name CUDA, and computes on the device all the same.
        on(HEALTHY, library_versions=(("torch", "2.13.0"),), ceilings=ON_DEVICE),
    ],
)
def test_what_is_fine_or_unknown_is_not_mentioned(machine: Machine) -> None:
    assert advice(machine) == ()


def test_equal_devices_are_mentioned_once() -> None:
    old = msgspec.structs.replace(DEVICE, driver="450.1")
    assert len(advice(on(HEALTHY, cores=64, visible_cores=64, accelerators=(old,) * 8))) == 1


def test_problems_come_first() -> None:
    machine = on(on_device(driver="450.1", other_processes=1), transparent_huge_pages="never")
    assert [it.level for it in advice(machine)] == ["problem", "warning", "note"]


@given(
    driver=st.text(max_size=12),
    capability=st.text(max_size=6),
    cuda=st.text(max_size=8),
    threads=st.text(max_size=8),
    cores=st.integers(1, 512),
)
def test_no_machine_is_too_strange(driver: str, capability: str, cuda: str, threads: str, cores: int) -> None:
    machine = on(
        on_device(driver=driver, capability=capability),
        cores=cores,
        library_versions=(("torch", "2.13.0"), ("cuda", cuda)),
        environment=(("OMP_NUM_THREADS", threads),),
    )
    for it in advice(machine):
        assert it.text.endswith((".", "off.")) and it.remedy
