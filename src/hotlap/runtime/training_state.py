"""What a step of training starts from, as a file: weights, buffers, and what optimizers remember.

Two processes of the same script list it in the same order, by which values find their place: optimizers as they were
made, their groups and weights, then the buffers of each model. What a lever holds otherwise (another memory layout,
another implementation of the optimizer) takes the values over as it holds them. Nothing is pickled.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotlap.runtime.whole_gradients import unwrapped

MOST_OF_A_WEIGHT = 65_536
"""So many elements of each weight, evenly spaced, show how a step changes it."""

_WIDE_BYTES = 8

UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)
"""What reading a damaged file, or one that is gone, raises."""


class OtherState(Exception):
    """The file holds another state than this process: of other tensors, or of other shapes."""


@dataclass(slots=True)
class TrainingState:
    """The state of all optimizers that were made so far, and of the models that ``roots`` returns."""

    torch: Any
    roots: Callable[[], Sequence[Any]]
    optimizers: list[Any] = field(default_factory=list)

    def weights(self) -> list[Any]:
        """The weights that optimizers hold, each once."""
        return _weights_of(self.optimizers)

    @property
    def size_in_bytes(self) -> int:
        """How much a file with this state takes, and one with what a step changes, and the gradients, of the sampled
        elements."""
        state = sum(it.numel() * it.element_size() for it in self._tensors())
        return int(state + sum(2 * _WIDE_BYTES * _sampled(it).numel() for it in self.weights()))

    def save(self, path: Path) -> None:
        """Raises :class:`OSError` if it cannot be written, and :class:`OtherState` if it has a form that no array of
        numpy has."""
        import numpy

        numpy.savez(path, **{f"{row}": self._array(it) for row, it in enumerate(self._tensors())})

    def load(self, path: Path) -> None:
        """Take over the values of a file. Raises :class:`OtherState`, and :data:`UNREADABLE` for a damaged one."""
        import numpy

        with path.open("rb") as file, numpy.load(file, allow_pickle=False) as rows, self.torch.no_grad():
            tensors = list(self._tensors())
            if len(rows.files) != len(tensors):
                raise OtherState(f"{len(rows.files)} tensors are not {len(tensors)}")
            arrays = [rows[f"{row}"] for row in range(len(tensors))]
            for array, tensor in zip(arrays, tensors, strict=True):
                if array.shape != tuple(tensor.shape):
                    raise OtherState(f"{array.shape} is not {tuple(tensor.shape)}")
            for array, tensor in zip(arrays, tensors, strict=True):
                tensor.copy_(self.torch.from_numpy(array))

    def sampled_weights(self) -> list[Any]:
        """Some elements of each weight, in float64: a copy."""
        return [_sampled(it).to("cpu", self.torch.float64, copy=True) for it in self.weights()]

    def sampled_gradients(self, optimizer: Any) -> dict[int, Any]:
        """The same elements of the gradients that an optimizer is about to use, by the identity of the weight. Raises
        :class:`OtherState` where one is sparse."""
        gradients = {id(it): it.grad for it in _weights_of([optimizer]) if it.grad is not None}
        if any(it.layout is not self.torch.strided for it in gradients.values()):
            raise OtherState("a gradient is sparse")
        return {row: _sampled(it).to("cpu", self.torch.float64) for row, it in gradients.items()}

    def shares(self) -> list[float]:
        """How many elements each of the sampled ones stands for, of each weight."""
        return [it.numel() / max(1, _sampled(it).numel()) for it in self.weights()]

    def _tensors(self) -> Iterator[Any]:
        weights = self.weights()
        yield from weights
        for weight in weights:
            for optimizer in self.optimizers:
                own = optimizer.state.get(weight, {})
                yield from (own[name] for name in sorted(own, key=str) if self.torch.is_tensor(own[name]))
        for root in self.roots():
            yield from (it for _, it in sorted(unwrapped(self.torch, root).named_buffers()))

    def _array(self, tensor: Any) -> Any:
        """As numpy has it: a 16-bit format that it lacks as float32, which holds each of its values."""
        held = tensor.detach()
        if held.layout is not self.torch.strided:
            raise OtherState(f"a tensor is {held.layout}")
        try:
            return (held.float() if held.dtype is self.torch.bfloat16 else held).cpu().numpy()
        except TypeError as error:  # numpy has no such type
            raise OtherState(str(error)) from None


def _weights_of(optimizers: Sequence[Any]) -> list[Any]:
    groups = (group for it in optimizers for group in it.param_groups)
    return list({id(it): it for group in groups for it in group["params"]}.values())


def _sampled(weight: Any) -> Any:
    flat = weight.detach().reshape(-1)
    return flat[:: -(-flat.numel() // MOST_OF_A_WEIGHT) or 1]
