"""Short names of kernels, places and files that remain distinct.

They come from files and are shown as plain text on one line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from hotlap.render import text

LONGEST_NAME = 64

_LONGEST_READ = 4096
_BEFORE_DIFFERENCE = 16
_PLACE = re.compile(r".*?((?:[^/]+/)?[^/]+\.py\(\d+\): \S.*)$")


def event_name(name: str, limit: int = LONGEST_NAME) -> str:
    """A kernel without its result type, a Python place without folders, or any other name unchanged."""
    return text.one_line(_whole(name, 4 * LONGEST_NAME), limit=limit)


def event_names(names: Sequence[str], limit: int = LONGEST_NAME) -> dict[str, str]:
    """The names as shown by :func:`event_name`; names that would look the same also show where they differ."""
    whole = {it: _whole(it, _LONGEST_READ) for it in dict.fromkeys(names)}
    return _made_unique(whole, {name: text.one_line(it, limit=limit) for name, it in whole.items()}, limit)


def file_names(paths: Sequence[str], limit: int) -> dict[str, str]:
    """Return the last parts of some paths, as many as distinguish them."""
    whole = {it: text.one_line(it, limit=_LONGEST_READ) for it in dict.fromkeys(paths)}
    shown = {it: _last_parts(it, 1) for it in paths}
    for parts in range(2, 8):
        alike = _alike(shown)
        if not alike:
            break
        shown |= {it: _last_parts(it, parts) for group in alike for it in group}
    cut = {it: name if len(name) <= limit else "..." + name[3 - limit :] for it, name in shown.items()}
    return _made_unique(whole, cut, limit)


def _whole(name: str, limit: int) -> str:
    cleaned = text.one_line(name, limit=limit).removeprefix("void ")
    place = _PLACE.match(cleaned)
    return place[1] if place else cleaned


def _last_parts(path: str, parts: int) -> str:
    return text.one_line("/".join(path.rstrip("/").split("/")[-parts:]), limit=_LONGEST_READ)


def _alike(shown: dict[str, str]) -> list[list[str]]:
    """The groups of names that look the same."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, it in shown.items():
        groups[it].append(name)
    return [it for it in groups.values() if len(it) > 1]


def _made_unique(whole: dict[str, str], shown: dict[str, str], limit: int) -> dict[str, str]:
    """Names that look the same, shortened in the middle to show where they differ; numbered if they never do."""
    found = dict(shown)
    for group in _alike(shown):
        texts = {name: whole[name] for name in group}
        if len(set(texts.values())) < len(group) or limit < 3 * _BEFORE_DIFFERENCE:
            found |= {name: f"{shown[name]} #{number}" for number, name in enumerate(group, 1)}
            continue
        differ = _common_length(min(texts.values()), max(texts.values()))
        kept = limit // 2
        begin = max(kept, differ - _BEFORE_DIFFERENCE)
        apart = {
            name: f"{it[: kept - 3]}...{text.one_line(it[begin:], limit=limit - kept)}" for name, it in texts.items()
        }
        found |= _made_unique(texts, apart, limit) if len(set(apart.values())) > 1 else apart
    return found


def _common_length(first: str, last: str) -> int:
    """The length of the common beginning of some sorted texts."""
    pairs = zip(first, last, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(first), len(last)))
