"""What a model returns for each of its inputs, as a numpy archive, with a digest of each of its weights.

The keys are ``0/output.logits`` and so on, by the number of the input, and ``weights`` with the digests and sizes.
Of ``generate()`` tokens are compared, under greedy decoding: ``prompts`` are the lengths of the prompts within them.
Where the user has a metric, ``scores/0`` are the scores of all inputs, and ``scores/8`` those without the first 8.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from hotlap.levers.support.engines import calibration_count
from hotlap.levers.support.structures import named_tensors
from hotlap.records import CaptureOutputs
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.scores import kept_output, scores_of
from hotlap.runtime.tokens import sequences_of

FILE_NAME = "outputs.npz"
MAXIMUM_ELEMENTS = 50_000_000


def install(place: Place, asked: CaptureOutputs) -> None:
    """From the first call on, until each input had its turn."""
    capture = _Capture(place, asked)
    place.hooks.looks_into_engine = True
    place.hooks.model_found.append(capture.found)
    place.hooks.before_forward.append(capture.prepare)
    place.hooks.after_forward.append(capture.keep)
    place.hooks.before_exit.append(capture.write)


class _Capture:
    def __init__(self, place: Place, asked: CaptureOutputs) -> None:
        self._hooks = place.hooks
        self._path = place.directory / FILE_NAME
        self._in_float32 = asked.in_float32
        self._arrays: dict[str, Any] = {}
        self._calls = 0
        self._left = MAXIMUM_ELEMENTS
        self._for_metric: dict[int, Any] = {}
        self._prompts: list[int] = []

    def found(self, model: Any) -> None:
        """Before any lever changes it."""
        import numpy

        weights = [(_digest(self._hooks.torch, it), it.numel()) for it in model.parameters()]
        self._arrays["weights"] = numpy.array(weights, dtype=numpy.int64).reshape(-1, 2)
        if self._in_float32:
            model.float()

    def prepare(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """In the model's format, where that is not the inputs'."""
        if self._hooks.generation is not None:
            kwargs = {**kwargs, "do_sample": False}
        if not self._in_float32:
            return args, kwargs
        return tuple(map(self._widened, args)), {name: self._widened(it) for name, it in kwargs.items()}

    def _widened(self, value: Any) -> Any:
        torch = self._hooks.torch
        is_half = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
        return value.float() if is_half else value

    def keep(self, model: Any, output: Any) -> None:
        """The tensors of one output, if its input has not had its turn before and there is room."""
        number, torch = self._calls, self._hooks.torch
        self._calls += 1
        if self._hooks.metric is not None and number < self._hooks.inputs:
            self._for_metric[number] = kept_output(torch, output)
            if number == self._hooks.inputs - 1:
                self._evaluate(*self._hooks.metric)
        if number >= self._hooks.inputs or self._left <= 0:
            return
        if self._hooks.generation is not None:
            self._prompts.append(self._hooks.generation.prompt_length)
            output = sequences_of(output)
        for name, tensor in named_tensors(output):
            held = tensor.detach().cpu()
            held = held.to_dense() if held.layout != torch.strided else held
            held = held.float() if held.dtype in (torch.bfloat16, torch.float16) else held
            self._left -= held.numel()
            self._arrays[f"{number}/{name}"] = held.contiguous().numpy().copy()

    def _evaluate(self, name: str, evaluate: Callable[..., Any]) -> None:
        """Without the inputs that calibrated the model; of the reference with and without those that would."""
        import numpy

        engine = self._hooks.found.get("engine")
        first = engine.calibrated_inputs if engine is not None else 0
        for it in {first, calibration_count(self._hooks.inputs)} if self._in_float32 else {first}:
            outputs = {number: output for number, output in self._for_metric.items() if number >= it}
            self._arrays[f"scores/{it}"] = numpy.array(scores_of(evaluate, outputs, name), dtype=numpy.float64)
        self._for_metric.clear()

    def write(self) -> None:
        """Once, at the end."""
        import numpy

        if self._prompts:
            self._arrays["prompts"] = numpy.array(self._prompts, dtype=numpy.int64)
        numpy.savez(self._path, **self._arrays)
        self._hooks.outputs_path = str(self._path)


def _digest(torch: Any, parameter: Any) -> int:
    held = parameter.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(held.view(torch.uint8).numpy().tobytes())
