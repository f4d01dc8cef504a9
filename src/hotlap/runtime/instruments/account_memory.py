"""Where the memory of the first steps goes (:mod:`hotlap.runtime.memory`); the report has the account."""

from __future__ import annotations

import msgspec

from hotlap.records import AccountMemory
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: AccountMemory) -> None:
    """From the first training forward on, for so many steps or until the process ends."""
    from hotlap.runtime.memory.allocator import AllocatorHistory
    from hotlap.runtime.memory.steps import MemorySteps
    from hotlap.runtime.not_finite.checked_steps import switch_compiling_off

    switch_compiling_off()  # a compiled graph makes storages that no operation shows
    hooks = place.hooks
    steps = MemorySteps(place.interception, place.clock)
    history = AllocatorHistory(hooks.torch, place.directory, hooks.note)
    hooks.model_found.append(history.begin)

    def step_ended() -> None:
        steps.step_ended()
        if steps.steps == asked.steps:
            finish()

    def finish() -> None:
        if "memory" in hooks.found:
            return
        account = steps.account()
        steps.stop()
        if account is not None:
            hooks.found["memory"] = msgspec.structs.replace(account, allocator=history.end())

    hooks.step_ended.append(step_ended)
    hooks.before_exit.append(finish)
