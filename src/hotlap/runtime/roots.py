"""Finding the models: the outermost modules that own parameters an optimizer holds.

Losses are modules too, frozen teachers and target networks are modules, and some scripts never call their model
but its methods; what an optimizer holds is the better sign. While the search is on, ``nn.Module.__call__`` is
watched; once a few steps have gone by without a new root it is restored, and only the roots' own classes keep a
wrapper. So a step pays for its few root calls and not for every layer. The wrapper sits on the class, never on
the instance: pickles and deep copies of the model stay what they were.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from hotlap.runtime.hooks import Hooks
from hotlap.runtime.patches import Patches

BACKWARDS_WITHOUT_NEWS = 8

Call = Callable[..., Any]


class Roots:
    """The roots found so far, in the order of their first training forward."""

    def __init__(self, hooks: Hooks, patches: Patches) -> None:
        self._hooks = hooks
        self._patches = patches
        self._torch = hooks.torch
        self._is_compiling: Callable[[], bool] = hooks.torch.compiler.is_dynamo_compiling
        self._held: set[int] = set()
        self._known: dict[int, weakref.ref[Any]] = {}
        self._pending: dict[int, weakref.ref[Any]] = {}
        self._inside = False
        self._quiet_backwards = 0
        self._is_told = False
        self.searching = False
        self._plain_call: Call = hooks.torch.nn.Module.__call__
        self._watching_call: Call = self._plain_call

    def install(self) -> None:
        """Start looking."""
        self._search()

    def all(self) -> tuple[Any, ...]:
        """The roots that are still alive."""
        alive = (reference() for reference in self._known.values())
        return tuple(root for root in alive if root is not None)

    def wait_for_root(self) -> None:
        """Search for no root: it will be passed to :meth:`settle`, and what is trained before that is not the root."""
        self._is_told = True
        self.searching = False
        self._watch(self._plain_call)

    def settle(self, root: Any) -> None:
        """Use this module as the only root: there is no optimizer, and its caller calls the forward hooks too, so that
        no module needs to be watched."""
        self._known = {id(root): weakref.ref(root)}
        for tell in self._hooks.model_found:
            tell(root)

    def forward(self) -> CodeType | None:
        """The code of the only root's ``forward``; None with several roots, or where it is not written in Python."""
        # A compiled module stands before the one that the script wrote.
        kinds = {type(getattr(root, "_orig_mod", root)) for root in self.all()}
        function = getattr(kinds.pop(), "forward", None) if len(kinds) == 1 else None
        return getattr(function, "__code__", None)

    @property
    def watches(self) -> bool:
        """Whether calls of roots matter: hooks are called, or roots are searched for."""
        hooks = self._hooks
        return bool(self.searching or hooks.before_forward or hooks.after_forward or hooks.around_evaluation)

    def hold(self, parameters: Iterable[Any]) -> None:
        """An optimizer took these parameters: a new root may appear."""
        self._held.update(id(parameter) for parameter in parameters)
        self._search()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Within a backward pass no module is a root: what is called there recomputes activations."""
        inside, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = inside

    def backward_seen(self) -> None:
        """One backward went by; without any optimizer the modules called before it are the roots."""
        if self._is_told:
            return
        if not self._held:
            for reference in self._pending.values():
                module = reference()
                if module is not None:
                    self._adopt(module)
        self._pending.clear()
        self._quiet_backwards += 1
        if self._known and self._quiet_backwards > BACKWARDS_WITHOUT_NEWS:
            self.searching = False
            self._watch(self._plain_call)

    def _search(self) -> None:
        self._quiet_backwards = 0
        if self.searching or self._is_told:
            return
        self.searching = True
        plain, is_compiling, roots = self._plain_call, self._is_compiling, self

        # torch's profiler knows the code of `nn.Module.__call__`, and takes its variable `self` for the module.
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or roots._inside or not roots._owns_trained(self):
                return plain(self, *args, **kwargs)
            if not roots._torch.is_grad_enabled():
                return roots._evaluation(plain, self, args, kwargs)
            if not roots._held:
                roots._pending[id(self)] = weakref.ref(self)
                return roots._shielded(plain, self, args, kwargs)
            roots._adopt(self)
            return roots._training_forward(plain, self, args, kwargs)

        self._watching_call = call
        self._watch(call)

    def _owns_trained(self, module: Any) -> bool:
        if not self._held:
            return any(parameter.requires_grad for parameter in module.parameters())
        return any(id(parameter) in self._held for parameter in module.parameters())

    def _adopt(self, module: Any) -> None:
        known = self._known.get(id(module))
        if known is not None and known() is module:
            return
        self._known[id(module)] = weakref.ref(module)
        self._quiet_backwards = 0
        self._wrap_class(type(module))
        for tell in self._hooks.model_found:
            tell(module)

    def _wrap_class(self, kind: type) -> None:
        if "hotlap_wrapped" in vars(kind):
            return
        own_call: Call | None = vars(kind).get("__call__")
        plain: Call = own_call or _inherited_call(kind, self._torch.nn.Module, self._plain_call)
        known, is_compiling, hooks = self._known, self._is_compiling, self._hooks

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or self._inside:
                return plain(module, *args, **kwargs)
            if not (hooks.before_forward or hooks.after_forward or hooks.around_evaluation or self.searching):
                return plain(module, *args, **kwargs)
            reference = known.get(id(module))
            if reference is None or reference() is not module:
                # Another instance of a root's class: a root itself, perhaps, while the search is on.
                chosen = self._torch.nn.Module.__call__ if own_call is None and self.searching else plain
                return chosen(module, *args, **kwargs)
            if not self._torch.is_grad_enabled():
                return self._evaluation(plain, module, args, kwargs)
            if self.searching:
                return self._training_forward(plain, module, args, kwargs)
            # What nearly every step passes, written out: each further frame costs the step.
            for prepare in hooks.before_forward:
                args, kwargs = prepare(module, args, kwargs)
            self._inside = True
            try:
                output = plain(module, *args, **kwargs)
            except BaseException:  # raised again to the script; the phase of the forward pass must end
                self._failed()
                raise
            finally:
                self._inside = False
            for tell in hooks.after_forward:
                tell(module, output)
            return output

        self._patches.replace(kind, "__call__", call)
        self._patches.replace(kind, "hotlap_wrapped", True)

    def _evaluation(self, plain: Call, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call: Callable[[], Any] = lambda: self._shielded(plain, module, args, kwargs)  # noqa: E731
        for wrap in reversed(self._hooks.around_evaluation):
            call = _bind(wrap, module, call)
        return call()

    def _training_forward(self, plain: Call, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for prepare in self._hooks.before_forward:
            args, kwargs = prepare(module, args, kwargs)
        try:
            output = self._shielded(plain, module, args, kwargs)
        except BaseException:  # raised again to the script; the phase of the forward pass must end
            self._failed()
            raise
        for tell in self._hooks.after_forward:
            tell(module, output)
        return output

    def _failed(self) -> None:
        for tell in self._hooks.forward_failed:
            tell()

    def _shielded(self, plain: Call, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the module; modules called inside it are not roots. The watch is taken away meanwhile, so that no
        compiler at work in there comes upon it."""
        self._inside = True
        if self.searching:
            self._watch(self._plain_call)
        try:
            return plain(module, *args, **kwargs)
        finally:
            self._inside = False
            if self.searching:
                self._watch(self._watching_call)

    def _watch(self, call: Call) -> None:
        self._patches.replace(self._torch.nn.Module, "__call__", call)


def _inherited_call(kind: type, module_class: type, plain: Call) -> Call:
    """The ``__call__`` that the class inherits, seen past the watch on ``nn.Module`` itself."""
    for ancestor in kind.__mro__[1:]:
        if ancestor is module_class:
            return plain
        if "__call__" in vars(ancestor):
            inherited: Call = vars(ancestor)["__call__"]
            return inherited
    return plain


def _bind(wrap: Callable[..., Any], module: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: wrap(module, call)
