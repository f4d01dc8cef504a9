"""Reading and replacing an option of the script in its command line. Not a lever itself."""

from __future__ import annotations

from collections.abc import Sequence


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of the option in the arguments, as ``--flag 8`` or ``--flag=8``; None if it is absent."""
    for number, word in enumerate(arguments):
        if word == flag:
            return arguments[number + 1] if number + 1 < len(arguments) else ""
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def with_flag(arguments: Sequence[str], flag: str, size: int) -> tuple[str, ...]:
    """The arguments with the option set to a size, in the same form."""
    words = list(arguments)
    for number, word in enumerate(words):
        if word == flag and number + 1 < len(words):
            words[number + 1] = str(size)
            return tuple(words)
        if word.startswith(f"{flag}="):
            words[number] = f"{flag}={size}"
            return tuple(words)
    return (*arguments, flag, str(size))
