"""Switch a lever on and off between two steps of a training process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks


@dataclass(frozen=True, slots=True)
class Switch:
    """Both are called only between two steps, alternately, ``on`` first. After ``off`` the process trains as one that
    never had the lever: what it holds has the same values, dtypes and strides."""

    on: Callable[[], None]
    off: Callable[[], None]


def _call(subject: Any, call: Callable[[], Any]) -> Any:
    return call()


_WHEN_OFF: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "around_loader_start": _call,
        "around_fetch": _call,
        "around_evaluation": _call,
        "around_step": _call,
        "around_save": lambda save: save(),
        "before_forward": lambda root, args, kwargs: (args, kwargs),
        "before_backward": lambda tensor: tensor,
        "after_forward": lambda root, output: None,
        "after_backward": lambda: None,
        "before_clip": lambda parameters, limit: None,
        "before_update": lambda optimizer: None,
        "after_update": lambda optimizer: None,
        "step_ended": lambda: None,
        "back_to_script": lambda: None,
    }
)
"""What each hook that is called within a step answers while its lever is off. Other hooks tell once of what there is
(a model, an optimizer), which a lever must know of also where it is switched on later."""


def gated(hooks: Hooks, install: Callable[[Hooks], None]) -> Switch:
    """The switch of a lever that consists of hooks within each step: while it is off they do nothing."""
    gate = _Gate(hooks)
    install(cast("Hooks", gate))
    return Switch(on=gate.open, off=gate.close)


def remembered(read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> Switch:
    """The switch of a lever that sets one value of the process; ``off`` restores the previous value."""
    before: list[Any] = []

    def on() -> None:
        before.append(read())
        write(value)

    return Switch(on=on, off=lambda: write(before.pop()))


def of_models(hooks: Hooks, put_on: Callable[[Any], None], take_off: Callable[[], None]) -> Switch:
    """The switch of a lever that changes models: it is put on each one that was found, also one that is found while it
    is on, and taken off all at once."""
    roots: list[Any] = []
    is_on = False

    def found(root: Any) -> None:
        roots.append(root)
        if is_on:
            put_on(root)

    def on() -> None:
        nonlocal is_on
        is_on = True
        for root in roots:
            put_on(root)

    def off() -> None:
        nonlocal is_on
        is_on = False
        take_off()

    hooks.model_found.append(found)
    return Switch(on, off)


class _Gate:
    """Hooks whose appended callables run only while a gate is open; it is closed at first."""

    def __init__(self, hooks: Hooks) -> None:
        object.__setattr__(self, "_hooks", hooks)
        object.__setattr__(self, "_is_open", False)

    def open(self) -> None:
        object.__setattr__(self, "_is_open", True)

    def close(self) -> None:
        object.__setattr__(self, "_is_open", False)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._hooks, name)
        return _GatedList(self, found, _WHEN_OFF[name]) if name in _WHEN_OFF else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._hooks, name, value)


class _GatedList:
    def __init__(self, gate: _Gate, behind: list[Any], when_off: Callable[..., Any]) -> None:
        self._gate = gate
        self._behind = behind
        self._when_off = when_off

    def append(self, function: Callable[..., Any]) -> None:
        gate, when_off = self._gate, self._when_off

        def gated_function(*arguments: Any) -> Any:
            return (function if gate._is_open else when_off)(*arguments)

        self._behind.append(gated_function)
