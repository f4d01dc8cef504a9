"""Engines for NVIDIA GPUs, without one: how they are skipped, and what can be run with a stand-in."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.machinery
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch
from inference.test_inference_levers import SITUATION

from hotlap.levers.api import find
from hotlap.levers.inference import onnx_runtime_gpu, tensorrt
from hotlap.levers.support import engines
from hotlap.records import Accelerator, EngineReport, Machine, Setting, Situation, Skipped

PACKAGES = {
    "onnx-runtime-gpu": ("onnx", "onnxruntime-gpu", "onnxscript"),
    "tensorrt": ("torch_tensorrt",),
}
LOADER = Path(engines.__file__).parent / "loaders" / "onnx_runtime_gpu.py"
EXTRAS = {"onnx-runtime-gpu": "onnx-gpu", "tensorrt": "tensorrt"}


def on_gpu(*packages: str, kind: Any = "cuda") -> Situation:
    device = Accelerator(kind=kind, name="GPU", memory_bytes=2**34, native_dtypes=("float32", "float16", "bfloat16"))
    facts = msgspec.structs.replace(SITUATION.facts, device="cuda:0", packages=packages)
    return msgspec.structs.replace(SITUATION, facts=facts, machine=Machine(cores=2, accelerators=(device,)))


@pytest.mark.parametrize("name", PACKAGES)
def test_without_a_gpu_it_is_skipped(name: str) -> None:
    skipped = find(name).obstacle(SITUATION)
    assert skipped == Skipped(reason="It runs models on NVIDIA GPUs, and this one is on cpu.")
    amd = find(name).obstacle(on_gpu(*PACKAGES[name], kind="rocm"))
    assert isinstance(amd, Skipped) and "NVIDIA" in amd.reason


@pytest.mark.parametrize("name", PACKAGES)
def test_without_its_packages_it_is_skipped_with_what_installs_them(name: str) -> None:
    skipped = find(name).obstacle(on_gpu("onnxruntime"))
    assert isinstance(skipped, Skipped)
    assert f'pip install "hotlap[{EXTRAS[name]}]"' in skipped.reason and PACKAGES[name][-1] in skipped.reason


@pytest.mark.parametrize("name", PACKAGES)
def test_on_a_gpu_it_is_tried_in_half_precision_first(name: str) -> None:
    lever, situation = find(name), on_gpu(*PACKAGES[name])
    assert lever.obstacle(situation) is None
    precisions = [dict(it.values)["precision"] for it in lever.candidates(situation)]
    assert precisions[0] == "float16" and precisions[-1] == "float32"
    assert not any("tensorrt" in dict(it.values).values() for it in lever.candidates(situation))


def test_the_provider_of_tensorrt_is_tried_where_it_is_installed() -> None:
    situation = on_gpu(*PACKAGES["onnx-runtime-gpu"], "tensorrt")
    first, *_ = find("onnx-runtime-gpu").candidates(situation)
    assert dict(first.values) == {"provider": "tensorrt", "precision": "float16"}
    made = onnx_runtime_gpu.engine(first)
    names = [name for name, _ in made.contract["providers"]]
    assert names == ["TensorrtExecutionProvider", "CUDAExecutionProvider"], "it needs the other for what it lacks"
    assert made.contract["providers"][0][1]["trt_fp16_enable"] == "1"


def test_engines_for_cpus_are_not_tried_on_a_gpu() -> None:
    for name in ("onnx-runtime", "openvino", "torchao-int8"):
        skipped = find(name).obstacle(on_gpu("onnx", "onnxruntime", "onnxscript", "openvino", "torchao"))
        assert isinstance(skipped, Skipped) and "only tried on CPUs" in skipped.reason


# -- ONNX Runtime ----------------------------------------------------------------------------------------


class FakeBinding:
    """Reads and writes at the addresses that it is given, as ONNX Runtime does; the model doubles its input."""

    def __init__(self, log: list[str]) -> None:
        self._log = log
        self._inputs: dict[str, torch.Tensor] = {}
        self._outputs: list[str] = []

    def bind_input(self, name: str, device: str, number: int, kind: Any, shape: Sequence[int], address: int) -> None:
        self._log.append(f"{name} {device} {kind} {tuple(shape)}")
        held = (ctypes.c_float * math.prod(shape)).from_address(address)
        self._inputs[name] = torch.tensor(list(held)).reshape(tuple(shape))

    def bind_output(self, name: str, device: str) -> None:
        self._outputs.append(f"{name} {device}")

    def synchronize_outputs(self) -> None:
        self._log.append("synchronized")

    def get_outputs(self) -> list[torch.Tensor]:
        assert self._outputs == ["output cpu"]
        return [2 * self._inputs["rows"]]


def empty_module(name: str) -> Any:
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)  # torch's compiler looks for some packages by theirs
    return made


def fake_onnx_runtime(available: Sequence[str], log: list[str]) -> Any:
    class Session:
        def __init__(self, path: Path, options: Any, providers: Sequence[tuple[str, dict[str, str]]]) -> None:
            log.extend(f"{name} {values}" for name, values in providers)

        def get_providers(self) -> list[str]:
            return list(available)

        def get_outputs(self) -> list[Any]:
            return [type("Output", (), {"name": "output"})]

        def io_binding(self) -> FakeBinding:
            return FakeBinding(log)

        def run_with_iobinding(self, binding: FakeBinding) -> None:
            log.append("run")

    made = empty_module("onnxruntime")
    made.SessionOptions = type("Options", (), {})
    made.InferenceSession = Session
    return made


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The loader's function, with a stand-in for ONNX Runtime that has these providers."""

    def load(folder: Path, available: Sequence[str], log: list[str]) -> Any:
        monkeypatch.setitem(sys.modules, "onnxruntime", fake_onnx_runtime(available, log))
        spec = importlib.util.spec_from_file_location("loader", LOADER)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load(folder, threads=2)

    return load


