"""Put a project together from ``templates/``, so that what tasks share is written once.

``script.py.txt`` is the whole training script but for a task's own sections, which are in ``image.py.txt`` and so on.
There are three marks, each on a line of its own; none remains in the result:

    #@ section NAME         in a task's file: the lines up to the next section are called NAME
    #@ insert NAME          the lines of that section, or else of the file NAME.py.txt, at this indentation
    #@ only TASK [TASK]     the lines up to ``#@ end`` are only for these tasks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

Task = Literal["image", "text", "lm"]
TASKS: tuple[Task, ...] = get_args(Task)
FILES = {"train.py": "script.py.txt", "README.md": "readme.md.txt", "requirements.txt": "requirements.txt.txt"}
"""The files of a project, and the templates that they are made from."""

_TEMPLATES = Path(__file__).parent / "templates"
_MARK = "#@ "


def compose(task: Task) -> dict[str, str]:
    """The names and texts of a project's files."""
    sections = _sections(_read(f"{task}.py.txt"))
    return {name: "".join(_lines(_read(template), task, sections)) for name, template in FILES.items()}


def _read(name: str) -> list[str]:
    return (_TEMPLATES / name).read_text(encoding="utf-8").splitlines(keepends=True)


def _sections(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        mark, words = _mark_of(line)
        if mark == "section":
            current = found.setdefault(words[0], [])
        else:
            current.append(line)
    return found


def _lines(lines: list[str], task: Task, sections: Mapping[str, list[str]]) -> Iterator[str]:
    wanted = True
    for line in lines:
        mark, words = _mark_of(line)
        if mark == "only":
            wanted = task in words
        elif mark == "end":
            wanted = True
        elif mark == "insert":
            indent = line[: line.index(_MARK)]
            inserted = sections[words[0]] if words[0] in sections else _read(f"{words[0]}.py.txt")
            yield from (indent + it if it.strip() else it for it in _lines(inserted, task, sections))
        elif wanted:
            yield line


def _mark_of(line: str) -> tuple[str, list[str]]:
    """The mark that a line bears and the words behind it; no mark is an empty text."""
    bare = line.strip()
    if not bare.startswith(_MARK):
        return "", []
    mark, *words = bare.removeprefix(_MARK).split()
    return mark, words
