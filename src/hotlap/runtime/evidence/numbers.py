"""The norm of the gradients before each update, and the gradient scaler's scale: one row per step.

Nothing is read while the script trains. The numbers stay where they are computed, on the device as the case may be,
until the process ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hotlap.evidence import Numbers
from hotlap.runtime.evidence.unnoticed import never_compile
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock


@dataclass(slots=True)
class _Row:
    """One step: the norms of the gradients that each optimizer used, the scaler's scale, and how often it was asked to
    step each optimizer.

    Each norm is a pair of a tensor and what it is still to be divided by, if anything; an optimizer has one for every
    device and number format among its gradients.
    """

    norms: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)
    scale: Any = None
    attempts: dict[int, int] = field(default_factory=dict)
    observed: bool = True


class NumberWatch:
    """Computes one norm per step, over all gradients of all optimizers that update in it.

    The gradients are those that the update uses: after clipping, and with the loss's scale taken out. Where the
    backward runs within ``optimizer.step`` (LBFGS; Lightning, which also clips in there) they are those of its last
    backward. Steps are left out while this is paused, and their rows are None without being called not finite. Where
    gradients are spread over processes in tensors of a kind of their own there are no rows, since a norm of these would
    make the processes wait for each other.
    """

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._counting = True
        self._able = True
        torch = self._torch
        self._dtypes = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
        self._rows: list[_Row] = []
        self._running = _Row()
        self._updating: Any = None
        hooks = interception.hooks
        hooks.before_update.append(self._update_begins)
        hooks.after_backward.append(self._backward_ends)
        hooks.after_update.append(self._update_ends)
        hooks.step_ended.append(self._step_ended)
        for listener in (self._update_begins, self._backward_ends, self._update_ends):
            never_compile(torch, listener, with_what_it_calls=True)
        self._watch_scaler(interception)

    def pause(self) -> None:
        """Stop computing norms."""
        self._counting = False

    def resume(self) -> None:
        """Go on with the next step. Unlike a counter of calls this begins at work: the first step's gradients are as
        good as any."""
        self._counting = True

    # -- gradients -----------------------------------------------------------------------------

    def _update_begins(self, optimizer: Any) -> None:
        self._updating = optimizer
        self._note(optimizer)

    def _backward_ends(self) -> None:
        if self._updating is not None:
            self._note(self._updating)

    def _update_ends(self, optimizer: Any) -> None:
        self._updating = None

    def _note(self, optimizer: Any) -> None:
        if not self._counting or not self._able or self._torch.compiler.is_compiling() or self._is_capturing():
            return
        groups: dict[tuple[Any, Any], list[Any]] = {}
        for gradient in _gradients(optimizer):
            if not self._has_norm(gradient):
                self._able = False
                return
            groups.setdefault((gradient.device, gradient.dtype), []).append(gradient)
        if groups:
            scale = getattr(optimizer, "grad_scale", None)  # a scaler leaves the unscaling to a fused optimizer
            with self._torch.no_grad():
                self._running.norms[id(optimizer)] = [(self._norm(it), scale) for it in groups.values()]

    def _has_norm(self, gradient: Any) -> bool:
        """Whether this is a plain tensor of which a norm can be taken, here and now."""
        torch = self._torch
        plain = type(gradient) is torch.Tensor and gradient.layout in (torch.strided, torch.sparse_coo)
        return plain and gradient.dtype in self._dtypes and gradient.device.type != "meta"

    def _norm(self, gradients: list[Any]) -> Any:
        """The norm of gradients of one device and number format, a tensor without dimensions."""
        torch = self._torch
        values = [it.coalesce().values() if it.is_sparse else it for it in gradients]
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values, 2, dtype=self._wide(values[0].dtype))))

    def _wide(self, dtype: Any) -> Any:
        """The number format to sum in: squares overflow in half precision where the numbers themselves do not."""
        torch = self._torch
        return torch.float32 if dtype in (torch.float16, torch.bfloat16) else None

    def _is_capturing(self) -> bool:
        """Whether kernels are being recorded into a CUDA graph of the script's, which ours must not get into."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    # -- the scaler ----------------------------------------------------------------------------

    def _watch_scaler(self, interception: Interception) -> None:
        """The scale is looked at where the scaler steps, since it changes before the next step is over."""
        kind = self._torch.amp.GradScaler
        take = kind.step

        @functools.wraps(take)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            scale = getattr(scaler, "_scale", None)
            if scale is not None and self._counting and not self._is_capturing():
                self._running.scale = scale.detach().clone()
                self._running.attempts[id(optimizer)] = self._running.attempts.get(id(optimizer), 0) + 1
            return take(scaler, optimizer, *args, **kwargs)

        interception.patches.replace(kind, "step", step)

    # -- rows ----------------------------------------------------------------------------------

    def _step_ended(self) -> None:
        self._running.observed = self._counting
        self._rows.append(self._running)
        self._running = _Row()

    def result(self) -> dict[str, object]:
        """The ``numbers``; empty columns where no gradients, or no scaler, were seen."""
        rows = list(self._rows)
        while rows and not rows[-1].observed:
            rows.pop()
        norms = [_read(row.norms.values()) for row in rows] if self._able else []
        if all(norm is None for norm in norms):
            norms = []
        scaled = any(row.attempts for row in rows)
        return {
            "numbers": Numbers(
                gradient_norms=tuple(it if it is not None and math.isfinite(it) else None for it in norms),
                gradient_not_finite=tuple(i for i, it in enumerate(norms) if it is not None and not math.isfinite(it)),
                scaler_scales=_filled([None if row.scale is None else float(row.scale) for row in rows]),
                scaler_attempts=tuple(max(row.attempts.values(), default=0) for row in rows) if scaled else (),
            )
        }


def _read(norms: Iterable[list[tuple[Any, Any]]]) -> float | None:
    """The norm of all together; None where there were no gradients."""
    parts = [float(norm) / (1.0 if scale is None else float(scale)) for some in norms for norm, scale in some]
    return math.hypot(*parts) if parts else None


def _gradients(optimizer: Any) -> Iterable[Any]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield parameter.grad


def _filled(scales: list[float | None]) -> tuple[float, ...]:
    """One scale a step. A step whose scale was not seen has that of the step before, or else of the first one seen."""
    known = next((it for it in scales if it is not None), None)
    if known is None:
        return ()
    filled = []
    for scale in scales:
        known = known if scale is None else scale
        filled.append(known)
    return tuple(filled)
