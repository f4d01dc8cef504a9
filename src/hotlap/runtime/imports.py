"""Being told when the script has imported a module, without importing it ourselves.

Scripts set environment variables (threads, visible devices) before ``import torch``; importing it for them
would change what they do. So a finder at the head of ``sys.meta_path`` lets the ordinary finders work and adds
one call after the module's own code has run.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

Callback = Callable[[str, ModuleType], None]


class ImportWatch(MetaPathFinder):
    """Calls ``callback(name, module)`` once after each watched module was imported."""

    def __init__(self, names: Iterable[str], callback: Callback) -> None:
        self._waiting = set(names)
        self._callback = callback

    def start(self) -> None:
        """Begin; modules that are imported already are reported at once."""
        for name in sorted(self._waiting & set(sys.modules)):
            self._waiting.discard(name)
            self._callback(name, sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._waiting:
            return None
        self._waiting.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = cast(Loader, _Announcing(spec.loader, fullname, self._callback))
        return spec


class _Announcing:
    """A loader that does what the real one does, then tells. It steps aside once the module exists, so that the
    module's ``__spec__`` and ``__loader__`` are the ones it would have had without us."""

    def __init__(self, loader: Loader, name: str, callback: Callback) -> None:
        self._loader = loader
        self._name = name
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback(self._name, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
