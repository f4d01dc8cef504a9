"""Shared by levers that run an inference target's model in another engine. Not a lever itself.

An engine gets the model as a function of named tensors (:class:`Calls`), writes its files into a folder, and is loaded
from there by the file of :mod:`hotlap.levers.support.loaders` that is deployed with it.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from hotlap.levers.support.situations import accelerator, device_kind, without_model
from hotlap.levers.support.structures import named_tensors, rebuilt
from hotlap.records import BUILT_ENGINES, EngineReport, NoSourceForm, OperatorShare, Setting, Situation, Skipped

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
Named: TypeAlias = dict[str, Any]

CONTRACT, LOADER, REQUIREMENTS = "contract.json", "load.py", "requirements.txt"
"""The files of a deployed model besides the engine's own."""

_BUILT = "built.json"

NOT_IN_SOURCE = (NoSourceForm(reason="The engine runs an exported model, which cannot be written into the source."),)
"""What every engine's lever says of a patch."""

MOST_CALIBRATION_INPUTS = 64
FEWEST_CALIBRATION_INPUTS = 4


@dataclass(frozen=True, slots=True)
class Engine:
    """How a lever's engine writes its files into a folder, loads them, and describes its model.

    ``build`` gets the calls and the folder and returns how many of the first inputs it calibrated with. ``loader`` is
    the file of :mod:`hotlap.levers.support.loaders`. ``inspect`` gets the report so far and the folder, and returns it
    completed; it is called only if outputs are compared.
    """

    name: str
    package: str
    build: Callable[[Calls, Path], int]
    loader: str
    inspect: Callable[[EngineReport, Path], EngineReport]
    takes_numpy: bool = True
    precision: str = "float32"
    setting: Setting | None = None
    contract: Mapping[str, Any] = field(default_factory=dict)


