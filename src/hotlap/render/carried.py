"""The options of a study's command that another command for the same script should be given too.

They say how the script can be run here: its network, the fence, the limits of slow starts, and where studies are kept.
What was to be measured, and for how long, belongs to the command alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import Study

WITH_VALUE = ("--network", "--startup-limit", "--block-limit", "--study")
ALONE = ("--unprotected",)


def carried_options(study: Study) -> tuple[str, ...]:
    """The words of these options as they were typed."""
    return tuple(_carried(study.repeated_options))


def _carried(typed: tuple[str, ...]) -> Iterator[str]:
    words = iter(typed)
    for word in words:
        if word in ALONE or word.partition("=")[0] in WITH_VALUE:
            yield word
            if word in WITH_VALUE:
                yield from (next(words, ""),)