def written_contract(folder: Path, providers: list[Any]) -> Path:
    contract = {"threads": 0, "providers": providers, "runs_on": "cpu", "inputs": [], "outputs": []}
    (folder / "contract.json").write_text(json.dumps(contract))
    return folder


def test_the_loader_binds_tensors_where_they_are(tmp_path: Path, load: Callable[..., Any]) -> None:
    log: list[str] = []
    folder = written_contract(tmp_path, [["CUDAExecutionProvider", {"cache_path": "engines", "device_id": "0"}]])
    run = load(folder, ["CUDAExecutionProvider"], log)
    rows = torch.arange(6.0).reshape(3, 2).T  # not contiguous
    found = run(rows=rows)
    assert torch.equal(found["output"], 2 * rows)
    cached = {"cache_path": str(tmp_path / "engines"), "device_id": "0"}
    assert log == [f"CUDAExecutionProvider {cached}", "rows cpu float32 (2, 3)", "run", "synchronized"]


def test_the_loader_does_not_fall_back_to_the_cpu(tmp_path: Path, load: Callable[..., Any]) -> None:
    folder = written_contract(tmp_path, [["CUDAExecutionProvider", {}]])
    with pytest.raises(RuntimeError, match="cannot load CUDAExecutionProvider; it has CPUExecutionProvider"):
        load(folder, ["CPUExecutionProvider"], [])


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()


def calls_of(model: torch.nn.Module, *sizes: int) -> engines.Calls:
    return engines.Calls(torch, model, [((torch.randn(it, 16),), {}) for it in sizes])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the export
