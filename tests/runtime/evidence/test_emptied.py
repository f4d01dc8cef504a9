"""Which variables that grow are emptied again, by the bytecode of what runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from hotlap.runtime.evidence.emptied import Running, emptied_by, emptied_in_a_loop, gone_when_it_returns

Look = Callable[[], None]


def stack() -> list[Running]:
    """What runs in this file, the innermost first; without the calling function."""
    frame, found = sys._getframe(2), []
    while frame is not None and frame.f_code.co_filename == __file__:
        found.append(Running(frame.f_code, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    return found


class Meter:
    def __init__(self) -> None:
        self.values: list[int] = []

    def reset(self) -> None:
        self.values = []

    def add(self, value: int) -> None:
        self.values.append(value)


def fresh_every_epoch(look: Look) -> None:
    for _ in range(2):
        losses = []
        for step in range(3):
            losses.append(step)
            look()


def cleared_every_epoch(look: Look) -> None:
    losses: list[int] = []
    for _ in range(2):
        for step in range(3):
            losses.append(step)
            look()
        losses.clear()


def never_emptied(look: Look) -> None:
    losses: list[int] = []
    for _ in range(2):
        for step in range(3):
            losses.append(step)
            look()


def another_is_emptied(look: Look) -> None:
    losses: list[int] = []
    others = []
    for _ in range(2):
        others = [1]
        others.clear()
        for step in range(3):
            losses.append(step)
            look()
    print(others)


def filled_every_epoch(look: Look) -> None:
    for _ in range(2):
        losses = [0]
        for step in range(3):
            losses.append(step)
            look()


def made_by_a_call(look: Look) -> None:
    for _ in range(2):
        losses = list()  # noqa: C408
        for step in range(3):
            losses.append(step)
            look()


@pytest.mark.parametrize(
    ("function", "emptied"),
    [
        (fresh_every_epoch, True),
        (cleared_every_epoch, True),
        (made_by_a_call, True),
        (never_emptied, False),
        (another_is_emptied, False),
        (filled_every_epoch, False),
    ],
)
def test_a_loop_around_the_step_empties_a_list(function: Callable[[Look], None], emptied: bool) -> None:
    seen: list[bool] = []
    function(lambda: seen.append(emptied_in_a_loop(stack(), ("losses",))))
    assert set(seen) == {emptied}


def an_epoch(look: Look, given: list[int], returned: bool) -> Any:
    losses: list[int] = []
    for step in range(3):
        losses.append(step)
        given.append(step)
        look()
    return 0


def an_epoch_that_returns_it(look: Look) -> list[int]:
    losses: list[int] = []
    for step in range(3):
        losses.append(step)
        look()
    return losses


def test_a_variable_goes_with_its_function() -> None:
    seen: list[tuple[bool, bool]] = []

    def look() -> None:
        names = ("losses", "given")
        seen.append(tuple(gone_when_it_returns(stack(), "an_epoch", it) for it in names))  # type: ignore[arg-type]

    for _ in range(2):
        an_epoch(look, [], returned=False)
    assert set(seen) == {(True, False)}
    seen.clear()
    an_epoch(look, [], returned=False)
    assert set(seen) == {(False, False)}, "a function that is called once ends with the script"


def test_a_variable_that_is_returned_may_be_kept() -> None:
    seen: list[bool] = []
    for _ in range(2):
        an_epoch_that_returns_it(
            lambda: seen.append(gone_when_it_returns(stack(), "an_epoch_that_returns_it", "losses"))
        )
    assert set(seen) == {False}


def test_a_method_that_resets() -> None:
    path = ("self", "values")
    assert emptied_by([Meter.add.__code__, Meter.reset.__code__], path)
    assert not emptied_by([Meter.add.__code__], path)
    assert not emptied_by([Meter.reset.__code__], ("self", "others"))
