"""Process groups that outlast the time for which a trial stands still.

An arm of a set is frozen while the others take their turns. Clocks go on meanwhile, and a group that is woken up may
find that one of its operations has taken longer than its timeout, or that its watchdog shows no sign of life. Within
trials nobody but hotlap gives up on a script that hangs.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

Replace: TypeAlias = Callable[[Any, str, Any], None]

PATIENCE = timedelta(hours=6)
_HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"


def be_patient(torch: Any, replace: Replace) -> None:
    """Give every process group a timeout of at least :data:`PATIENCE`, and NCCL's monitor as much; ``replace`` puts our
    functions in place of torch's. Nothing happens where torch has no process groups."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    os.environ.setdefault(_HEARTBEAT, str(int(PATIENCE.total_seconds())))
    for name in ("init_process_group", "new_group"):
        patient = _patient(getattr(distributed_c10d, name))
        for place in (torch.distributed, distributed_c10d):
            replace(place, name, patient)


def _patient(make: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(make)

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # wrong arguments: let torch say so
            return make(*args, **kwargs)
        given = bound.arguments.get("timeout")
        if given is None or (isinstance(given, timedelta) and given < PATIENCE):
            bound.arguments["timeout"] = PATIENCE
        return make(*bound.args, **bound.kwargs)

    return made