@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason='not installed: pip install "hotlap[onnx]"')
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_the_graph_runs_with_the_provider_of_the_cpu_as_a_stand_in(tmp_path: Path, precision: str) -> None:
    values = (("precision", precision), ("provider", "cuda"))
    made = onnx_runtime_gpu.engine(Setting(lever="onnx-runtime-gpu", values=values))
    providers = {"providers": [["CPUExecutionProvider", {}]], "runs_on": "cpu"}
    on_cpu = dataclasses.replace(made, package="onnxruntime", contract=providers)
    model = network()
    calls = calls_of(model, 2, 4, 8)
    engines.build(on_cpu, calls, tmp_path)
    run = engines.called_by_tensors(calls, engines.load(on_cpu, tmp_path, 1), takes_numpy=False)
    rows = torch.randn(5, 16)
    with torch.no_grad():
        expected = model(rows)
    error = float((run(rows) - expected).norm() / expected.norm())
    assert (error < 1e-6) == (precision == "float32") and error < 1e-2
    found = onnx_runtime_gpu.inspect(EngineReport(engine="ONNX Runtime", precision=precision), tmp_path)
    assert found.precision == precision and found.operators > 0
    assert "onnxruntime==" in (tmp_path / "requirements.txt").read_text()
    idle = json.loads((tmp_path / "contract.json").read_text())
    idle["providers"].insert(0, ["CUDAExecutionProvider", {}])
    (tmp_path / "contract.json").write_text(json.dumps(idle))
    assert onnx_runtime_gpu.inspect(found, tmp_path).operators == 0, "a provider that took nothing"


# -- Torch-TensorRT --------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A module with the two functions that are used, whose engine is the exported model; what it was called with."""
    given: list[Any] = []

    @torch.library.custom_op("tensorrt::execute_engine_stand_in", mutates_args=())
    def execute(value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    execute.register_fake(torch.empty_like)

    class WithEngine(torch.nn.Module):
        def __init__(self, program: Any) -> None:
            super().__init__()
            self.model = program.module()

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(execute(it) for it in self.model(*tensors))

    def compile_program(program: Any, **options: Any) -> Any:
        given.append(options)
        return WithEngine(program)

    def save(compiled: Any, path: str, arg_inputs: Sequence[Any]) -> None:
        given.append(arg_inputs)
        example = [torch.zeros(it["max_shape"]) if isinstance(it, dict) else it for it in arg_inputs]
        varies = any(isinstance(it, dict) for it in arg_inputs)
        shapes = (tuple({0: torch.export.Dim.DYNAMIC} for _ in example),) if varies else None
        torch.export.save(torch.export.export(compiled, tuple(example), dynamic_shapes=shapes), path)

    made = empty_module("torch_tensorrt")
    made.Input = dict
    made.dynamo = type("dynamo", (), {"compile": staticmethod(compile_program)})
    made.save = save
    monkeypatch.setitem(sys.modules, "torch_tensorrt", made)
    return given


@pytest.mark.parametrize(("sizes", "varies"), [((2, 4, 8), True), ((4, 4), False)])
def test_torch_tensorrt_is_called_with_the_range_of_shapes(
    tmp_path: Path, stand_in: list[Any], sizes: tuple[int, ...], varies: bool
) -> None:
    made = tensorrt.engine(Setting(lever="tensorrt", values=(("precision", "float16"),)))
    model = network()
    calls = calls_of(model, *sizes)
    engines.build(made, calls, tmp_path)
    options, saved = stand_in
    assert options["enable_autocast"] and options["autocast_low_precision_type"] is torch.float16
    (ranges,) = options["arg_inputs"]
    if varies:
        assert (ranges["min_shape"], ranges["opt_shape"], ranges["max_shape"]) == ((2, 16), (8, 16), (8, 16))
        assert saved == options["arg_inputs"]
    else:
        assert ranges["shape"] == (4, 16) and isinstance(saved[0], torch.Tensor)
    run = engines.called_by_tensors(calls, engines.load(made, tmp_path, 1), takes_numpy=False)
    rows = torch.randn(4, 16)
    with torch.no_grad():
        assert torch.allclose(run(rows), model(rows), atol=1e-6)


def test_a_program_without_an_engine_ran_nothing(tmp_path: Path, stand_in: list[Any]) -> None:
    report = EngineReport(engine="TensorRT", precision="float32")
    made = tensorrt.engine(Setting(lever="tensorrt", values=(("precision", "float32"),)))
    calls = calls_of(network(), 4, 4)
    engines.build(made, calls, tmp_path)
    assert "autocast_low_precision_type" not in stand_in[0]
    found = made.inspect(report, tmp_path)
    assert found.operators == 1 and {it.name for it in found.by_provider} == {"TensorRT", "torch"}
    with torch.no_grad():
        torch.export.save(calls.exported(), tmp_path / "model.pt2")
    assert made.inspect(report, tmp_path).operators == 0
