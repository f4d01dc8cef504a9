"""Several micro-batches in one pass through a model, handed out as if each had its own. Not a lever itself.

The script computes a loss of each micro-batch's outputs and calls backward on it. These outputs are cut off from the
model, so that only their own gradients are computed; those of the last one lead into the model, with the gradients of
all. So the script's last backward pass is that of all micro-batches, and hooks and accumulation of gradients are
torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

from hotlap.levers.support.micro_batches import gathered, is_by_sample, mapped, samples_in, tensors_of, without_tensors

LATE = "a backward pass came after its micro-batch was given up"

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def cannot_go_on(reason: str) -> RuntimeError:
    """What ends the script rather than let it train on other gradients."""
    return RuntimeError(f"hotlap's lever larger-micro-batches cannot go on: {reason}. Leave it out of the plan.")


class NotBySample(Exception):
    """The outputs do not have one entry for each sample."""


class Group:
    """The micro-batches of one pass. ``calls`` are the arguments of their forward passes, the first one real, the
    others foreseen. Raises :class:`NotBySample`."""

    def __init__(self, torch: ModuleType, forward: Callable[..., Any], calls: Sequence[Call]) -> None:
        self._torch = torch
        self._calls = list(calls)
        self._samples = [samples_in(torch, it) for it in calls]
        args, kwargs = gathered(torch, self._calls, self._samples)
        output = forward(*args, **kwargs)
        if not is_by_sample(torch, output, sum(self._samples)):
            raise NotBySample
        self._output = output
        self._given: list[list[Any]] = []  # by micro-batch: the outputs that were cut off
        self._closed = False
        self.served = self.backwards = 0

    @property
    def all_served(self) -> bool:
        """Whether the outputs of every micro-batch were handed out."""
        return self.served >= len(self._calls)

    @property
    def pending(self) -> bool:
        """Whether the weights still lack the gradients of a micro-batch that had its backward pass."""
        return any(it.grad is not None for leaves in self._given for it in leaves)

    def foresaw(self, call: Call) -> list[Any] | None:
        """Compare the next forward pass with the arguments it was computed from: None if they differ, else what is not
        known yet, as tensors that are true where they differ (on a device, which is not waited for)."""
        torch, expected = self._torch, self._calls[self.served]
        if without_tensors(torch, call) != without_tensors(torch, expected):
            return None
        open_questions = []
        for real, foreseen in zip(tensors_of(torch, call), tensors_of(torch, expected), strict=True):
            if not _alike(real, foreseen):
                return None
            if real is foreseen:
                continue
            if real.device.type != "cpu":
                open_questions.append((real != foreseen).any())
            elif not torch.equal(real, foreseen):
                return None
        return open_questions

    def serve(self) -> Any:
        """The outputs of the next micro-batch."""
        number = self.served
        self.served += 1
        start = sum(self._samples[:number])
        end = start + self._samples[number]
        if number < len(self._calls) - 1:
            return self._cut_off(start, end)
        leading = [it for it in tensors_of(self._torch, self._output) if it.requires_grad]
        joined = iter(_join(self._torch)(self, start, *leading) if leading else ())
        return mapped(self._torch, self._output, lambda it: next(joined) if it.requires_grad else it[start:end])

    def _cut_off(self, start: int, end: int) -> Any:
        leaves: list[Any] = []
        self._given.append(leaves)

        def cut(tensor: Any) -> Any:
            part = tensor[start:end].detach()
            if not tensor.requires_grad:
                return part
            part.requires_grad_().register_hook(self._in_time)
            leaves.append(part)
            return part.clone()  # the script may change it in place

        return mapped(self._torch, self._output, cut)

    def _in_time(self, gradient: Any) -> None:
        if self._closed:
            raise cannot_go_on(LATE)

    def whole_gradients(self, last: Sequence[Any]) -> Iterator[Any]:
        """The gradients of the whole outputs; ``last`` are those of the last micro-batch (None: none). What they were
        made of is forgotten, so that a second backward pass of the last micro-batch adds its own alone."""
        leading = [it for it in tensors_of(self._torch, self._output) if it.requires_grad]
        for index, tensor in enumerate(leading):
            whole = self._torch.zeros_like(tensor)
            start = 0
            for count, leaves in zip(self._samples, self._given, strict=False):
                if leaves[index].grad is not None:
                    whole[start : start + count] = leaves[index].grad
                    leaves[index].grad = None
                start += count
            if last and last[index] is not None:
                whole[sum(self._samples[:-1]) :] = last[index]
            yield whole

    def flush(self, weights: Sequence[Any]) -> None:
        """Add the gradients of the micro-batches that had their backward pass, where the last one will have none.

        Hooks on weights see them; those after accumulation do not.
        """
        torch, pending = self._torch, self.pending
        self._closed = True
        leading = [it for it in tensors_of(torch, self._output) if it.requires_grad]
        if pending:
            used = [it for it in weights if it.requires_grad]
            found = torch.autograd.grad(leading, used, list(self.whole_gradients(())), allow_unused=True)
            for weight, gradient in zip(used, found, strict=True):
                if gradient is not None and weight.grad is None:
                    weight.grad = gradient
                elif gradient is not None:
                    weight.grad.add_(gradient)


def _alike(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and one.dtype == other.dtype and one.device == other.device)


@cache
def _join(torch: ModuleType) -> Callable[..., Any]:
    """Hand out the last part of outputs; the backward pass leads into all of them."""

    class Join(torch.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(context: Any, group: Group, start: int, *outputs: Any) -> tuple[Any, ...]:
            context.group = group
            context.set_materialize_grads(False)
            return tuple(it[start:].clone() for it in outputs)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
            return (None, None, *context.group.whole_gradients(gradients))

    apply: Callable[..., Any] = Join.apply
    return apply
