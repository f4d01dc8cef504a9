"""Out of memory that the script catches: a pass or an update that began and never ended, while the script continues or
ends by itself, would otherwise count as a fast step, as a short run, or wait for a first step that never comes."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, Literal, TypeAlias

from hotlap.records import WatchFailedPasses
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.instruments.api import Place

_Part: TypeAlias = Literal["forward", "backward", "update"]

_SENTENCE = "MemoryError: {part} failed and the script {then}: it catches the error itself (out of memory, as a rule)\n"
_PARTS: dict[_Part, str] = {
    "forward": "a forward or backward pass",
    "backward": "a forward or backward pass",
    "update": "an optimizer's update",
}


def install(place: Place, asked: WatchFailedPasses) -> None:
    """From the first training forward on."""
    hooks = place.hooks
    running: set[_Part] = set()
    process = os.getpid()

    def end(part: _Part, then: str) -> None:
        os.write(2, _SENTENCE.format(part=_PARTS[part], then=then).encode())
        os._exit(1)  # nothing that the script catches or registers may keep it alive

    def begin(part: _Part) -> None:
        if part in running:
            end(part, "continued")
        if "update" in running:
            end("update", "continued")
        running.add(part)

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

    def around_step(optimizer: Any, take: Fetch) -> Any:
        try:
            return take()  # which may call the model: only an error leaves a mark
        except Exception:  # raised again to the script; that the update failed is noted
            running.add("update")
            raise

    def before_exit() -> None:
        # An error that nothing caught is printed before this, and is the script's ending by itself.
        if running and os.getpid() == process and getattr(sys, "last_value", None) is None:
            end(min(running), "ended by itself")

    hooks.before_forward.append(before_forward)
    hooks.before_backward.append(before_backward)
    # Before the clock's: at a pass that completes a step hotlap may end the process, and then the pass is over.
    hooks.after_forward.insert(0, after_forward)
    hooks.after_backward.insert(0, after_backward)
    hooks.around_step.append(around_step)
    hooks.before_exit.append(before_exit)
    # A script that ends after its very first pass has failed has not trained, and sends no report.
    atexit.register(before_exit)
