"""Levers that are put on and taken off while the script trains, so that one launch compares many of them.

Only what takes effect between two steps can be compared so (``Lever.switch``), and only seconds are: weights go on
changing under all configurations.
"""

from __future__ import annotations

from hotlap.errors import LeverError
from hotlap.levers.api import find
from hotlap.levers.support.switching import Switch
from hotlap.records import Setting, SwitchLevers
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: SwitchLevers) -> None:
    """Hang on the switches of all levers that any configuration has; all are off at first.

    Raises :class:`LeverError` for a lever that cannot be switched.
    """
    settings = dict.fromkeys(it for plan in asked.configurations for it in plan.settings)
    switches = {it: _switch(place.hooks, it) for it in settings}
    is_on: list[Setting] = []

    def change(configuration: int) -> None:
        wanted = asked.configurations[configuration].settings
        # Backwards, since a lever may stand on what one before it did.
        for it in reversed([it for it in is_on if it not in wanted]):
            switches[it].off()
            is_on.remove(it)
        for it in wanted:
            if it not in is_on:
                switches[it].on()
                is_on.append(it)

    place.hooks.configuration_changed.append(change)


def _switch(hooks: Hooks, setting: Setting) -> Switch:
    lever = find(setting.lever)
    if lever.switch is None or lever.environment(setting):
        raise LeverError(
            f"The lever {lever.name!r} cannot be put on while a script trains.", remedy="Launch the script with it."
        )
    return lever.switch(hooks, setting)
