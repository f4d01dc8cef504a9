"""The interface of a lint rule's file, and how the folder's rules are found.

One file is one rule, named after the bad pattern: ``rules/item_in_hot_loop.py`` is the rule ``item-in-hot-loop``. Its
docstring is its page, its members are the fields of :class:`Rule`; nothing is registered anywhere else.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Literal, TypeAlias, get_args

from hotlap.errors import LintError
from hotlap.source.edits.kinds import Change
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.training import HotPlace

FixSafety: TypeAlias = Literal["safe", "unsafe", "shown", "none"]
"""``safe``: the program produces the same results. ``unsafe``: it should, but the source does not prove it, or comments
may move. ``shown``: displayed, never written. ``none``: there is no fix."""

GROUPS = {
    "1": "Data: reading, transforming and feeding batches",
    "2": "Host: what makes the device wait for Python",
    "3": "Numbers: what trains wrongly, or not what was meant",
    "4": "Compile: what torch.compile makes of the model",
    "5": "Memory: what is held for nothing",
    "6": "Compute: optimizers, precision and operators",
    "7": "Distributed: several devices or processes",
}
"""What the first digit of a code means."""


@dataclass(frozen=True, slots=True)
class Related:
    """Another place related to a violation, with a note; ``file`` if it is in another file."""

    node: ast.AST
    message: str
    file: str = ""


def called_from(place: HotPlace) -> tuple[Related, ...]:
    """The call in the training loop that leads to a place in another function; empty for one in the loop itself."""
    return (Related(place.call, "the training loop calls it here"),) if place.call is not None else ()


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation. ``message`` is one sentence about this place; ``related`` are other places that explain it.

    ``edits`` fix it, all of them or none; empty if there is no fix here. ``safety`` overrides the rule's grade with a
    lower one for this place.
    """

    node: ast.AST
    message: str
    related: tuple[Related, ...] = ()
    edits: Change = ()
    safety: FixSafety | None = None


Check: TypeAlias = Callable[[Context], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One bad pattern that is visible in the source.

    ``bad`` and ``good`` are sources, by title, on which it must and must not fire. ``fixed`` holds what its edits must
    make of some of ``bad``. ``measured`` is a sentence about what the pattern costs, from the committed benchmark that
    measured it; empty if none did. A rule that looks ``across_files`` reports what is in this file and edits nothing
    else, but names, callers and training loops are then those of the project around it; other rules see the file alone,
    since a definition that it lacks may be elsewhere.
    """

    code: str
    name: str
    title: str
    page: str
    fix_safety: FixSafety
    check: Check
    bad: Mapping[str, str]
    good: Mapping[str, str]
    fixed: Mapping[str, str]
    measured: str
    across_files: bool = False

    @property
    def group(self) -> str:
        """The rule's category, by the first digit of its code."""
        return GROUPS[self.code[2]]


_REQUIRED = ("code", "title", "fix_safety", "check", "bad", "good")
_CODE = re.compile(r"HL[1-7]\d\d")


@cache
def all_rules() -> Mapping[str, Rule]:
    """Every rule of the folder by code, in order. Raises :class:`LintError` for a broken file or a code used twice."""
    import hotlap.source.lint.rules as folder

    found: dict[str, Rule] = {}
    for entry in sorted(pkgutil.iter_modules(folder.__path__), key=lambda it: it.name):
        if entry.name.startswith("_"):
            continue
        rule = build(importlib.import_module(f"hotlap.source.lint.rules.{entry.name}"))
        if rule.code in found:
            raise LintError(
                f"The rules {found[rule.code].name!r} and {rule.name!r} both have the code {rule.code}.",
                remedy="Give one of them the next free number.",
            )
        found[rule.code] = rule
    return dict(sorted(found.items()))


def build(module: ModuleType) -> Rule:
    """Load the rule of a file. Raises :class:`LintError` if a member is missing or invalid."""
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    wrong = _what_is_wrong(module)
    if wrong:
        raise LintError(
            f"The rule file for {name!r} {wrong}.", remedy="source/lint/api.py says what a rule must offer."
        )
    return Rule(
        code=module.code,
        name=name,
        title=module.title,
        page=inspect.cleandoc(module.__doc__ or ""),
        fix_safety=module.fix_safety,
        check=module.check,
        bad={key: inspect.cleandoc(text) + "\n" for key, text in module.bad.items()},
        good={key: inspect.cleandoc(text) + "\n" for key, text in module.good.items()},
        fixed={key: inspect.cleandoc(text) + "\n" for key, text in getattr(module, "fixed", {}).items()},
        measured=getattr(module, "measured", ""),
        across_files=getattr(module, "across_files", False),
    )


def _what_is_wrong(module: ModuleType) -> str:
    if not module.__doc__:
        return "lacks a docstring"
    for member in _REQUIRED:
        if not hasattr(module, member):
            return f"lacks {member!r}"
    if not _CODE.fullmatch(module.code):
        return f"has the code {module.code!r}, which is not HL and three digits from 101 to 799"
    if module.fix_safety not in get_args(FixSafety):
        return f"grades its fix {module.fix_safety!r}, which is none of {', '.join(get_args(FixSafety))}"
    if (module.fix_safety == "none") is bool(getattr(module, "fixed", {})):
        return "grades a fix without showing one in 'fixed', or the other way round"
    return ""
