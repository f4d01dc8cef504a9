"""Patching torch: the functions and classes that every training loop uses.

Each patch keeps the type, name, signature and result of what it wraps, does nothing while the lists of
:class:`~hotlap.runtime.hooks.Hooks` are empty, and steps aside while torch traces
(``torch.compiler.is_dynamo_compiling``), so that it is never compiled into a graph. Whether it traces is the first
question: a list of hooks that was looked at before would become a guard, and its change a reason to compile again.

Patches stay where they are while hooks come and go (a clock that rests): replacing attributes of classes makes the
interpreter discard what it specialised, some thousand times at most (CPython 3.13), and compiled code has guards on
them. So what passes in every step calls through at once while its lists are empty.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Literal, TypeAlias

from hotlap.runtime.captures import Captures
from hotlap.runtime.hooks import Fetch, Hooks
from hotlap.runtime.patches import Patches
from hotlap.runtime.roots import Roots
from hotlap.runtime.sharding import intercept_sharding, intercept_what_is_loaded

Function = Callable[..., Any]
_Reason: TypeAlias = Literal["capture", "suspended"]


class Interception:
    """All patches of one process. ``roots`` holds which modules are the models."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.patches = Patches()
        self._of_graphs = Patches()  # these stay while a capture silences the others
        self._captures = Captures(hooks, partial(self._suspend, "capture"), partial(self._resume, "capture"))
        self.roots = Roots(hooks, self.patches)
        self._suspended_for: set[_Reason] = set()
        self.unscaled: tuple[Any, Any] | None = None
        self._is_compiling: Callable[[], bool] = hooks.torch.compiler.is_dynamo_compiling

    def install(self) -> None:
        """Patch torch; called once, right after torch was imported."""
        self._intercept_loaders()
        self._intercept_optimizers()
        self._intercept_autograd()
        self._intercept_data_parallel()
        self._intercept_compiling()
        self._intercept_clipping()
        self._intercept_saving()
        self._captures.install(self._of_graphs)
        self.roots.install()
        intercept_what_is_loaded(self.hooks, self.patches.replace)

    def intercept_sharding(self, name: str, module: ModuleType) -> None:
        """The same for a module that shares models between processes, once the script has imported it."""
        intercept_sharding(self.hooks, self.patches.replace, name, module)

    def suspend(self) -> None:
        """Remove all patches, as if never installed."""
        self._suspend("suspended")
        self._captures.abandon()
        self._of_graphs.suspend()

    def resume(self) -> None:
        """Put the patches back after :meth:`suspend`."""
        self._resume("suspended")
        self._of_graphs.resume()

    def _suspend(self, reason: _Reason) -> None:
        self._suspended_for.add(reason)
        self.patches.suspend()

    def _resume(self, reason: _Reason) -> None:
        """Once no reason is left: a capture that ends while all is suspended changes nothing."""
        self._suspended_for.discard(reason)
        if not self._suspended_for:
            self.patches.resume()

    # -- data ----------------------------------------------------------------------------------

    def _intercept_loaders(self) -> None:
        from torch.utils.data import DataLoader, dataloader

        hooks = self.hooks
        construct = DataLoader.__init__
        signature = inspect.signature(construct)

        @functools.wraps(construct)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            arguments = _by_name(signature, loader, args, kwargs)
            if arguments is None:  # wrong arguments: let torch say so
                construct(loader, *args, **kwargs)
                return
            for edit in hooks.before_loader:
                edit(arguments)
            construct(loader, **arguments)
            for tell in hooks.after_loader:
                tell(loader)

        start = DataLoader.__iter__

        @functools.wraps(start)
        def iterate(loader: Any) -> Any:
            return _through(hooks.around_loader_start, loader, lambda: start(loader))

        following = dataloader._BaseDataLoaderIter.__next__

        @functools.wraps(following)
        def fetch(iterator: Any) -> Any:
            wrappers = hooks.around_fetch
            if not wrappers:
                return following(iterator)
            call = functools.partial(following, iterator)
            if len(wrappers) == 1:  # the usual case, in every step
                return wrappers[0](iterator, call)
            return _through(wrappers, iterator, call)

        self.patches.replace(DataLoader, "__init__", init)
        self.patches.replace(DataLoader, "__iter__", iterate)
        self.patches.replace(dataloader._BaseDataLoaderIter, "__next__", fetch)

    # -- optimizers ----------------------------------------------------------------------------

    def _intercept_optimizers(self) -> None:
        from torch import optim
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        hooks = self.hooks
        depth = 0

        def wrap_constructor(kind: type) -> None:
            construct: Function = kind.__init__  # type: ignore[misc]
            signature = inspect.signature(construct)

            @functools.wraps(construct)
            def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                nonlocal depth
                arguments = _by_name(signature, optimizer, args, kwargs) if depth == 0 else None
                if arguments is None:
                    construct(optimizer, *args, **kwargs)
                    return
                for edit in hooks.before_optimizer:
                    edit(kind, arguments)
                depth += 1
                try:
                    construct(optimizer, **arguments)
                finally:
                    depth -= 1
                self._wrap_step(type(optimizer))
                for tell in hooks.after_optimizer:
                    tell(optimizer)

            self.patches.replace(kind, "__init__", init)

        kinds = {it for it in vars(optim).values() if isinstance(it, type) and issubclass(it, optim.Optimizer)}
        for kind in sorted(kinds, key=lambda it: it.__name__):
            if "__init__" in vars(kind):
                wrap_constructor(kind)
        self._watch_parameter_groups(optim.Optimizer)

        def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not self._suspended_for:
                for tell in hooks.before_update:
                    tell(optimizer)

        def ends(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not self._suspended_for:
                for tell in hooks.after_update:
                    tell(optimizer)
            else:
                self._captures.saw_update(optimizer)

        register_optimizer_step_pre_hook(begins)
        register_optimizer_step_post_hook(ends)

    def _watch_parameter_groups(self, base: type) -> None:
        add: Function = base.add_param_group  # type: ignore[attr-defined]
        roots = self.roots

        @functools.wraps(add)
        def add_param_group(optimizer: Any, param_group: dict[str, Any]) -> None:
            add(optimizer, param_group)
            roots.hold(optimizer.param_groups[-1]["params"])

        self.patches.replace(base, "add_param_group", add_param_group)

    def _wrap_step(self, kind: type) -> None:
        """Wrap the class's ``step`` outside torch's own hooks. torch marks a step function it has hooked by an
        attribute, which ``functools.wraps`` carries over, so it does not hook ours again. Levers hang on before the
        script makes its optimizers, so without any by then nothing is wrapped."""
        take: Function = kind.step  # type: ignore[attr-defined]
        if not self.hooks.around_step or getattr(take, "hotlap_wrapped", False):
            return
        hooks, is_compiling = self.hooks, self._is_compiling

        @functools.wraps(take)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return take(optimizer, *args, **kwargs)
            return _through(hooks.around_step, optimizer, lambda: take(optimizer, *args, **kwargs))

        step.hotlap_wrapped = True  # type: ignore[attr-defined]
        self.patches.replace(kind, "step", step)

    # -- several processes ---------------------------------------------------------------------

    def _intercept_data_parallel(self) -> None:
        from torch.nn.parallel import DistributedDataParallel

        hooks = self.hooks
        construct = DistributedDataParallel.__init__
        signature = inspect.signature(construct)

        @functools.wraps(construct)
        def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            arguments = _by_name(signature, wrapper, args, kwargs)
            if arguments is None:  # wrong arguments: let torch say so
                construct(wrapper, *args, **kwargs)
                return
            for edit in hooks.before_data_parallel:
                edit(arguments)
            if not any(make(wrapper, arguments) for make in hooks.instead_of_data_parallel):
                construct(wrapper, **arguments)
            for tell in hooks.after_data_parallel:
                tell(wrapper)

        self.patches.replace(DistributedDataParallel, "__init__", init)

    # -- backward ------------------------------------------------------------------------------

    def _intercept_autograd(self) -> None:
        torch = self.hooks.torch
        hooks, roots, is_compiling = self.hooks, self.roots, self._is_compiling
        run_backward = torch.autograd.backward

        @functools.wraps(run_backward)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if is_compiling():
                run_backward(tensors, *args, **kwargs)
                return
            if not (hooks.before_backward or hooks.after_backward or roots.watches):
                self.unscaled = None
                run_backward(tensors, *args, **kwargs)
                return
            if type(tensors) in (list, tuple) and len(tensors) == 1:
                (tensors,) = tensors
            for replace in hooks.before_backward:
                tensors = replace(tensors)
            if roots.searching:
                roots.backward_seen()
            with roots.hidden():
                run_backward(tensors, *args, **kwargs)
            self.unscaled = None
            for tell in hooks.after_backward:
                tell()

        self.patches.replace(torch.autograd, "backward", backward)
        scale = torch.amp.GradScaler.scale

        @functools.wraps(scale)
        def scaled(scaler: Any, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            if result is not outputs:
                self.unscaled = (result, outputs)
            return result

        self.patches.replace(torch.amp.GradScaler, "scale", scaled)

    def before_scaling(self, loss: Any) -> Any:
        """The loss as the script computed it, where ``loss`` is what its GradScaler made of it."""
        if self.unscaled is None:
            return loss
        result, original = self.unscaled
        return original if result is loss else loss

    # -- compiling -----------------------------------------------------------------------------

    def _intercept_compiling(self) -> None:
        torch = self.hooks.torch
        hooks, is_compiling = self.hooks, self._is_compiling
        ask: Function = torch.compile

        @functools.wraps(ask)
        def compiling(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                for tell in hooks.before_compile:
                    tell()
            return ask(*args, **kwargs)

        self.patches.replace(torch, "compile", compiling)

    # -- clipping and saving -------------------------------------------------------------------

    def _intercept_clipping(self) -> None:
        from torch.nn import utils
        from torch.nn.utils import clip_grad

        hooks = self.hooks
        for name, limit_name in (("clip_grad_norm_", "max_norm"), ("clip_grad_value_", "clip_value")):
            clip: Function = getattr(clip_grad, name)
            wrapped = _clipping(clip, limit_name, hooks, self._is_compiling)
            for place in (clip_grad, utils):
                self.patches.replace(place, name, wrapped)

    def _intercept_saving(self) -> None:
        torch = self.hooks.torch
        saving = self._saving(vars(torch)["save"])
        for place in (torch, torch.serialization):
            self.patches.replace(place, "save", saving)

    def _saving(self, save: Function) -> Function:
        hooks = self.hooks

        @functools.wraps(save)
        def saving(*args: Any, **kwargs: Any) -> Any:
            call: Fetch = lambda: save(*args, **kwargs)  # noqa: E731
            for wrap in reversed(hooks.around_save):
                call = functools.partial(wrap, call)
            return call()

        return saving

    def intercept_safetensors(self) -> None:
        """The same for safetensors, once the script has imported it: whatever saves with it calls this name there."""
        module = sys.modules.get("safetensors.torch")
        serialize: Function | None = getattr(module, "serialize_file", None)
        if module is None or serialize is None:
            return
        self.patches.replace(module, "serialize_file", self._saving(serialize))


def _clipping(clip: Function, limit_name: str, hooks: Hooks, is_compiling: Callable[[], bool]) -> Function:
    @functools.wraps(clip)
    def clipping(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not (hooks.before_clip or hooks.after_clip):
            return clip(parameters, *args, **kwargs)
        if not hasattr(parameters, "shape") and not isinstance(parameters, (list, tuple)):
            parameters = list(parameters)  # a generator can be walked through only once
        limit = args[0] if args else kwargs.get(limit_name, 0.0)
        for tell in hooks.before_clip:
            tell(parameters, float(limit))
        result = clip(parameters, *args, **kwargs)
        for replace in hooks.after_clip:
            result = replace(result)
        return result

    return clipping


def _by_name(
    signature: inspect.Signature, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """The arguments of a constructor as one dictionary by name; None when they do not fit the signature."""
    try:
        bound = signature.bind(owner, *args, **kwargs)
    except TypeError:
        return None
    arguments = dict(bound.arguments)
    arguments.pop(next(iter(signature.parameters)))
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL and arguments.get(parameter.name):
            return None
    return arguments


def _through(wrappers: list[Callable[[Any, Fetch], Any]], subject: Any, call: Fetch) -> Any:
    """Call through all wrappers, the first appended being the outermost."""
    for wrap in reversed(wrappers):
        call = functools.partial(wrap, subject, call)
    return call()
