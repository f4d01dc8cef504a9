"""Records for publication: paths relative to the project, the home directory as ``~``, no secrets.

Everything rendered passes through here. Files that hotlap itself opens again keep their paths; see
``docs/study-format.md``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

from hotlap.files import home_directory
from hotlap.redact import redacted_text, with_texts

_T = TypeVar("_T")

_HOME_PREFIX = "~/"
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def presentable(record: _T, directory: str = "") -> _T:
    """The record with paths relative to ``directory``, the project's folder."""
    home = _home()
    return with_texts(record, lambda it: shown(redacted_text(it), directory, home=home))


def portable(document: Any) -> Any:
    """Builtin objects of a JSON document with the home directory as ``~`` and without secrets.

    Bytes of a file's name that are not UTF-8, which JSON cannot represent, become U+FFFD.
    """
    match document:
        case str():
            return _HALF_CHARACTER.sub("\ufffd", shown(redacted_text(document)))
        case dict():
            return {key: portable(it) for key, it in document.items()}
        case list() | tuple():
            return [portable(it) for it in document]
    return document


def shown(text: str, directory: str = "", *, home: str | None = None) -> str:
    """The text with paths below ``directory`` relative to it, and the home directory as ``~``."""
    if "/" not in text:
        return text
    below = _prefix(directory)
    if below is not None:
        text = below.sub(lambda found: "" if found[1] else found[0], text)
    at_home = _prefix(_home() if home is None else home)
    return at_home.sub(r"~\1", text) if at_home is not None else text


def _home() -> str:
    home = home_directory()
    return str(home) if home is not None else ""


@cache
def _prefix(folder: str) -> re.Pattern[str] | None:
    """A pattern for a folder at the start of a path; group 1 is the slash after it. None for no folder or the root."""
    folder = folder.rstrip("/")
    if not folder.startswith(("/", _HOME_PREFIX)):
        return None
    return re.compile(rf"(?<![\w.~/-]){re.escape(folder)}(?:(/)(?=[^\s/'\"])|/?(?![\w~/-]|\.\w))")
