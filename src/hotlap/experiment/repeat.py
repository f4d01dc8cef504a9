"""Repeat trials that something outside of hotlap killed: that says nothing about the script, nor about a lever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from hotlap.records import Crashed, Run

MOST_REPETITIONS = 2
"""A script that kills itself looks the same from outside."""

_Answer = TypeVar("_Answer")


def killed_from_outside(run: Run) -> bool:
    """Whether a run was ended by a SIGKILL that hotlap did not send and that the kernel did not send for memory."""
    return isinstance(run.ending, Crashed) and run.ending.killed_from_outside


def repeated(
    ask: Callable[[], _Answer],
    runs: Callable[[_Answer], Iterable[Run]],
    on_repetition: Callable[[], object],
    *,
    allowed: Callable[[], bool] = lambda: True,
) -> _Answer:
    """The answer; of up to three the first in which nothing was killed, else the last. ``on_repetition`` is called
    before each repetition, none of which is made unless ``allowed``."""
    for _ in range(MOST_REPETITIONS):
        answer = ask()
        if not any(map(killed_from_outside, runs(answer))) or not allowed():
            return answer
        on_repetition()
    return ask()


def repetitions_text(count: int) -> str:
    """The warning that a study carries after so many repetitions."""
    what = "One trial was" if count == 1 else f"{count} trials were"
    again = "was" if count == 1 else "were"
    return (
        f"{what} killed from outside (SIGKILL) and {again} repeated. Find what kills processes on this machine: "
        "a job scheduler, a memory limit, a person."
    )
