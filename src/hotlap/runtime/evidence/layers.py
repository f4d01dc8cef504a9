"""The layers with weights, as one training forward used them, and which of them a batch-norm follows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from hotlap.evidence import LayerUse
from hotlap.runtime import compile_report
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

STEP_WATCHED = 2
"""The number of steps done before the watched one: by then it shows whether the script compiles its model."""

_WEIGHTS = (("weight", "bias"), ("in_proj_weight", "in_proj_bias"), ("weight_ih_l0", "bias_ih_l0"))


class LayerWatch:
    """Hangs hooks on the modules inside each root for one forward, and takes them off again.

    A hook makes a compiled graph be compiled again, so nothing is watched where anything is compiled. Modules in
    evaluation mode are left alone too: with hooks on them torch may choose another kernel.
    """

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._hooks = interception.hooks
        self._clock = clock
        self._handles: list[Any] = []
        self._watched: set[int] = set()
        self._layers: dict[int, _Layer] = {}
        self._made: dict[int, tuple[weakref.ref[Any], int, _Layer]] = {}
        self._hooks.before_forward.append(self._forward_begins)
        self._hooks.after_forward.append(self._forward_ends)
        self._hooks.step_ended.append(self._step_ended)

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._take_off()  # a forward that failed never came to its end
        if self._clock.steps_done == STEP_WATCHED and id(root) not in self._watched:
            self._watched.add(id(root))
            if root.training and not compile_report.anything_compiled(self._torch, root):
                self._hang_on(root)
        return args, kwargs

    def _forward_ends(self, root: Any, output: Any) -> None:
        self._take_off()

    def _step_ended(self) -> None:
        """All is seen after the watched step. (The list of those who are told now is being walked through: a new one
        takes its place.)"""
        if self._clock.steps_done > STEP_WATCHED:
            self._take_off()
            self._hooks.before_forward.remove(self._forward_begins)
            self._hooks.after_forward.remove(self._forward_ends)
            self._hooks.step_ended = [it for it in self._hooks.step_ended if it != self._step_ended]

    def _hang_on(self, root: Any) -> None:
        batch_norm = self._torch.nn.modules.batchnorm._BatchNorm
        for name, module in root.named_modules():
            if not module.training or isinstance(module, self._torch.jit.ScriptModule):
                continue
            if isinstance(module, batch_norm):
                self._handles.append(module.register_forward_hook(self._normalised))
            elif any(weight in module._parameters for weight, _ in _WEIGHTS):
                self._handles.append(module.register_forward_hook(self._used(name)))

    def _take_off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._made.clear()

    def _used(self, name: str) -> Callable[[Any, Any, Any], None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            layer = self._layers.get(id(module)) or _layer(name, module)
            if layer is None:
                return
            self._layers[id(module)] = layer
            if isinstance(output, self._torch.Tensor) and not output.is_inference():
                self._made[id(output)] = (weakref.ref(output), output._version, layer)

        return hook

    def _normalised(self, module: Any, args: Any, normalised: Any) -> None:
        """A batch-norm took its input. Nothing came in between where that is a layer's very output, unchanged."""
        made = self._made.get(id(args[0])) if args else None
        if made is not None:
            reference, version, layer = made
            output = reference()
            if output is not None and output is args[0] and output._version == version:
                layer.normalised_after = True

    def result(self) -> dict[str, object]:
        """The field ``layers``: those that are alike but for the name as one, in the order of their first use."""
        alike: dict[tuple[Any, ...], list[_Layer]] = {}
        for layer in self._layers.values():
            alike.setdefault((layer.kind, layer.shape, layer.bias, layer.normalised_after), []).append(layer)
        return {
            "layers": tuple(
                LayerUse(
                    kind=kind,
                    name=layers[0].name,
                    weight_shape=shape,
                    bias=bias,
                    normalised_after=normalised_after,
                    count=len(layers),
                )
                for (kind, shape, bias, normalised_after), layers in alike.items()
            )
        }


class _Layer:
    __slots__ = ("bias", "kind", "name", "normalised_after", "shape")

    def __init__(self, kind: str, name: str, shape: tuple[int, ...], bias: bool) -> None:
        self.kind = kind
        self.name = name
        self.shape = shape
        self.bias = bias
        self.normalised_after = False


def _layer(name: str, module: Any) -> _Layer | None:
    """None where the weight is no matrix (a normalisation's scale). Only what is registered is read: a weight that is
    computed, by a parametrisation for example, would be computed once more."""
    for weight, bias in _registered(module):
        if weight.dim() >= 2:
            shape = tuple(int(size) for size in weight.shape)
            return _Layer(type(module).__name__, name, shape, bias is not None)
    return None


def _registered(module: Any) -> Iterator[tuple[Any, Any]]:
    parameters = module._parameters
    for weight, bias in _WEIGHTS:
        if parameters.get(weight) is not None:
            yield parameters[weight], parameters.get(bias)
