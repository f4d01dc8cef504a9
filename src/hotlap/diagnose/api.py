"""The interface of a rule file, and the discovery of all rules in the folder.

One file is one rule: ``diagnose/rules/loader_bound.py`` is the rule ``loader-bound``. Its docstring is its page (what
it is, why it is slow, how to see it, what to do, when it is fine). Its members are the fields of :class:`Rule`; nothing
is registered anywhere else. Levers declare which rules they address (``addresses``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Literal, TypeAlias

from hotlap.diagnose.profile import Profile
from hotlap.errors import LeverError
from hotlap.levers.api import all_levers
from hotlap.records import Finding, Measurement

Group: TypeAlias = Literal["data", "host", "compute", "compile", "memory", "numbers", "distributed", "machine", "run"]


USUAL_GROUND: tuple[Measurement, ...] = ("account", "profile")
"""The measurements of a rule that declares no ``rests_on``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One known cause of slowness, or hazard.

    ``check`` takes a profile and yields findings with the rule's name; it yields nothing if the profile lacks what it
    needs. ``fires`` and ``silent`` are named example profiles on which it must and must not fire. ``levers`` are those
    that address it. ``explains`` names the rules of which this one is the cause if both have a finding at the same
    line: they are merged into one finding (:mod:`hotlap.diagnose.rank`). ``ranks_last`` puts it after all others of its
    kind. ``rests_on`` are the measurements whose times it uses: its findings are marked if one of them was disturbed.
    """

    name: str
    title: str
    page: str
    group: Group
    levers: tuple[str, ...]
    check: Callable[[Profile], Iterable[Finding]]
    fires: Mapping[str, Profile]
    silent: Mapping[str, Profile]
    rests_on: tuple[Measurement, ...] = USUAL_GROUND
    explains: tuple[str, ...] = ()
    ranks_last: bool = False


_REQUIRED = ("title", "group", "check", "fires", "silent")


@cache
def all_rules() -> Mapping[str, Rule]:
    """Return every rule by name, in alphabetical order. Raises :class:`LeverError` for a broken file."""
    import hotlap.diagnose.rules as folder

    names = sorted(entry.name for entry in pkgutil.iter_modules(folder.__path__))
    return {_name(it): _build(_name(it)) for it in names}


def _name(module: str) -> str:
    return module.replace("_", "-")


def _build(name: str) -> Rule:
    module: ModuleType = importlib.import_module(f"hotlap.diagnose.rules.{name.replace('-', '_')}")
    missing = [member for member in _REQUIRED if not hasattr(module, member)]
    if missing or not module.__doc__:
        lacking = missing[0] if missing else "a docstring"
        raise LeverError(f"The rule file for {name!r} lacks {lacking}.", remedy="See diagnose/api.py.")
    return Rule(
        name=name,
        title=module.title,
        page=module.__doc__,
        group=module.group,
        levers=tuple(it.name for it in all_levers().values() if name in it.addresses),
        rests_on=getattr(module, "rests_on", USUAL_GROUND),
        check=module.check,
        fires=module.fires,
        silent=module.silent,
        explains=getattr(module, "explains", ()),
        ranks_last=getattr(module, "ranks_last", False),
    )
