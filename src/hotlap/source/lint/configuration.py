"""The table ``[tool.hotlap.lint]`` of a pyproject.toml: selected rules and excluded files.

[tool.hotlap.lint]
select = ["HL"]                    # codes or their beginnings, or rules' names; all by default
ignore = ["HL201"]
exclude = ["third_party/*"]        # besides what is left out anyway

[tool.hotlap.lint.per-file-ignores]
"tests/*" = ["HL2"]
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hotlap.errors import LintError
from hotlap.files import MEBIBYTE, read_bounded
from hotlap.source.lint.api import Rule, all_rules

_LARGEST_BYTES = 8 * MEBIBYTE

_KEYS = ("select", "ignore", "exclude", "per-file-ignores")
_PREFIX = re.compile(r"HL\d{0,3}", re.IGNORECASE)
_REMEDY = "See `hotlap lint --help` for what [tool.hotlap.lint] may hold."

_WITHDRAWN = (
    (
        "HL651",
        "deterministic-algorithms",
        "In other people's code its findings were never right: whoever sets these flags wants reproducible runs. "
        "`hotlap tune` measures what they cost in a script.",
    ),
)
"""Removed rules: code, name, and why. Configurations may still name them."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What was configured; patterns are relative to ``root``, the folder of the pyproject.toml."""

    root: Path = field(default_factory=Path.cwd)
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def excludes(self, path: Path) -> bool:
        """Whether a file or folder is left out."""
        return any(_matches(path, self.root, it) for it in self.exclude)

    def ignored_in(self, path: Path) -> frozenset[str]:
        """The codes that are ignored in one file."""
        selectors = [it for pattern, codes in self.per_file_ignores.items() if _matches(path, self.root, pattern)
                     for it in codes]  # fmt: skip
        return frozenset(code for it in selectors for code in codes_of(it))


def configuration_for(folder: Path) -> Configuration:
    """Read the nearest pyproject.toml in or above a folder. Raises :class:`LintError` for an invalid table."""
    folder = folder.resolve()
    for above in (folder, *folder.parents):
        file = above / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return Configuration(root=folder)


def chosen_rules(select: Iterable[str], ignore: Iterable[str]) -> Sequence[Rule]:
    """The selected rules (by default all) without the ignored ones. Raises :class:`LintError`."""
    selected = list(select)
    wanted = {code for it in selected for code in codes_of(it)} if selected else set(all_rules())
    unwanted = {code for it in ignore for code in codes_of(it)}
    return [rule for code, rule in all_rules().items() if code in wanted - unwanted]


def withdrawn(selector: str) -> str:
    """Why the rule of this code or name was removed; empty if it exists or never did."""
    text = selector.strip()
    return next((why for code, name, why in _WITHDRAWN if text.upper() == code or text.lower() == name), "")


def codes_of(selector: str) -> frozenset[str]:
    """The codes that a selector means: ``HL201``, ``HL2``, ``HL``, or a rule's name; none for a withdrawn rule.

    Raises :class:`LintError` for an unknown rule.
    """
    rules = all_rules()
    text = selector.strip()
    if withdrawn(text):
        return frozenset()
    if _PREFIX.fullmatch(text):
        found = frozenset(code for code in rules if code.startswith(text.upper()))
    else:
        found = frozenset(code for code, rule in rules.items() if rule.name == text.lower())
    if not found:
        known = [*rules, *(it.name for it in rules.values())]
        raise LintError(
            f"There is no lint rule {selector!r}.", remedy=f"{_nearest(text, known)}`hotlap rule` lists all."
        )
    return found


def _read(file: Path) -> Configuration:
    try:
        content = tomllib.loads(read_bounded(file, _LARGEST_BYTES).decode("utf-8"))
    except RecursionError:
        raise LintError("The configuration is nested too deeply.", where=str(file), remedy="Correct it.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LintError(f"The configuration cannot be read: {error}.", where=str(file), remedy="Correct it.") from None
    table: Any = content
    for key in ("tool", "hotlap", "lint"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise LintError(f"{key!r} is not a table.", where=str(file), remedy=_REMEDY)
    for key in table:
        if key not in _KEYS:
            raise LintError(
                f"[tool.hotlap.lint] has no key {key!r}.", where=str(file), remedy=f"{_nearest(key, _KEYS)}{_REMEDY}"
            )
    lists = {key: _texts(table.get(key, []), key, file) for key in ("select", "ignore", "exclude")}
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise LintError("'per-file-ignores' is not a table of patterns.", where=str(file), remedy=_REMEDY)
    ignores = {pattern: _texts(codes, "per-file-ignores", file) for pattern, codes in per_file.items()}
    for selector in (*lists["select"], *lists["ignore"], *(it for codes in ignores.values() for it in codes)):
        try:
            codes_of(selector)
        except LintError as error:
            raise LintError(error.what, where=str(file), remedy=error.remedy) from None
    return Configuration(file.parent, lists["select"], lists["ignore"], lists["exclude"], ignores)


def _texts(value: Any, key: str, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(it, str) for it in value):
        raise LintError(f"{key!r} is not a list of strings.", where=str(file), remedy=_REMEDY)
    return tuple(value)


def _matches(path: Path, root: Path, pattern: str) -> bool:
    """Whether a pattern means a file or a folder around it; one without a slash means any of that name."""
    absolute = path if path.is_absolute() else Path.cwd() / path
    try:
        relative = absolute.relative_to(root)
    except ValueError:
        relative = Path(path.name)
    pattern = pattern.removeprefix("./").rstrip("/")
    for it in (relative, *relative.parents):
        if it == Path():
            continue
        if fnmatch(it.as_posix(), pattern) or ("/" not in pattern and fnmatch(it.name, pattern)):
            return True
    return False


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean {near[0]!r}? " if near else ""
