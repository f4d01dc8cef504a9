"""Check every operation for results that are NaN or infinite, and for the operands they came from.

A dispatch mode is below autograd and autocast, so it observes the operations of the forward pass, the backward pass and
the optimizer as they are actually computed. It changes no argument and no result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hotlap.records import CallSite, NumberOrigin, NumberRange, NumberSource
from hotlap.runtime.batches import tensors as batch_tensors
from hotlap.runtime.not_finite.descent import NOTHING, Birth, Descent, Descents, Hidden, descent_of
from hotlap.runtime.not_finite.operations import Call, Named, Operation, bound, calls, operation_of
from hotlap.runtime.not_finite.ranges import (
    Extremes,
    carrier,
    describe,
    extremes,
    finite_range,
    has_nan,
    is_capturing,
    is_finite,
    is_huge,
)
from hotlap.runtime.not_finite.whereabouts import Whereabouts

MOST_BIRTHS = 5000


@dataclass(frozen=True, slots=True)
class Look:
    """A non-finite number that the script itself read, and its step."""

    step: int
    nan: bool
    descent: Descent


class OperationCheck(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Traces non-finite numbers to their origin.

    :meth:`start` and :meth:`stop` it in one thread; autograd carries it into the threads of the backward pass.
    """

    supports_higher_order_operators = True

    def __init__(self, whereabouts: Whereabouts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.started = False
        self._whereabouts = whereabouts
        self._descents = Descents()
        self._births = 0
        self._process = os.getpid()
        self._aside = False
        self.last_look: Look | None = None

    def start(self) -> None:
        """Start checking."""
        self.started = True
        self._whereabouts.follow_layers()
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop checking."""
        if self.started:
            self.started = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._whereabouts.let_go()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Do not check our own computations inside the block."""
        before, self._aside = self._aside, True
        try:
            with torch.no_grad():
                yield
        finally:
            self._aside = before

    # -- what is asked -------------------------------------------------------------------------

    def descent(self, tensors: Sequence[Any]) -> Descent:
        """The origin of the numbers of these tensors."""
        found = NOTHING
        for tensor in tensors:
            found |= self._descents.of(tensor) or NOTHING
        return found

    def batch_arrived(self, batch: Any, dataset: str, loader: CallSite | None) -> None:
        """Register a batch of the loader.

        A non-finite number in it that no observed operation made (but a worker, or code outside of torch) was in the
        data.
        """
        with self.aside():
            for index, tensor in enumerate(batch_tensors(batch)):
                found = extremes(tensor)
                known = None if is_finite(found) else self._descents.of(tensor)
                fault = known.fault.record if known is not None and known.fault is not None else None
                if is_finite(found) or (known is not None and (fault is None or fault.source != "entered")):
                    continue
                origin = self._origin("batch", outputs=(describe(tensor, f"tensor {index + 1} of the batch"),))
                origin = msgspec.structs.replace(
                    origin,
                    phase="data",
                    operation=fault.operation if fault is not None else "",
                    name=dataset,
                    site=(fault.site if fault is not None else None) or loader,
                )
                self._descents.inherit(tensor, self._born(origin, has_nan(found)), whole=True)

    # -- every operation -----------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        operation = operation_of(func)
        if operation.left_alone or self._aside or os.getpid() != self._process or is_capturing():
            return func(*args, **kwargs)
        self._whereabouts.remember_node()
        if operation.is_view:
            return func(*args, **kwargs)
        arguments = bound(operation, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            before = _before(operation, arguments)
        try:
            result = func(*args, **kwargs)
        except Exception:  # passed on to the script; what the operation read is noted anyway
            self._note_look([it for call in calls(operation, arguments, None) for it in call.reads])
            raise
        with torch._C.DisableTorchFunctionSubclass():
            for call in calls(operation, arguments, result):
                self._check(operation, call, before)
        return result

    def _check(self, operation: Operation, call: Call, before: dict[int, Extremes]) -> None:
        if operation.makes_memory:
            for _, tensor in call.writes:
                self._descents.unwritten(tensor, self._origin("uninitialised", operation))
            return
        found = [(tensor, extremes(tensor)) for _, tensor in call.writes]
        if all(extent is None for _, extent in found):
            self._note_look(call.reads)
        huge = [tensor for tensor, extent in found if is_huge(extent, tensor)]
        hidden = self._hidden_by(operation, call, huge) if huge else None
        for tensor, extent in found:
            if is_finite(extent):
                self._descents.clear(tensor)
        if hidden is not None:
            for tensor in huge:
                self._descents.hide(tensor, hidden)
        bad = [tensor for tensor, extent in found if not is_finite(extent)]
        if bad:
            nan = any(has_nan(extent) for _, extent in found)
            descent = self._descent_of_result(operation, call, before, bad, nan)
            changed_in_place = {id(tensor) for _, tensor in call.reads}
            for tensor in bad:
                self._descents.inherit(tensor, descent, whole=id(tensor) not in changed_in_place)

    def _hidden_by(self, operation: Operation, call: Call, huge: list[torch.Tensor]) -> Hidden | None:
        """The descent of huge numbers that were computed from non-finite numbers, or from such huge ones."""
        descent, passed_on = NOTHING, None
        for _, tensor in call.reads:
            descent |= self._descents.of(tensor) or NOTHING
            passed_on = passed_on or self._descents.hidden(tensor)
        if descent == NOTHING:
            return passed_on
        return Hidden(descent, self._origin("operation", operation, outputs=tuple(map(describe, huge))))

    def _descent_of_result(
        self, operation: Operation, call: Call, before: dict[int, Extremes], bad: list[torch.Tensor], nan: bool
    ) -> Descent:
        """Pass the descent of non-finite operands on to the result.

        It is a birth if all operands were finite, or if NaN results from infinities.
        """
        ancestry = NOTHING
        nan_came_in = came_in = False
        for name, tensor in call.reads:
            extent = before[id(tensor)] if id(tensor) in before else extremes(tensor)
            if not is_finite(extent):
                came_in = True
                nan_came_in |= has_nan(extent)
                ancestry |= self._descents.of(tensor) or self._arrival(operation, name, tensor, has_nan(extent))
        if (came_in and (nan_came_in or not nan)) or self._births >= MOST_BIRTHS:
            return ancestry
        origin = self._origin(
            self._source(operation, call, nan),
            operation,
            inputs=tuple(self._input_range(it, before) for it in call.reads if carrier(it[1]) is not None),
            outputs=tuple(describe(tensor) for tensor in bad),
            arguments=call.numbers,
            reads=call.reads,
            name=next(filter(None, map(self._whereabouts.state_name, bad)), ""),
        )
        hidden = (self._descents.hidden(tensor) for _, tensor in call.reads) if not came_in else iter(())
        return self._born(origin, nan, ancestry, next(filter(None, hidden), None))

    def _source(self, operation: Operation, call: Call, nan: bool) -> NumberSource:
        """Whether it was computed, or written by the script: infinities among the arguments, as in a mask, or from a
        factory."""
        if self._whereabouts.phase(()) == "optimizer":
            return "operation"
        among_arguments = any(it.endswith("=nan") for it in call.numbers) if nan else bool(call.numbers)
        return "written" if among_arguments or not call.reads else "operation"

    def _arrival(self, operation: Operation, name: str, tensor: torch.Tensor, nan: bool) -> Descent:
        """Register a non-finite tensor that no operation made since the check began."""
        memory_of = self._descents.uninitialised(tensor)
        state = self._whereabouts.state_name(tensor)
        content = describe(tensor, state or name)
        if memory_of is not None:
            origin = _with_content(memory_of, content, state)
        elif operation.is_literal and tensor.numel() == 1:
            origin = self._origin("written", operation, outputs=(content,))
        else:
            source: NumberSource = "state" if state else "entered"
            origin = self._origin(source, operation, inputs=(content,), reads=((name, tensor),), name=state)
        descent = self._born(origin, nan)
        self._descents.inherit(tensor, descent, whole=True)
        return descent

    def _note_look(self, reads: Sequence[Named]) -> None:
        """Register an operation that fails or does not return floating-point numbers (``item``, ``isnan``).

        The script may end because of it. An infinity counts only as a single number, since masks are read constantly.
        """
        for _, tensor in reads:
            found = extremes(tensor)
            descent = None if is_finite(found) else self._descents.of(tensor)
            if descent is not None and (has_nan(found) or tensor.numel() == 1):
                self.last_look = Look(self._whereabouts.step, has_nan(found), descent)

    # -- records -------------------------------------------------------------------------------

    def _input_range(self, read: Named, before: dict[int, Extremes]) -> NumberRange:
        """An operand of an operation, with the parameter's name if it is one."""
        name, tensor = read
        name = self._whereabouts.state_name(tensor) or name
        extent = before.get(id(tensor))
        if extent is not None and is_finite(extent):
            return finite_range(tensor, extent, name)
        return describe(tensor, name)

    def _born(
        self, origin: NumberOrigin, nan: bool, ancestry: Descent = NOTHING, hidden: Hidden | None = None
    ) -> Descent:
        self._births += 1
        return descent_of(Birth(self._births, nan, origin, ancestry, hidden))

    def _origin(
        self,
        source: NumberSource,
        operation: Operation | None = None,
        *,
        inputs: tuple[NumberRange, ...] = (),
        outputs: tuple[NumberRange, ...] = (),
        arguments: tuple[str, ...] = (),
        reads: Sequence[Named] = (),
        name: str = "",
    ) -> NumberOrigin:
        whereabouts = self._whereabouts
        place = whereabouts.place()
        return NumberOrigin(
            source=source,
            phase=whereabouts.phase([tensor for _, tensor in reads]),
            step=whereabouts.step,
            operation=operation.name if operation is not None else "",
            arguments=arguments,
            inputs=inputs,
            outputs=outputs,
            name=name,
            module=whereabouts.layer_name(place.layer),
            autograd_node=whereabouts.autograd_node(),
            site=place.site,
        )


def _before(operation: Operation, arguments: dict[str, Any]) -> dict[int, Extremes]:
    """The extremes of operands that will be changed in place, by the tensor's identity."""
    if not operation.writes or operation.overwrites:
        return {}
    return {
        id(tensor): extent
        for call in calls(operation, arguments, None)
        for _, tensor in call.writes
        if (extent := extremes(tensor)) is not None
    }


def _with_content(origin: NumberOrigin, content: NumberRange, name: str) -> NumberOrigin:
    return msgspec.structs.replace(origin, outputs=(content,), name=name)
