"""Reading a command line whose tail belongs to the user's script.

argparse alone would read ``--epochs 1`` of ``train.py --epochs 1`` as an option of hotlap. The line is
split first, at the first word that is neither an option of hotlap nor the value of one.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from hotlap.cli import screen
from hotlap.errors import UsageError

_TIME = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?:in)?)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")
_EXAMPLE = re.compile(r"(?:(?P<command>  \S.*?) {2,}| {10,})(?P<comment>\S.*)")
_COMMENT = " " * 6
"""How far a comment is indented below its command."""

_UNITS = (("h", 3600.0), ("m", 60.0), ("s", 1.0))


class Parser(argparse.ArgumentParser):
    """An argument parser that raises :class:`UsageError` instead of exiting."""

    def __init__(self, prog: str, description: str, examples: str = "", usage: str | None = None) -> None:
        columns = screen.width() - 2
        super().__init__(
            prog=prog,
            usage=usage and fitted(usage, columns - len("usage: ")),
            description=fitted(description, columns),
            epilog=fitted(examples, columns),
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise the message that argparse would print."""
        message = message.removeprefix("argument ")
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", remedy=f"`{self.prog} --help` lists the options.")

    def add_json(self, what: str = "print one JSON document") -> None:
        """Add ``--json``, for commands that print their own document."""
        self.add_argument("--json", action="store_true", help=what)

    def add_debug(self) -> None:
        """Add the options that every command has."""
        if "--quiet" not in self._option_string_actions:
            self.add_argument("--quiet", action=_Quiet, help="print only the answer and errors, no progress or remarks")
        self.add_argument("--debug", action="store_true", help="show tracebacks of hotlap's own errors")

    @property
    def flags(self) -> frozenset[str]:
        """Return every option of the command, as typed."""
        return frozenset(self._option_string_actions)

    @property
    def positionals(self) -> tuple[argparse.Action, ...]:
        """Return what the command takes besides options, except a script with its arguments."""
        return tuple(it for it in self._actions if not it.option_strings)

    def flag_of(self, name: str) -> str:
        """Return the option that sets the value of that name."""
        return next(it.option_strings[-1] for it in self._actions if it.dest == name)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split the words into hotlap's options and the script with its arguments."""
        index = 0
        while index < len(words):
            word = words[index]
            if word == "-m" or not word.startswith("-") or word == "-":
                break
            if word == "--":
                return list(words[:index]), list(words[index + 1 :])
            index += 2 if self._takes_next(word) else 1
        return list(words[:index]), list(words[index:])

    def options_in(self, words: Sequence[str]) -> Iterator[tuple[argparse.Action, tuple[str, ...]]]:
        """Return each option among words that were parsed, with its words as typed."""
        index = 0
        while index < len(words) and words[index] != "--":
            action = self._option_string_actions.get(words[index].partition("=")[0])
            count = 2 if action is not None and self._takes_next(words[index]) else 1
            if action is not None:
                yield action, tuple(words[index : index + count])
            index += count

    def _takes_next(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        if action is not None:
            return action.nargs is None
        name = word.partition("=")[0]
        if name not in self._option_string_actions:
            hint = nearest(name, self._option_string_actions)
            raise UsageError(
                f"There is no option {name!r} before the script.",
                remedy=f"{hint}Options of the script go after it; `{self.prog} --help` lists those of hotlap.",
            )
        return False


def fitted(text: str, width: int) -> str:
    """Break a help text for a terminal of that width; paragraphs are filled, and a comment moves below its command.

    A text that fits is returned unchanged.
    """
    if all(len(it) <= width for it in text.splitlines()):
        return text
    lines: list[str] = []
    prose: list[str] = []
    for line in (*text.splitlines(), ""):
        is_prose = line and not line.startswith(" ")
        prose += [line] if is_prose else []
        if is_prose and not line.endswith(":"):
            continue
        lines += _wrapped(" ".join(prose), width)
        prose = []
        if not is_prose:
            lines += [line] if len(line) <= width else _example_lines(line, width)
    return "\n".join(lines[:-1])


def _example_lines(line: str, width: int) -> list[str]:
    """A line that is too long: a command with its comment, or the rest of one."""
    found = _EXAMPLE.fullmatch(line)
    if found is None:
        return _wrapped(line.strip(), width, " " * (len(line) - len(line.lstrip(" "))))
    return [*([found["command"]] if found["command"] else []), *_wrapped(found["comment"], width, _COMMENT)]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


class _Quiet(argparse.Action):
    """A flag that also switches remarks off, so that commands need not check it."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=False, help=help)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        setattr(namespace, self.dest, True)
        screen.keep_quiet()


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that finds the terminal's width cheaply; argparse makes one for every option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=screen.width() - 2)


def seconds(text: str) -> float:
    """Parse ``90``, ``90s``, ``10m`` or ``1h30m`` as seconds.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    match = _TIME.fullmatch(text.strip().lower())
    total = sum(float(match[unit] or 0) * factor for unit, factor in _UNITS) if match else 0.0
    if total <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above zero; write it like 90s, 10m or 1h30m")
    return total


def short_seconds(text: str) -> float:
    """Parse ``20ms``, ``800us``, or what :func:`seconds` takes, as seconds.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|us)", text.strip().lower())
    if found is None:
        return seconds(text)
    total = float(found[1]) * {"ms": 1e-3, "us": 1e-6}[found[2]]
    if total <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above zero; write it like 20ms or 1s")
    return total


def size(text: str) -> int:
    """Parse ``24GiB``, ``512MiB``, ``16GB`` or ``4096B`` as bytes.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?)B?|B)", text.strip())
    size_bytes = 0
    if found is not None:
        number, prefix, binary = found.groups()
        size_bytes = int(float(number) * (1024 if binary else 1000) ** (1 + "KMGT".index(prefix) if prefix else 0))
    if not size_bytes:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size above zero; write it like 24GiB or 512MiB")
    return size_bytes


def share(text: str) -> float:
    """Parse ``1%`` or ``0.01`` as a share between 0 and 1.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    number = text.strip()
    try:
        found = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        found = -1.0
    if not 0 < found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1; write it like 1% or 0.01")
    return found


def names(text: str) -> tuple[str, ...]:
    """Parse ``a,b`` as names, without blanks, empty names and duplicates."""
    return tuple(dict.fromkeys(name for name in (part.strip() for part in text.split(",")) if name))


class AddNames(argparse.Action):
    """Adds the names to those that were given before by the same option."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest) or ()
        setattr(namespace, self.dest, tuple(dict.fromkeys((*before, *values))))


def whole(least: int, text: str) -> int:
    """Parse a whole number of at least ``least``.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return number


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, or return an empty string."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"Did you mean {near[0]!r}? " if near else ""
