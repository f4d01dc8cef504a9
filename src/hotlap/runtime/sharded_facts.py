"""Which models the script itself shares between processes, and with which options."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from hotlap.records import ShardedFacts
from hotlap.runtime.whole_gradients import unwrapped


def sharded_facts(torch: Any, roots: Iterable[Any]) -> tuple[ShardedFacts, ...]:
    """The facts of each root that FSDP1 or FSDP2 shares. A script that uses either has imported it."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return ()
    found = (_of_root(torch, fsdp, unwrapped(torch, root)) for root in roots)
    return tuple(it for it in found if it is not None)


def _of_root(torch: Any, fsdp: Any, root: Any) -> ShardedFacts | None:
    processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    first = [it for it in root.modules() if isinstance(it, fsdp.FullyShardedDataParallel)]
    if first:
        return ShardedFacts(
            api="fsdp1",
            units=len(first),
            processes=processes,
            forward_prefetch=bool(getattr(first[0], "forward_prefetch", False)),
            backward_prefetch=str(getattr(getattr(first[0], "backward_prefetch", None), "name", "")),
            limit_all_gathers=bool(getattr(first[0], "limit_all_gathers", True)),
            strategy=str(getattr(getattr(first[0], "sharding_strategy", None), "name", "")),
            use_orig_params=bool(getattr(first[0], "_use_orig_params", False)),  # not public in torch 2.6 to 2.13
            offloads=bool(getattr(getattr(first[0], "cpu_offload", None), "offload_params", False)),
            param_dtype=_format_of(getattr(first[0], "mixed_precision", None)),
        )
    kind = getattr(fsdp, "FSDPModule", None)
    second = [it for it in root.modules() if kind is not None and isinstance(it, kind)]
    if not second:
        return None
    return ShardedFacts(
        api="fsdp2",
        units=len(second),
        processes=processes,
        reshards=_reshards(second[1:]),
        mesh=_mesh(second[0]),
        offloads=any(_is_kept_in_host_memory(it) for it in second[0].parameters()),
        param_dtype=next(filter(None, (_format_of(it) for it in _policies(second))), ""),
    )


def _policies(units: list[Any]) -> Iterator[Any]:
    """torch has no public way to read a policy: ``_mp_policy`` of a unit's state (2.6 to 2.13)."""
    return (getattr(it._get_fsdp_state(), "_mp_policy", None) for it in units)


def _format_of(policy: Any) -> str:
    dtype = getattr(policy, "param_dtype", None)
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def _mesh(model: Any) -> tuple[int, ...]:
    """The sizes of the mesh that its weights are divided over; empty where none is."""
    meshes = (getattr(it, "device_mesh", None) for it in model.parameters())
    return next((tuple(mesh.mesh.shape) for mesh in meshes if mesh is not None), ())


def _is_kept_in_host_memory(weight: Any) -> bool:
    mesh = getattr(weight, "device_mesh", None)
    return mesh is not None and mesh.device_type != "cpu" and weight.to_local().device.type == "cpu"


def _reshards(units: list[Any]) -> bool | None:
    """torch has no public way to read what ``set_reshard_after_forward`` sets: ``post_forward_mesh_info`` of a unit's
    group of parameters (of its groups, in newer versions)."""
    groups: list[Any] = []
    for it in units:
        state = it._get_fsdp_state()
        groups += getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    known = [it.post_forward_mesh_info is not None for it in groups if hasattr(it, "post_forward_mesh_info")]
    return all(known) if known else None