class Calls:
    """A model as a function of named tensors: those of its arguments go in, those of its output come out.

    What is no tensor among the arguments becomes a constant of the exported model. Raises ValueError where the inputs
    differ in it, or in which tensors there are.
    """

    def __init__(self, torch: ModuleType, model: Any, inputs: Sequence[Arguments]) -> None:
        self.torch = torch
        self.model = model
        self.inputs = inputs
        self._names = tuple(_positional(model))
        self._flat: tuple[str, ...] = ()
        rows = [self.named(*it) for it in inputs]
        self._check_alike(rows)
        self.dynamic = {name: _varying([row[name].shape for row in rows]) for name in rows[0]}
        self.example = max(range(len(rows)), key=lambda it: self._size_of_varying(rows[it]))
        args, kwargs = inputs[self.example]
        with torch.no_grad():
            self._output = model(*args, **kwargs)
        self.outputs = {identifier(name): tensor for name, tensor in named_tensors(self._output)}
        # Without nesting a call is a few microseconds, as where an engine is called without hotlap.
        is_flat = all(map(_is_tensor, (*args, *kwargs.values())))
        self._flat = tuple(rows[self.example]) if is_flat else ()
        of_tensors = type(self._output) is dict and all(map(_is_tensor, self._output.values()))
        self._keys = tuple(zip(self._output, self.outputs, strict=True)) if of_tensors else ()
        self._single = _is_tensor(self._output)

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Named:
        """The tensors of a call by name, in the order in which the exported model takes them."""
        if self._flat:  # all inputs have the same tensors in the same order
            return dict(zip(self._flat, (*args, *kwargs.values()) if kwargs else args, strict=True))
        found: Named = {}
        for index, value in enumerate(args):
            name = self._names[index] if index < len(self._names) else f"input_{index}"
            _name_into(found, name, value)
        for name, value in kwargs.items():
            _name_into(found, name, value)
        return found

    def as_output(self, found: Named) -> Any:
        """Return what the model itself would have returned."""
        if self._keys:
            return {key: found[name] for key, name in self._keys}
        if self._single:
            return next(iter(found.values()))
        return rebuilt(self._output, iter([found[name] for name in self.outputs]))

    def calibration(self) -> Sequence[Arguments]:
        """The first inputs, which are kept from the comparison of outputs. Raises ValueError where there are too few
        for both."""
        count = calibration_count(len(self.inputs))
        if not count:
            raise ValueError(
                f"Calibration and the comparison of quality use different inputs, so quantizing needs at least "
                f"{2 * FEWEST_CALIBRATION_INPUTS}; there are {len(self.inputs)}."
            )
        return self.inputs[:count]

    def as_module(self) -> Any:
        """The model with a forward that takes only tensors and returns a tuple of tensors."""
        torch, model, example = self.torch, self.model, self.inputs[self.example]
        base: Any = torch.nn.Module

        class Flat(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *tensors: Any) -> tuple[Any, ...]:
                args, kwargs = rebuilt(example, iter(tensors))
                return tuple(it for _, it in named_tensors(self.model(*args, **kwargs)))

        return Flat().train(model.training)

    def example_tensors(self) -> tuple[Any, ...]:
        """Return those of the example that the model is exported with."""
        return tuple(self.named(*self.inputs[self.example]).values())

    def exported(self, module: Any = None) -> Any:
        """Export the model, or a module that takes the same tensors; sizes that differ between inputs stay open.

        Raises ValueError where what it computes depends on its inputs' data, with the line where torch names one, and
        what torch raises otherwise.
        """
        # torch has no public name for this error (2.6 to 2.13).
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        export = self.torch.export
        shapes = tuple(dict.fromkeys(dims, export.Dim.DYNAMIC) or None for dims in self.dynamic.values())
        try:
            with self.torch.no_grad():
                return export.export(
                    self.as_module() if module is None else module,
                    self.example_tensors(),
                    dynamic_shapes=(shapes,) if module is None else shapes,
                )
        except GuardOnDataDependentSymNode as error:
            raise ValueError(
                f"The model's control flow depends on the data of its inputs, which no export records"
                f"{_place_in(str(error))}: {str(error).partition(chr(10))[0]}"
            ) from error

    def contract(self, **more: Any) -> dict[str, Any]:
        """Return the exported model's inputs and outputs; a size of None may be any."""
        example = self.named(*self.inputs[self.example])
        inputs = [
            {
                "name": name,
                "dtype": _dtype(it),
                "shape": [None if i in self.dynamic[name] else n for i, n in _sizes(it)],
            }
            for name, it in example.items()
        ]
        outputs = [{"name": name, "dtype": _dtype(it)} for name, it in self.outputs.items()]
        return {"inputs": inputs, "outputs": outputs, **more}

    def _check_alike(self, rows: Sequence[Named]) -> None:
        first = _without_tensors(self.inputs[0])
        for number, row in enumerate(rows):
            if list(row) != list(rows[0]) or any(row[it].dim() != rows[0][it].dim() for it in row):
                raise ValueError(
                    f"Input {number} has other tensors than input 0, and an exported model has one signature."
                )
            if _without_tensors(self.inputs[number]) != first:
                raise ValueError(f"Input {number} differs from input 0 in a value that is not a tensor.")

    def _size_of_varying(self, row: Named) -> int:
        """Export treats a size of 1 as a constant, so the largest input is the example."""
        size = 1
        for name, dims in self.dynamic.items():
            for dim in dims:
                size *= row[name].shape[dim]
        return size


def _is_tensor(it: Any) -> bool:
    return hasattr(it, "dim") and hasattr(it, "element_size")


