"""Repeat trials that were killed from outside, which is not evidence about the script or a lever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from hotlap.records import Crashed, Run

MOST_REPETITIONS = 2
"""A script that kills itself looks the same from outside."""

_Answer = TypeVar("_Answer")


def killed_from_outside(run: Run) -> bool:
    """Whether a run ended by a SIGKILL that came neither from hotlap nor from the kernel for lack of memory."""
    return isinstance(run.ending, Crashed) and run.ending.killed_from_outside


def repeated(
    ask: Callable[[], _Answer],
    runs: Callable[[_Answer], Iterable[Run]],
    on_repetition: Callable[[], object],
    *,
    allowed: Callable[[], bool] = lambda: True,
) -> _Answer:
    """The first of up to three answers without a killed run, else the last.

    ``on_repetition`` is called before each repetition; there are none unless ``allowed``.
    """
    for _ in range(MOST_REPETITIONS):
        answer = ask()
        if not any(map(killed_from_outside, runs(answer))) or not allowed():
            return answer
        on_repetition()
    return ask()


def repetitions_text(count: int) -> str:
    """The warning of a study after so many repetitions."""
    what = "One trial was" if count == 1 else f"{count} trials were"
    again = "was" if count == 1 else "were"
    return (
        f"{what} killed from outside (SIGKILL) and {again} repeated. Find what kills processes on this machine: "
        "a job scheduler, a memory limit, a person."
    )
