"""Process groups that survive the time for which a trial is frozen.

An arm of a replicate is frozen while the others take their turns. Clocks continue meanwhile, so after thawing an
operation of a group may have exceeded its timeout, or the watchdog may seem dead. In trials only hotlap gives up on a
script that hangs. Where a group keeps its timeout, since the script created it in a way that is not patched, none of
its operations is in progress when it is frozen.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

Replace: TypeAlias = Callable[[Any, str, Any], None]

PATIENCE = timedelta(hours=6)
_TWO_LOOKS_SECONDS = 0.2
"""NCCL's watchdog checks every tenth of a second for finished operations, and forgets them."""

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


def wait_until_forgotten(torch: Any) -> None:
    """Wait until NCCL's watchdog has seen that all operations of this process are done, which the device has been
    waited for to do: one that it still remembers when it is woken up has taken as long as the pause."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    from torch.distributed import distributed_c10d

    for group, (backend, _) in tuple(distributed_c10d._world.pg_map.items()):
        if "nccl" not in str(backend):
            continue
        try:
            group._wait_for_pending_works()
        except (AttributeError, RuntimeError):  # a group of several backends has no such wait
            time.sleep(_TWO_LOOKS_SECONDS)
            return


def place_in_group(torch: Any) -> tuple[int, int]:
    """This process's rank and the size of its group: as torch knows them, else as the launcher set them."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
