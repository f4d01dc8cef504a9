"""Out of memory that the script catches: a forward or backward pass that began and never ended, while the script
continues, would otherwise count as a fast step or wait for a first step that never comes."""

from __future__ import annotations

import os
from typing import Any

from hotlap.records import WatchFailedPasses
from hotlap.runtime.instruments.api import Place

_SENTENCE = (
    "MemoryError: a forward or backward pass failed and the script continued: it catches the error itself "
    "(out of memory, as a rule)\n"
)


def install(place: Place, asked: WatchFailedPasses) -> None:
    """From the first training forward on."""
    hooks = place.hooks
    running: set[str] = set()

    def begin(what: str) -> None:
        if what in running:
            os.write(2, _SENTENCE.encode())
            os._exit(1)  # nothing that the script catches or registers may keep it alive
        running.add(what)

    def before_forward(
        root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if "backward" not in running:  # else it is recomputed within one
            begin("forward")
        elif "forward" not in running:
            begin("backward")
        return args, kwargs

    def after_forward(root: Any, output: Any) -> None:
        running.discard("forward")

    def before_backward(tensor: Any) -> Any:
        begin("backward")
        return tensor

    def after_backward() -> None:
        running.discard("backward")

    hooks.before_forward.append(before_forward)
    hooks.after_forward.append(after_forward)
    hooks.before_backward.append(before_backward)
    hooks.after_backward.append(after_backward)
