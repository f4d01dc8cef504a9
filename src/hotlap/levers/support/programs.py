"""Write a model that torch itself runs as a program that can be deployed, in the form that levers gave it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from hotlap.levers.support.engines import Arguments, Calls, Engine
from hotlap.levers.support.structures import named_tensors

Prepare: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Arguments]

PACKAGE = "model.pt2"


def program_engine(compile_mode: str) -> Engine:
    """Return the engine of a torch.export program or, for a model that was compiled in some mode, of AOTInductor."""
    if not compile_mode:
        return _engine("torch.export", "exported_program", _save)
    options = {"max_autotune": True} if compile_mode == "max-autotune" else {}
    return _engine("AOTInductor", "aot_inductor", functools.partial(compile_package, options))


def _engine(name: str, loader: str, build: Callable[[Calls, Path], int]) -> Engine:
    return Engine(
        name=name,
        package="torch",
        build=build,
        loader=loader,
        inspect=lambda report, folder: report,
        takes_numpy=False,
        precision="",
    )


def as_called(torch: ModuleType, model: Any, prepares: Sequence[Prepare], example: Arguments) -> Any:
    """Return a module that converts its inputs as the levers do before each call, and computes under their autocast.

    Raises what the levers' conversions raise.
    """
    args, kwargs = example
    converting: list[Prepare] = []
    for prepare in prepares:
        found = prepare(model, args, kwargs)
        if not _same_tensors(found, (args, kwargs)):
            converting.append(prepare)
        args, kwargs = found
    device = device_of(model)
    # What a lever entered around the calls is not recorded by the export, so the exported model enters it by itself.
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    @functools.wraps(model.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        for prepare in converting:
            args, kwargs = prepare(model, args, kwargs)
        with torch.autocast(device, dtype) if dtype is not None else nullcontext():
            return model(*args, **kwargs)

    base: Any = torch.nn.Module

    class AsCalled(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.forward = forward

    return AsCalled().train(model.training)


def device_of(model: Any) -> str:
    """Return the kind of device that holds the model."""
    return str(next((it.device.type for it in model.parameters()), "cpu"))


@contextmanager
def uncompiled(model: Any) -> Iterator[None]:
    """Call the model and its parts as if they were not compiled: an export records their own code.

    ``Module.compile`` keeps its result in ``_compiled_call_impl`` (torch 2.6 to 2.13); the public alternative,
    ``torch.compiler.set_stance``, is refused while an export records.
    """
    kept = [(it, it._compiled_call_impl) for it in model.modules() if it._compiled_call_impl is not None]
    for module, _ in kept:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, compiled in kept:
            module._compiled_call_impl = compiled


def _save(calls: Calls, folder: Path) -> int:
    program = calls.exported()
    program.example_inputs = None  # the user's data stays where it is
    calls.torch.export.save(program, folder / PACKAGE)
    return 0


def compile_package(options: Mapping[str, Any], calls: Calls, folder: Path, module: Any = None) -> int:
    """Compile the model, or ``module`` in its place, ahead of time with these options of Inductor.

    As :class:`Engine`'s ``build`` it returns 0.
    """
    program = calls.exported(module)
    with calls.torch.no_grad():
        calls.torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / PACKAGE), inductor_configs=dict(options)
        )
    return 0


def _same_tensors(one: Arguments, other: Arguments) -> bool:
    first, second = ([tensor for _, tensor in named_tensors(it)] for it in (one, other))
    return all(a is b for a, b in zip(first, second, strict=True))
