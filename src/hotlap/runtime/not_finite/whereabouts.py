"""Locate an operation: its step, phase, layer, and line of the user's code.

An operation of the backward pass is located by the line of its forward operation. autograd numbers its nodes as they
are created, per thread: a node that is new when a forward operation reaches the dispatcher belongs to that operation,
and in the backward pass the running node still has its number.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from hotlap.records import CallSite, NumberPhase
from hotlap.runtime.call_sites import user_site
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.not_finite.ranges import carrier, memory
from hotlap.runtime.unit_clock import UnitClock

STEPS_REMEMBERED = 2
_LONGEST_LINE = 200
_node_that_runs: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)


@dataclass(frozen=True, slots=True)
class Place:
    """A line, and the innermost layer that called it."""

    site: CallSite | None
    layer: Any


class Whereabouts:
    """Follows the script through the hooks and through torch's own hooks on every layer."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._roots = interception.roots
        self._clock = clock
        self._thread = threading.get_ident()
        self._layers: list[Any] = []
        self._fetching = self._updating = 0
        self._begun = False
        self._backward_site: CallSite | None = None
        self._forward_places: dict[int, Place] = {}
        self._last_node = _newest_node()
        self._step_began_at = [self._last_node]
        self._names: dict[int, str] = {}
        self._names_of: tuple[int, ...] = ()
        hooks = interception.hooks
        hooks.around_fetch.append(self._fetch)
        hooks.before_forward.append(self._forward_begins)
        hooks.before_backward.insert(0, self._backward_begins)
        hooks.before_update.append(self._update_begins)
        hooks.after_update.insert(0, self._update_ends)
        hooks.step_ended.append(self._step_ended)
        self._handles: list[Any] = []

    def follow_layers(self) -> None:
        """Start to follow which layer runs."""
        from torch.nn.modules import module

        self._handles = [
            module.register_module_forward_pre_hook(self._layer_begins),
            module.register_module_forward_hook(self._layer_ends, always_call=True),
        ]

    def let_go(self) -> None:
        """Take the hooks off the layers again."""
        for handle in self._handles:
            handle.remove()

    # -- hooks ---------------------------------------------------------------------------------

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        self._begun = True
        self._fetching += 1
        try:
            return fetch()
        finally:
            self._fetching -= 1

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._begun = True
        return args, kwargs

    def _backward_begins(self, loss: Any) -> Any:
        self._begun = True
        self._backward_site = user_site("backward")
        return loss

    def _update_begins(self, optimizer: Any) -> None:
        self._updating += 1

    def _update_ends(self, optimizer: Any) -> None:
        self._updating -= 1

    def _step_ended(self) -> None:
        """Drop the lines of steps whose graphs no longer exist."""
        self._step_began_at.append(_newest_node())
        if len(self._step_began_at) > STEPS_REMEMBERED:
            oldest = self._step_began_at.pop(0)
            self._forward_places = {node: it for node, it in self._forward_places.items() if node > oldest}

    def _layer_begins(self, layer: Any, args: Any) -> None:
        if threading.get_ident() == self._thread:
            self._layers.append(layer)

    def _layer_ends(self, layer: Any, args: Any, output: Any) -> None:
        if threading.get_ident() == self._thread and layer in self._layers:
            while self._layers.pop() is not layer:
                continue

    # -- what is asked -------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The current step, from 0."""
        return self._clock.steps_done

    def remember_node(self) -> None:
        """Begin an operation: a node that autograd created for it belongs to this line."""
        newest = _newest_node()
        if newest > self._last_node:
            place = Place(user_site("operation"), self._layers[-1] if self._layers else None)
            for node in range(self._last_node + 1, newest + 1):
                self._forward_places[node] = place
            self._last_node = newest

    def phase(self, reads: Iterable[torch.Tensor]) -> NumberPhase:
        """The phase of the script, by the running code and the operands."""
        if _node_that_runs() is not None:
            return "backward"
        if self._fetching:
            return "data"
        if not self._begun:
            return "setup"
        if torch.is_grad_enabled() and (self._layers or any(it.requires_grad for it in reads)):
            return "forward"
        if self._updating:
            return "optimizer"
        return "forward" if self._layers else "other"

    def autograd_node(self) -> str:
        """The name of the running autograd node, such as ``SqrtBackward0``; empty outside a backward."""
        node = _node_that_runs()
        return "" if node is None else str(node.name()).rpartition("::")[2]

    def place(self) -> Place:
        """The line that computes, and the layer.

        In a backward it is that of the forward operation, except in the user's own backward code: custom functions,
        hooks, and recomputation.
        """
        own = user_site("operation")
        node = _node_that_runs()
        if node is None:
            return Place(_with_text(own), self._layers[-1] if self._layers else None)
        forward = self._forward_places.get(node._sequence_nr())
        layer = forward.layer if forward is not None else None
        if own is not None and not self._is_backward_call(own):
            return Place(_with_text(own), self._layers[-1] if self._layers else layer)
        site = forward.site if forward is not None else None
        return Place(_with_text(site or self._backward_site), layer)

    def layer_name(self, layer: Any) -> str:
        """``encoder.0 (Linear)``: its name in the model, and its class; only the class outside of a model."""
        if layer is None:
            return ""
        kind = type(layer).__name__
        for root in self._roots.all():
            for name, module in root.named_modules():
                if module is layer:
                    name = name.removeprefix("_orig_mod").removeprefix(".")
                    return f"{name} ({kind})" if name else kind
        return kind

    def state_name(self, tensor: Any) -> str:
        """The name of the model's parameter or buffer in this memory; empty for any other tensor."""
        plain = carrier(tensor)
        if plain is None:
            return ""
        roots = self._roots.all()
        if tuple(map(id, roots)) != self._names_of:
            self._names_of = tuple(map(id, roots))
            self._names = {
                memory(found)[0]: name.removeprefix("_orig_mod.")
                for root in roots
                for name, it in (*root.named_parameters(), *root.named_buffers())
                if (found := carrier(it)) is not None
            }
        return self._names.get(memory(plain)[0], "")

    def _is_backward_call(self, site: CallSite) -> bool:
        call = self._backward_site
        return call is not None and (call.file, call.line) == (site.file, site.line)


def _newest_node() -> int:
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def _with_text(site: CallSite | None) -> CallSite | None:
    """The site with the text of its line."""
    if site is None:
        return None
    return msgspec.structs.replace(site, what=linecache.getline(site.file, site.line).strip()[:_LONGEST_LINE])
