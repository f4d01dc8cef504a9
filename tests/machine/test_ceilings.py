"""Ceilings, measured for real and briefly: only what holds on every machine is tested."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec
import pytest

from hotlap.errors import UsageError
from hotlap.machine import processor
from hotlap.machine.ceilings import main, measure, merged
from hotlap.machine.facts import machine_facts, with_ceilings
from hotlap.records import Ceilings, MeasuredRates


def run_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotlap.machine.ceilings", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_child_writes_one_json_object_and_nothing_else() -> None:
    child = run_child("--device", "cpu", "--seconds", "0.5")
    assert child.returncode == 0, child.stderr
    ceilings = msgspec.json.decode(child.stdout, type=MeasuredRates).ceilings
    products = dict(ceilings.matmul_flops_per_second)
    # From a slow single core to the largest servers; and no processor's memory is outside of this either.
    assert 1e8 < products["cpu:float32"] < 1e15
    assert "cpu:bfloat16" in products
    assert ceilings.memory_bytes_per_second is not None
    assert 1e8 < ceilings.memory_bytes_per_second < 1e14
    assert ceilings.host_to_device_pinned_bytes_per_second is None
    # A page of 4 KiB takes a tenth of a microsecond to some microseconds; huge pages cost next to nothing.
    assert ceilings.fresh_memory_seconds_per_byte is not None
    assert 0 <= ceilings.fresh_memory_seconds_per_byte < 1e-8
    calls = dict(ceilings.autocast_seconds_per_layer)
    assert calls.keys() <= {"cpu:bfloat16", "cpu:float16"} and all(0 < it < 1e-2 for it in calls.values())
    assert {it.short for it in ceilings.flat} <= {"rows", "common"} and ceilings.flat


@pytest.mark.slow  # as are the two below: their times depend on other processes
def test_the_time_is_kept() -> None:
    measure("cpu", 0.1)  # what torch loads lazily does not count
    start = time.perf_counter()
    measure("cpu", 1.0)
    # Copies of 256 MiB and a few emulated products are indivisible; a shared machine adds its own.
    assert time.perf_counter() - start < 10.0


@pytest.mark.slow
@pytest.mark.skipif(
    not processor.flags() & {"avx512_bf16", "amx_bf16"}, reason="this processor has no bfloat16 instructions"
)
def test_real_bfloat16_is_recognised_by_its_speed() -> None:
    machine = with_ceilings(machine_facts(), measure("cpu", 2.0))
    assert "bfloat16" in machine.native_dtypes


@pytest.mark.slow
@pytest.mark.skipif(
    bool(processor.flags() & {"avx512_fp16", "amx_fp16", "asimdhp"}) or not processor.flags(),
    reason="this processor multiplies float16 itself, or does not say",
)
def test_emulated_float16_is_recognised_by_its_speed() -> None:
    machine = with_ceilings(machine_facts(), measure("cpu", 1.0))
    assert "float16" not in machine.native_dtypes


@pytest.mark.parametrize(("device", "seconds"), [("toaster", 1.0), ("cpu", 0.0), ("cpu", -1.0), ("cpu", float("nan"))])
def test_nonsense_is_refused(device: str, seconds: float) -> None:
    with pytest.raises(UsageError):
        measure(device, seconds)


def test_a_device_that_is_not_there_is_said_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["--device", "cuda"]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert "no CUDA device" in written.err


def test_the_first_rate_wins_where_both_have_one() -> None:
    device = Ceilings(
        matmul_flops_per_second=(("cuda:float32", 5.0), ("shared", 1.0)),
        memory_bytes_per_second=9.0,
        host_to_device_pinned_bytes_per_second=4.0,
    )
    shared = Ceilings(matmul_flops_per_second=(("cpu:float32", 2.0), ("shared", 7.0)), memory_bytes_per_second=3.0)
    assert merged(device, shared) == Ceilings(
        matmul_flops_per_second=(("cpu:float32", 2.0), ("cuda:float32", 5.0), ("shared", 1.0)),
        memory_bytes_per_second=9.0,
        host_to_device_pinned_bytes_per_second=4.0,
    )
    assert merged(Ceilings(), shared).memory_bytes_per_second == 3.0


@pytest.mark.gpu
def test_a_real_device_reaches_more_in_half_precision_and_copies_faster_from_pinned_memory() -> None:
    child = run_child("--device", "cuda", "--seconds", "3")
    assert child.returncode == 0, child.stderr
    ceilings = msgspec.json.decode(child.stdout, type=MeasuredRates).ceilings
    products = dict(ceilings.matmul_flops_per_second)
    assert set(products) == {"cuda:float32", "cuda:float16", "cuda:bfloat16", "cuda:tf32"}
    assert products["cuda:float16"] > products["cuda:float32"]
    pageable, pinned = (
        ceilings.host_to_device_pageable_bytes_per_second,
        ceilings.host_to_device_pinned_bytes_per_second,
    )
    assert pageable is not None and pinned is not None
    assert pinned > pageable
