"""The facts of this machine and of made-up ones, and how measuring confirms claimed dtypes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.machine.facts import CLEARLY_FASTER, confirmed, machine_facts, with_ceilings
from hotlap.records import Accelerator, Ceilings, Machine

DTYPES = ("bfloat16", "float16")


def rates(**by_dtype: float) -> Ceilings:
    return Ceilings(matmul_flops_per_second=tuple((f"cpu:{dtype}", rate) for dtype, rate in by_dtype.items()))


def test_this_machine_makes_sense() -> None:
    machine = machine_facts()
    assert machine.processor
    assert 1 <= machine.physical_cores <= machine.cores <= machine.visible_cores <= (os.cpu_count() or 1)
    assert 0 < machine.memory_bytes <= psutil.virtual_memory().total
    assert machine.native_dtypes[0] == "float32"
    assert dict(machine.library_versions)["torch"] == metadata.version("torch")
    assert machine.ceilings == Ceilings()


def test_facts_survive_the_way_through_json() -> None:
    machine = machine_facts()
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine


def test_torch_is_not_imported_for_the_facts() -> None:
    code = "import sys; from hotlap.machine import facts; facts.machine_facts(); sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=300).returncode == 0


def test_what_torch_was_built_for_is_what_torch_says() -> None:
    import torch

    built = {key: value for key, value in machine_facts().library_versions if key in {"cuda", "hip"}}
    expected = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    assert built == {key: value for key, value in expected.items() if value is not None}


def test_a_made_up_container(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "model name\t: Made Up\nflags\t: avx512_bf16\n",
        "proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/memory.max": "1073741824\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {"OMP_NUM_THREADS": "7", "SECRET": "not ours to record"}
    machine = machine_facts(tmp_path, environment=environment)
    assert (machine.processor, machine.cores, machine.physical_cores) == ("Made Up", 1, 1)
    assert machine.memory_bytes == 1 << 30
    assert machine.shared_memory_bytes == 0
    assert machine.transparent_huge_pages == "never"
    assert machine.native_dtypes == ("float32", "bfloat16")
    assert machine.environment == (("OMP_NUM_THREADS", "7"),)
    assert any("OMP_NUM_THREADS=7" in text for text in machine.warnings)
    assert any("/dev/shm holds 0 MiB" in text for text in machine.warnings)


def test_an_empty_system_is_no_error(tmp_path: Path) -> None:
    machine = machine_facts(tmp_path, environment={})
    assert machine.cores >= 1
    assert machine.memory_bytes > 0


def test_measuring_decides_over_claims() -> None:
    assert confirmed(("float32", "bfloat16"), "cpu", rates(float32=100.0, bfloat16=200.0)) == ("float32", "bfloat16")
    assert confirmed(("float32", "bfloat16"), "cpu", rates(float32=100.0, bfloat16=90.0)) == ("float32",)
    assert confirmed(("float32",), "cpu", rates(float32=100.0, float16=190.0)) == ("float32", "float16")


def test_a_disturbed_measurement_confirms_and_refutes_nothing() -> None:
    claimed = ("float32", "bfloat16", "tf32")
    measured = rates(float32=100.0, bfloat16=5.0, float16=190.0)
    assert confirmed(claimed, "cpu", measured) == ("float32", "float16", "tf32")
    assert confirmed(claimed, "cpu", measured, shared=True) == ("float32", "float16", "bfloat16", "tf32")
    doubted = msgspec.structs.replace(measured, doubts=(("cpu", "Others computed."),))
    assert confirmed(claimed, "cpu", doubted) == ("float32", "float16", "bfloat16", "tf32")
    elsewhere = msgspec.structs.replace(measured, doubts=(("cuda", "Others computed."),))
    assert confirmed(claimed, "cpu", elsewhere) == ("float32", "float16", "tf32")


def test_a_device_that_others_compute_on_keeps_its_formats() -> None:
    """Beside three other processes an H200 was measured at less in bfloat16 than in float32."""
    device = Accelerator(kind="cuda", name="Some", memory_bytes=1, native_dtypes=("float32", "bfloat16", "tf32"))
    key_rates = (("cuda:bfloat16", 0.9), ("cuda:float32", 19.0), ("cuda:tf32", 139.0))
    ceilings = Ceilings(matmul_flops_per_second=key_rates)
    shared = msgspec.structs.replace(device, other_processes=3)
    for it, dtypes in ((device, {"float32", "tf32"}), (shared, {"float32", "tf32", "bfloat16"})):
        assert set(with_ceilings(Machine(accelerators=(it,)), ceilings).accelerators[0].native_dtypes) == dtypes


@pytest.mark.parametrize(("busy", "dtypes"), [(False, ("float32",)), (True, ("float32", "bfloat16"))])
def test_a_busy_processor_keeps_its_formats(busy: bool, dtypes: tuple[str, ...]) -> None:
    """With 14 of its 16 cores in use a Xeon was measured at a tenth of float32's rate in bfloat16; alone, at thrice."""
    machine = Machine(native_dtypes=("float32", "bfloat16"))
    assert with_ceilings(machine, rates(float32=53.0, bfloat16=4.4), busy=busy).native_dtypes == dtypes


def test_without_a_measurement_the_claim_remains() -> None:
    assert confirmed(("float32", "bfloat16"), "cpu", Ceilings()) == ("float32", "bfloat16")
    assert confirmed(("float32", "bfloat16"), "cpu", rates(float32=1.0)) == ("float32", "bfloat16")
    assert confirmed(("float32", "bfloat16"), "cuda", rates(float32=9.0, bfloat16=1.0)) == ("float32", "bfloat16")


@given(
    claimed=st.sets(st.sampled_from(DTYPES)),
    reference=st.floats(1e6, 1e15),
    ratios=st.dictionaries(st.sampled_from(DTYPES), st.floats(0.01, 20.0)),
)
def test_a_measured_dtype_is_native_exactly_when_it_is_clearly_faster(
    claimed: set[str], reference: float, ratios: dict[str, float]
) -> None:
    measured = rates(float32=reference, **{dtype: ratio * reference for dtype, ratio in ratios.items()})
    found = confirmed(("float32", *sorted(claimed)), "cpu", measured)
    assert found[0] == "float32"
    assert len(set(found)) == len(found)
    by_key = dict(measured.matmul_flops_per_second)
    for dtype in DTYPES:
        clearly = dtype in ratios and by_key[f"cpu:{dtype}"] >= CLEARLY_FASTER * reference
        assert (dtype in found) == (clearly if dtype in ratios else dtype in claimed)


def test_one_devices_rates_hold_for_its_twins_only() -> None:
    fast = Accelerator(kind="cuda", name="Fast", memory_bytes=1, native_dtypes=("float32", "bfloat16"))
    other = msgspec.structs.replace(fast, name="Other")
    ceilings = Ceilings(matmul_flops_per_second=(("cuda:bfloat16", 50.0), ("cuda:float32", 60.0)))
    machine = with_ceilings(Machine(accelerators=(fast, fast, other)), ceilings)
    assert [it.native_dtypes for it in machine.accelerators] == [("float32",), ("float32",), ("float32", "bfloat16")]
    assert machine.ceilings == ceilings


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_torch_calls_both_makes_cuda(kind: str) -> None:
    device = Accelerator(kind=kind, name="Some", memory_bytes=1)
    ceilings = Ceilings(matmul_flops_per_second=(("cuda:bfloat16", 500.0), ("cuda:float32", 60.0)))
    found = with_ceilings(Machine(accelerators=(device,)), ceilings)
    assert found.accelerators[0].native_dtypes == ("float32", "bfloat16")
