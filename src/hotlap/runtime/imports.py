"""Noticing that the script has imported a module, without importing it ourselves.

Scripts set environment variables (threads, visible devices) before ``import torch``; importing it for them
would change what they do. So a finder in front of all others lets them find the module, and wraps its loader: what
counts is that the module's code has run. Libraries look modules up long before anyone imports them
(``importlib.util.find_spec``), and that changes nothing here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any

Callback = Callable[[str, ModuleType], None]


def _ignore(name: str) -> None:
    pass


class ImportWatch:
    """Calls ``announced(name, module)`` once for each of the modules named, right after its code has run.

    An import that fails is not announced, and the next try is watched again. ``begins(name)`` is called before the
    code runs. ``missed(name, module)`` is called, instead of ``announced``, once a module turns out to have been
    loaded around this watch: at the next look-up of any module, or by :meth:`look`.

    Module locks order imports; nothing here takes a lock, as a fork could copy it while it is held.
    """

    def __init__(
        self, names: Iterable[str], announced: Callback, missed: Callback, begins: Callable[[str], None] = _ignore
    ) -> None:
        self._waiting = dict.fromkeys(names)
        self._announced = announced
        self._missed = missed
        self._begins = begins
        # (thread, module) of look-ups that are passed on to the other finders, and of modules whose code runs.
        self._asking: set[tuple[int, str]] = set()
        self._running: list[tuple[int, str]] = []
        # Specs with our loader: a module that carries one of them will be announced when its code runs.
        self._given: list[ModuleSpec] = []

    def start(self) -> None:
        """Begin. Modules that are imported already are announced at once."""
        for name in tuple(self._waiting):
            module = sys.modules.get(name)
            if module is None or not _has_code(module) or self._adopt(name, module):
                continue
            self._announce(name, module)
        sys.meta_path = _FindersBehind(self, sys.meta_path)

    def look(self) -> None:
        """Look for modules that were loaded around this watch."""
        for name in tuple(self._waiting):
            module = sys.modules.get(name)
            if module is None or self._runs(name) or not _has_code(module):
                continue
            spec = _attribute(module, "__spec__")
            if any(it is spec for it in tuple(self._given)) or self._adopt(name, module):
                continue
            if self._claim(name):
                self._missed(name, module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Part of the import system: a spec for the modules that are waited for, None for all others."""
        if not isinstance(sys.meta_path, _FindersBehind):
            sys.meta_path = _FindersBehind(self, [it for it in sys.meta_path if it is not self])
        if not self._waiting:
            return None
        self.look()
        request = (get_ident(), fullname)
        if fullname not in self._waiting or request in self._asking:
            return None
        self._asking.add(request)
        try:
            spec = self._ask_other_finders(fullname, path, target)
        finally:
            self._asking.discard(request)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._wrap(spec)
        return spec

    def _ask_other_finders(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in tuple(sys.meta_path):
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def _wrap(self, spec: ModuleSpec) -> None:
        spec.loader = _AnnouncingLoader(spec.loader, spec.name, self)  # type: ignore[assignment]
        self._given.append(spec)

    def _adopt(self, name: str, module: ModuleType) -> bool:
        """Wrap the loader of a module that is imported lazily and has not run yet (``importlib.util.LazyLoader``)."""
        machinery = sys.modules.get("importlib.util")
        if machinery is None or type(module) is not vars(machinery).get("_LazyModule"):
            return False
        spec = _attribute(module, "__spec__")
        if getattr(spec, "loader", None) is None:
            return False
        self._wrap(spec)
        return True

    # -- the code of a module runs -------------------------------------------------------------

    def run(self, name: str, execute: Callable[[], None], module: ModuleType) -> None:
        """Run the module's code, then announce it. A module may import itself under its own name while it runs, as
        cv2 does: then the outer one counts."""
        mark = (get_ident(), name)
        if name in self._waiting:
            self._begins(name)
        self._running.append(mark)
        try:
            execute()
            if self._running.count(mark) == 1:
                found = sys.modules.get(name)
                self._announce(name, module if found is None else found)
        finally:
            self._running.remove(mark)

    def _runs(self, name: str) -> bool:
        return any(running == name for _, running in tuple(self._running))

    def _announce(self, name: str, module: ModuleType) -> None:
        if self._claim(name):
            self._announced(name, module)

    def _claim(self, name: str) -> bool:
        """Whether it is up to the caller to report the module: true once, in whichever thread comes first."""
        return self._waiting.pop(name, self) is not self


class _AnnouncingLoader:
    """A loader that does what the real one does and then has the module announced. It steps aside when the code begins
    to run, so that ``__spec__`` and ``__loader__`` are the ones the module would have had without us."""

    def __init__(self, loader: Any, name: str, watch: ImportWatch) -> None:
        self._loader = loader
        self._name = name
        self._watch = watch

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """As who looks the module up would see it without us."""
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # a copy that is being made has no attributes yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        in_spec = getattr(spec, "loader", None) is self
        if in_spec:
            spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        try:
            self._watch.run(self._name, lambda: self._loader.exec_module(module), module)
        except BaseException:  # raised again; the script may try the import once more, and is announced then
            if in_spec:
                spec.loader = self
            raise


class _FindersBehind(list[Any]):
    """``sys.meta_path`` with the watch in front whenever finders are asked, also after others have inserted
    themselves at the head. The watch has no index, so ``insert(0, finder)`` and ``pop(0)`` mean what they meant."""

    def __init__(self, watch: ImportWatch, finders: Iterable[Any]) -> None:
        super().__init__(finders)
        self._watch = watch

    def __iter__(self) -> Iterator[Any]:
        yield self._watch
        yield from super().__iter__()

    def __add__(self, other: Any) -> Any:
        return [*self, *other]

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]


def _attribute(module: ModuleType, name: str) -> Any:
    """What a module has under that name, without setting off the import of a lazy one."""
    return ModuleType.__getattribute__(module, "__dict__").get(name)


def _has_code(module: Any) -> bool:
    """Whether a module came from a file: stubs that a script puts into ``sys.modules`` do not count, nor do folders
    that only look like a package."""
    return isinstance(module, ModuleType) and isinstance(_attribute(module, "__file__"), str)
