"""Trackers stay silent in a trial even where the script's own arguments override the environment variables.

:mod:`hotlap.runtime.trackers` sets the variables that trackers document; an explicit argument beats them
(``wandb.init(mode="online")``, ``mlflow.set_tracking_uri("http://...")``). So once the script has imported a tracker,
the calls listed in :mod:`hotlap.runtime.silenced_calls` are wrapped: either an argument is forced to the tracker's own
disabled or local mode, or the call is not made and gets an answer of the type that the tracker would return.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

from hotlap.runtime.silenced_calls import TABLE, Answered, Call, Forced, Row

WATCHED = tuple(dict.fromkeys(row.module for row in TABLE))
"""The modules whose import :meth:`Silencer.on_import` waits for."""


class Silencer:
    """Silences trackers in this process; their local files go below ``folder``.

    ``notes`` are sentences for the report, one for each tracker that the script configured to send something.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.notes: list[str] = []

    def on_import(self, name: str, module: ModuleType) -> None:
        """Wrap the calls of a module of :data:`WATCHED` after its import."""
        for row in TABLE:
            if row.module == name:
                self._silence(row, module)

    def _silence(self, row: Row, module: ModuleType) -> None:
        *owners, attribute = row.name.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part, None)
        held = _held(owner, attribute)
        original = held.__func__ if isinstance(held, (classmethod, staticmethod)) else held
        if not callable(original) or hasattr(original, "silenced_by_hotlap"):
            return  # another version of the tracker, or an alias that is already silenced
        stand_in = self._stand_in(row, module, original)
        setattr(owner, attribute, type(held)(stand_in) if held is not original else stand_in)
        _replace_aliases(row.module.partition(".")[0], original, stand_in)
        if isinstance(row, Forced) and row.on_import:
            getattr(owner, attribute)()

    def _stand_in(self, row: Row, module: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        # A real function: transformers copies methods by their code.
        @functools.wraps(original)
        def silenced(*arguments: Any, **keywords: Any) -> Any:
            bound = signature.bind_partial(*arguments, **keywords)
            if isinstance(row, Answered):
                self._note(row.note)
                return row.answer(Call(module=module, arguments=_by_name(bound)))
            self._force(row, bound)
            return original(*bound.args, **bound.kwargs)

        silenced.silenced_by_hotlap = True  # type: ignore[attr-defined]
        return silenced

    def _force(self, row: Forced, bound: inspect.BoundArguments) -> None:
        """Replace the arguments of this call by the row's values."""
        given = _by_name(bound)
        if any(given.get(name) in row.kept for name, _ in row.values if name in given):
            return
        if any(row.goes_online(given[name]) for name, _ in row.values if given.get(name) is not None):
            self._note(row.note)
        for variable in row.without_variables:
            os.environ.pop(variable, None)
        for name, value in row.values:
            _set(bound, name, self._filled(value))

    def _filled(self, value: object) -> object:
        if not isinstance(value, str) or "{" not in value:
            return value
        self._folder.mkdir(parents=True, exist_ok=True)
        return value.format(folder=self._folder, uri=self._folder.as_uri())

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _held(owner: Any, attribute: str) -> Any:
    """The attribute as stored: a class method is not bound."""
    if owner is None:
        return None
    return inspect.getattr_static(owner, attribute, None)


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments of a call, including those in ``**keywords``."""
    found = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(name, {})
    return found


def _set(bound: inspect.BoundArguments, name: str, value: object) -> None:
    """Set this argument, unless this version of the tracker does not have it."""
    if name in bound.signature.parameters:
        bound.arguments[name] = value
        return
    for rest, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments.setdefault(rest, {})[name] = value


def _replace_aliases(package: str, original: object, stand_in: Callable[..., Any]) -> None:
    """Replace the original by the stand-in in all modules of the package, as a function or a bound method."""
    for module in list(_modules_of(package)):
        for name, value in list(vars(module).items()):
            if value is original:
                setattr(module, name, stand_in)
            elif type(value) is MethodType and value.__func__ is original:
                setattr(module, name, MethodType(stand_in, value.__self__))


def _modules_of(package: str) -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (name == package or name.startswith(package + ".")):
            yield module
