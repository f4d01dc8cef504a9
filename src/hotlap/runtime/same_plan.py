"""All ranks of a run train with the same plan, or the run ends and names the rank that differs.

Ranks on several nodes read their plan from files of their own. Where these differ, gradients would be exchanged in
other buckets or formats, and the ranks hang or train on nonsense. The plans meet in the store in which the process
group itself was formed: no collective is added, and a rank without hotlap is noticed instead of waited for.
"""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from hotlap.errors import ScriptError
from hotlap.records import Plan

Replace: TypeAlias = Callable[[Any, str, Any], None]

_PATIENCE = timedelta(seconds=60)
"""How long a rank waits for the others' plans once the group is formed, which all of them took part in."""

_KEY = "hotlap/plan/"
_SEPARATOR = b" "


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is needed."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def wait(self, keys: list[str], timeout: timedelta) -> None: ...


def require_same_plan(torch: Any, replace: Replace, plan: Plan) -> None:
    """Compare plans as soon as the script forms its process group, or now if it has. Nothing happens where torch has
    no process groups. Raises :class:`ScriptError` then, out of the script's ``init_process_group``."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    form: Callable[..., Any] = distributed_c10d.init_process_group

    @functools.wraps(form)
    def formed(*args: Any, **kwargs: Any) -> Any:
        result = form(*args, **kwargs)
        _compare_in(torch.distributed, plan)
        return result

    for place in (torch.distributed, distributed_c10d):
        replace(place, "init_process_group", formed)
    if torch.distributed.is_initialized():
        _compare_in(torch.distributed, plan)


def _compare_in(distributed: Any, plan: Plan) -> None:
    from torch.distributed import distributed_c10d

    # Private in torch 2.6 to 2.13, and without a public counterpart.
    store = distributed_c10d._get_default_store()
    compare(store, int(distributed.get_rank()), int(distributed.get_world_size()), plan)


def compare(store: Store, rank: int, ranks: int, plan: Plan, patience: timedelta = _PATIENCE) -> None:
    """Show the others this rank's plan, and look at that of rank 0; rank 0 looks at all.

    Raises :class:`ScriptError` for a rank that has another plan, and for one that shows none in time.
    """
    if ranks < 2:
        return
    own = hashlib.sha256(msgspec.json.encode(plan.settings)).hexdigest().encode()
    store.set(f"{_KEY}{rank}", (own + _SEPARATOR + platform.node().encode()).decode())
    for other in range(1, ranks) if rank == 0 else (0,):
        theirs, node = _shown_by(other, store, patience)
        if theirs != own:
            differs = f"Rank {rank} on {platform.node()}" if rank else f"Rank {other} on {node}"
            raise ScriptError(f"{differs} has another plan than rank 0.", remedy="Give every node the same plan file.")


def _shown_by(rank: int, store: Store, patience: timedelta) -> tuple[bytes, str]:
    """The digest of that rank's plan, and the rank's node."""
    try:
        store.wait([f"{_KEY}{rank}"], patience)
    except RuntimeError as error:
        raise ScriptError(
            f"Rank {rank} runs without a plan of hotlap's: it showed none in {patience.total_seconds():g} s.",
            remedy="Start the script with `hotlap run --plan` on every node, or on none.",
        ) from error
    digest, _, node = store.get(f"{_KEY}{rank}").partition(_SEPARATOR)
    return digest, node.decode(errors="replace")
