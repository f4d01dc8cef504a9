"""Attributes that were replaced, and the way back."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """Replaces attributes of classes and modules; :meth:`suspend` puts the originals back and :meth:`resume` ours, so
    that tests leave no trace and the cost of being there can be measured within one process."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], tuple[Any, str, Any, Any]] = {}
        self._suspended = False

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` to ``value``, remembering what stood there first."""
        key = (id(owner), name)
        original = self._made[key][2] if key in self._made else vars(owner).get(name, _ABSENT)
        self._made[key] = (owner, name, original, value)
        setattr(owner, name, value)

    def suspend(self) -> None:
        """Put all originals back; what is suspended already stays so."""
        if self._suspended:
            return
        self._suspended = True
        for owner, name, original, _ in self._made.values():
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def resume(self) -> None:
        """Undo :meth:`suspend`."""
        self._suspended = False
        for owner, name, _, value in self._made.values():
            setattr(owner, name, value)
