"""Accelerators, as a management library and a driver's files describe them; the library is a stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hotlap.machine.accelerators import accelerators, as_torch_sees_them, claimed_dtypes
from hotlap.records import Accelerator, TorchDevice


class LibraryError(Exception):
    """What the management library raises."""


class Library(ModuleType):
    """A management library over some devices; ``unsupported`` queries raise, as on some devices."""

    NVMLError = LibraryError
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self, devices: list[dict[str, Any]], unsupported: frozenset[str] = frozenset()) -> None:
        super().__init__("pynvml")
        self.devices = devices
        self.unsupported = unsupported
        self.open = 0

    def nvmlInit(self) -> None:
        if "Init" in self.unsupported:
            raise LibraryError
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.65.06"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        return self.devices[index]

    def nvmlDeviceGetHandleByUUID(self, identifier: str) -> dict[str, Any]:
        for device in self.devices:
            if device["UUID"] == identifier:
                return device
        raise LibraryError

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        key = name.removeprefix("nvmlDeviceGet")

        def answer(device: dict[str, Any]) -> Any:
            assert self.open == 1, "queried before the library was opened"
            if key in self.unsupported:
                raise LibraryError
            return device[key]

        return answer


def device(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "Name": f"Device {number}",
        "UUID": f"GPU-{number}{number}{number}-abc",
        "MemoryInfo": SimpleNamespace(total=80 << 30, used=2 << 30),
        "CudaComputeCapability": (9, 0),
        "EnforcedPowerLimit": 700_000,
        "MaxPcieLinkGeneration": 5,
        "MaxPcieLinkWidth": 16,
        "ComputeRunningProcesses": [],
        "CurrentClocksThrottleReasons": 0,
        **changed,
    }


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(library: Library) -> Library:
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return put


def names(found: tuple[Accelerator, ...]) -> list[str]:
    return [it.name for it in found]


def test_a_device_is_described_in_full(install: Any, tmp_path: Path) -> None:
    library = install(
        Library([device(0, ComputeRunningProcesses=[SimpleNamespace(pid=1)], CurrentClocksThrottleReasons=0x45)])
    )
    assert accelerators(tmp_path, {}) == (
        Accelerator(
            kind="cuda",
            name="Device 0",
            memory_bytes=80 << 30,
            capability="9.0",
            driver="580.65.06",
            native_dtypes=("float32", "float16", "tf32", "bfloat16", "float8"),
            power_limit_watts=700.0,
            pcie="generation 5 x16",
            other_processes=1,
            used_bytes=2 << 30,
            throttled=("power cap", "temperature (hardware)"),
        ),
    )
    assert library.open == 0


def test_no_driver_is_no_device(install: Any, tmp_path: Path) -> None:
    install(Library([device(0)], unsupported=frozenset({"Init"})))
    assert accelerators(tmp_path, {}) == ()


def test_unanswered_questions_stay_empty(install: Any, tmp_path: Path) -> None:
    questions = frozenset(device(0)) - {"Name", "UUID"}
    library = install(Library([device(0)], unsupported=questions))
    assert accelerators(tmp_path, {}) == (
        Accelerator(kind="cuda", name="Device 0", memory_bytes=0, driver="580.65.06"),
    )
    assert library.open == 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["Device 1"]),
        ("2, 0", ["Device 2", "Device 0"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["Device 0"]),
        ("GPU-222", ["Device 2"]),
        ("GPU-111-abc,0", ["Device 1", "Device 0"]),
        ("GPU-999", []),
        ("MIG-none", []),
        ("nonsense", []),
    ],
)
def test_hidden_devices_are_not_there(install: Any, tmp_path: Path, visible: str, expected: list[str]) -> None:
    install(Library([device(0), device(1), device(2)]))
    assert names(accelerators(tmp_path, {"CUDA_VISIBLE_DEVICES": visible})) == expected
    assert len(accelerators(tmp_path, {})) == 3


def in_torch(number: int, **changed: Any) -> TorchDevice:
    fields = {"name": f"Device {number}", "uuid": f"{number}{number}{number}-ABC", "capability": "9.0", **changed}
    return TorchDevice(kind="cuda", memory_bytes=79 << 30, **fields)


def test_devices_stand_in_torchs_order(install: Any, tmp_path: Path) -> None:
    install(Library([device(0), device(1, EnforcedPowerLimit=300_000), device(2)]))
    found = as_torch_sees_them([in_torch(1), in_torch(0)], accelerators(tmp_path, {}), {})
    assert [(it.name, it.memory_bytes, it.power_limit_watts) for it in found] == [
        ("Device 1", 79 << 30, 300.0),
        ("Device 0", 79 << 30, 700.0),
    ]


def test_without_the_drivers_library_torch_is_enough(install: Any, tmp_path: Path) -> None:
    install(Library([], unsupported=frozenset({"Init"})))
    found = as_torch_sees_them([in_torch(0, capability="7.5")], accelerators(tmp_path, {}), {})
    assert found == (
        Accelerator(
            kind="cuda",
            name="Device 0",
            memory_bytes=79 << 30,
            capability="7.5",
            native_dtypes=("float32", "float16"),
        ),
    )


def test_a_slice_of_a_device_has_its_own_memory(install: Any, tmp_path: Path) -> None:
    install(Library([device(0)]))
    (found,) = as_torch_sees_them(
        [in_torch(0, name="Device 0 MIG 1g.10gb", uuid="another")], accelerators(tmp_path, {}), {}
    )
    assert (found.name, found.memory_bytes, found.driver) == ("Device 0 MIG 1g.10gb", 79 << 30, "580.65.06")


def test_what_the_driver_reports_is_kept_where_torch_finds_nothing(install: Any, tmp_path: Path) -> None:
    install(Library([device(0)]))
    known = accelerators(tmp_path, {})
    assert as_torch_sees_them([], known, {}) == known


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((6, 1), ("float32",)),
        ((7, 5), ("float32", "float16")),
        ((8, 0), ("float32", "float16", "tf32", "bfloat16")),
        ((10, 0), ("float32", "float16", "tf32", "bfloat16", "float8")),
    ],
)
def test_dtypes_come_with_generations(capability: tuple[int, int], expected: tuple[str, ...]) -> None:
    assert claimed_dtypes(capability) == expected


def test_amd_from_the_kernels_topology(install: Any, tmp_path: Path) -> None:
    install(Library([], unsupported=frozenset({"Init"})))
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, text in enumerate(["cpu_cores_count 64\nsimd_count 0\n", "simd_count 440\ngfx_target_version 90010\n"]):
        (nodes / f"{number}/mem_banks/0").mkdir(parents=True)
        (nodes / f"{number}/properties").write_text(text, encoding="utf-8")
        bank = "heap_type 1\nsize_in_bytes 68702699520\n"
        (nodes / f"{number}/mem_banks/0/properties").write_text(bank, encoding="utf-8")
    (nodes / "1/name").write_text("aldebaran\n", encoding="utf-8")
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.3.6\n", encoding="utf-8")
    assert accelerators(tmp_path, {}) == (
        Accelerator(kind="rocm", name="aldebaran", memory_bytes=68702699520, capability="gfx90a", driver="6.3.6"),
    )


@pytest.mark.gpu
def test_the_real_device_agrees_with_torch() -> None:
    import torch

    found = accelerators()
    assert len(found) == torch.cuda.device_count()
    assert found[0].name == torch.cuda.get_device_name(0)
    major, minor = torch.cuda.get_device_capability(0)
    assert found[0].capability == f"{major}.{minor}"