def calibration_count(inputs: int) -> int:
    """How many of the first inputs calibrate a quantization; 0 if there are too few for both."""
    count = min(MOST_CALIBRATION_INPUTS, inputs // 2)
    return count if count >= FEWEST_CALIBRATION_INPUTS else 0


def take_over(hooks: Hooks, engine: Engine) -> None:
    """Run the model with the engine, without a fallback to torch if it fails."""
    torch = hooks.torch

    def make(model: Any, inputs: Sequence[Arguments]) -> Callable[..., Any]:
        calls = Calls(torch, model, inputs)
        if hooks.artefact is not None:
            built = _build_into(hooks.artefact, engine, calls)
        elif BUILT_ENGINES in os.environ:
            built = _built_once(Path(os.environ[BUILT_ENGINES]), engine, calls)
        else:
            built = _build_into(_temporary_folder(hooks), engine, calls)
        began = time.perf_counter()
        run = load(engine, built.folder, torch.get_num_threads())
        report = EngineReport(
            engine=engine.name,
            version=version_of(engine.package),
            precision=engine.precision,
            calibrated_inputs=built.calibrated,
            load_seconds=built.seconds + time.perf_counter() - began,
            build_seconds=built.seconds,
            size_bytes=sum(it.stat().st_size for it in built.folder.rglob("*") if it.is_file()),
        )
        hooks.found["engine"] = engine.inspect(report, built.folder) if hooks.looks_into_engine else report
        return called_by_tensors(calls, run, takes_numpy=engine.takes_numpy)

    hooks.takes_over.append(make)


@dataclass(frozen=True, slots=True)
class _Built:
    """An engine's files, with how many inputs calibrated them, and how long it took to write them."""

    folder: Path
    calibrated: int
    seconds: float


def _build_into(folder: Path, engine: Engine, calls: Calls) -> _Built:
    began = time.perf_counter()
    calibrated = build(engine, calls, folder)
    return _Built(folder, calibrated, time.perf_counter() - began)


def _built_once(parent: Path, engine: Engine, calls: Calls) -> _Built:
    """What an earlier launch of the study built of the same model and inputs, or else what this one does."""
    kept = parent / _digest(engine, calls)
    if not (kept / _BUILT).is_file():
        making = Path(tempfile.mkdtemp(dir=parent))
        built = _build_into(making, engine, calls)
        (making / _BUILT).write_text(json.dumps({"calibrated": built.calibrated, "seconds": built.seconds}))
        try:
            making.rename(kept)
        except OSError:  # another launch was faster, and its files are the same
            shutil.rmtree(making, ignore_errors=True)
    found = json.loads((kept / _BUILT).read_text())
    return _Built(kept, int(found["calibrated"]), float(found["seconds"]))


def _digest(engine: Engine, calls: Calls) -> str:
    """Of the setting, and of every weight and input: a different model or calibration gives different files."""
    found = hashlib.sha256(f"{engine.package} {engine.setting}".encode())
    rows = [calls.named(*it) for it in calls.inputs]
    for name, tensor in (*calls.model.state_dict().items(), *(it for row in rows for it in row.items())):
        found.update(f"{name} {getattr(tensor, 'dtype', '')} {getattr(tensor, 'shape', '')}".encode())
        if isinstance(tensor, calls.torch.Tensor):
            held = tensor.detach().cpu().contiguous().reshape(-1)
            found.update(held.view(calls.torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _temporary_folder(hooks: Hooks) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hotlap-engine-"))
    hooks.before_exit.append(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


def build(engine: Engine, calls: Calls, folder: Path) -> int:
    """Write the engine's files, contract, loader and requirements into the folder; how many inputs it was calibrated
    with."""
    arrays = "numpy" if engine.takes_numpy else "torch"
    precision = {"precision": engine.precision} if engine.precision else {}
    contract = calls.contract(arrays=arrays, threads=0, **precision, **engine.contract)
    (folder / CONTRACT).write_text(json.dumps(contract, indent=2))
    shutil.copyfile(str(_loader(engine).__file__), folder / LOADER)
    packages = dict.fromkeys((engine.package, "numpy" if engine.takes_numpy else "torch"))
    (folder / REQUIREMENTS).write_text("".join(map(_requirement, packages)))
    return engine.build(calls, folder)


def load(engine: Engine, folder: Path, threads: int) -> Callable[..., Named]:
    """Load what :func:`build` wrote, by the file that is deployed with it."""
    run: Callable[..., Named] = _loader(engine).load(folder, threads)
    return run


def _loader(engine: Engine) -> ModuleType:
    return importlib.import_module(f"hotlap.levers.support.loaders.{engine.loader}")


def _requirement(package: str) -> str:
    """Return the exact version; a local one, such as torch's ``+cpu``, is in a comment, since no index may have it."""
    version = version_of(package)
    public, _, local = version.partition("+")
    return f"{package}=={public}" + (f"  # {version} was used" if local else "") + "\n"


def contract_of(folder: Path) -> dict[str, Any]:
    """Read the contract of a deployed model."""
    contract: dict[str, Any] = json.loads((folder / CONTRACT).read_text())
    return contract


def called_by_tensors(calls: Calls, run: Callable[..., Named], *, takes_numpy: bool) -> Callable[..., Any]:
    """Return a function with the arguments and the output of the model itself."""
    return _of_numpy(calls, run) if takes_numpy else _of_tensors(calls, run)


def _of_numpy(calls: Calls, run: Callable[..., Named]) -> Callable[..., Any]:
    from_numpy = calls.torch.from_numpy

    def call(*args: Any, **kwargs: Any) -> Any:
        found = run(**{name: it.numpy() for name, it in calls.named(args, kwargs).items()})
        return calls.as_output({name: from_numpy(it) for name, it in found.items()})

    return call


def _of_tensors(calls: Calls, run: Callable[..., Named]) -> Callable[..., Any]:
    return lambda *args, **kwargs: calls.as_output(run(**calls.named(args, kwargs)))


_NOT_IN_A_SCRIPT = (
    "It runs an exported model, which takes the place of the script's own: give `hotlap infer` functions that make the "
    "model and its inputs."
)


def obstacle_of(situation: Situation, packages: Sequence[str], extra: str) -> Skipped | None:
    """Why an engine cannot run the model: there is none, it is on a device, or what the engine needs is missing."""
    if without_single_calls(situation):
        return without_single_calls(situation)
    if device_kind(situation) != "cpu":
        return Skipped(reason=f"It is only tried on CPUs, and the model is on {situation.facts.device}.")
    return _missing(situation, packages, extra)


def gpu_obstacle_of(situation: Situation, packages: Sequence[str], extra: str) -> Skipped | None:
    """The same of an engine for NVIDIA's GPUs."""
    if without_single_calls(situation):
        return without_single_calls(situation)
    device = accelerator(situation)
    if device is None or device.kind != "cuda":
        return Skipped(reason=f"It runs models on NVIDIA GPUs, and this one is on {situation.facts.device}.")
    return _missing(situation, packages, extra)


def without_single_calls(situation: Situation) -> Skipped | None:
    """The obstacle of every engine: there is no model whose single calls hotlap itself makes."""
    if without_model(situation):
        return without_model(situation)
    if situation.facts.calls_in_script:
        return Skipped(reason=_NOT_IN_A_SCRIPT)
    if situation.facts.generation is not None:
        return Skipped(reason="It runs single calls of a model, and `generate()` makes many, each with a longer cache.")
    return None


def _missing(situation: Situation, packages: Sequence[str], extra: str) -> Skipped | None:
    missing = [it for it in packages if it not in situation.facts.packages]
    if missing:
        return Skipped(reason=f'It needs {", ".join(missing)}: pip install "hotlap[{extra}]".')
    return None


def shares(names: Iterable[str]) -> tuple[OperatorShare, ...]:
    """Count each, most first."""
    return tuple(OperatorShare(name=name, operators=count) for name, count in Counter(names).most_common())


def completed(
    report: EngineReport,
    *,
    precision: str,
    quantized: int,
    providers: Iterable[str] = (),
    precisions: Iterable[str] = (),
    operators: int = 0,
) -> EngineReport:
    """Complete the report from the engine's own graph."""
    by_provider, by_precision = shares(providers), shares(precisions)
    count = operators or sum(it.operators for it in by_provider or by_precision)
    return msgspec.structs.replace(
        report,
        precision=precision,
        operators=count,
        quantized=quantized,
        by_provider=by_provider,
        by_precision=by_precision,
    )


def quantized_linears(torch: ModuleType, root: Any, report: EngineReport) -> EngineReport:
    """Complete the report with the linear layers that torchao quantized: a tensor subclass of its replaces a weight."""
    linears = [it for it in root.modules() if isinstance(it, torch.nn.Linear)]
    kinds = ["int8" if type(it.weight).__module__.startswith("torchao.") else "float32" for it in linears]
    quantized = kinds.count("int8")
    return completed(report, precision="int8" if quantized else "float32", quantized=quantized, precisions=kinds)


def version_of(package: str) -> str:
    """Return the installed version; empty if the package has none."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


_LINE = re.compile(r'raised this error:\s+File "([^"]+)", line (\d+), in (\w+)')


def _place_in(message: str) -> str:
    """The line of the user's code that an export's error names."""
    found = _LINE.search(message)
    return f" ({Path(found[1]).name}, line {found[2]}, in {found[3]})" if found is not None else ""


def _positional(model: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # one written in C++
        return
    for it in parameters:
        if it.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            return
        yield it.name


def _name_into(found: Named, name: str, value: Any) -> None:
    for where, tensor in named_tensors(value, name):
        found[identifier(where)] = tensor


def identifier(name: str) -> str:
    """Return a name that every engine takes: ``output_hidden_0`` for ``output["hidden"][0]``."""
    return re.sub(r"\W+", "_", name).strip("_")


def _varying(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(dim for dim, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1)


def _sizes(tensor: Any) -> Iterator[tuple[int, int]]:
    return enumerate(int(it) for it in tensor.shape)


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _without_tensors(arguments: Arguments) -> Any:
    return rebuilt(arguments, itertools.repeat(None))
