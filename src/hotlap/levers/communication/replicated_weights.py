"""Hold the whole model on every process (FSDP2 with one replica per process, as under DDP).

## What it does
Gives each call of `fully_shard` a two-dimensional mesh with one shard per replica and one replica per process. The
weights stay `DTensor`s, so that the script's own optimizer, clipping and checkpoints go on as before, but each process
holds all of them: nothing is gathered, and gradients are averaged once per step, as under `DistributedDataParallel`.

## When it helps
When the model fits into the memory of each process: weights are then sent twice per step for nothing.

## What it costs
Every process holds all weights, gradients and optimizer state, and updates all weights. A file that each rank writes of
its own part (`to_local()`) holds the whole model; checkpoints of `torch.distributed.checkpoint` and whole state
dictionaries load with and without the lever. Where the script passes a mesh of several dimensions, a mesh of only some
processes, or an offload policy, the model stays sharded, and a note says so.

## Before
    fully_shard(model)

## After
    replicas = init_device_mesh("cuda", (world_size, 1), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=replicas)

## What is proved
`rounding`: gradients are averaged in another order. The losses of every process, and the whole gradients, are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.support.sharded_by_script import missing_of_others, sharded, without_room, without_sharding
from hotlap.levers.support.situations import bound_without, make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Hold the whole model on every process (FSDP2 with one replica per process, as under DDP)"
proof: Proof = "rounding"
addresses = ("exposed-communication",)
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model that FSDP2 divides between all processes, and room for all of it."""
    if without_sharding(situation):
        return without_sharding(situation)
    models = [it for it in sharded(situation) if it.api == "fsdp2"]
    if not models:
        return Skipped(reason="The script uses FSDP1, for which `sharding-strategy` does the same.")
    if any(it.offloads for it in models):
        return Skipped(reason="The script keeps the weights in host memory (an offload policy).")
    if any(len(it.mesh) > 1 for it in models):
        return Skipped(reason="The script passes a mesh of several dimensions, whose meaning is its own.")
    if any(it.mesh and it.mesh[0] < situation.facts.processes for it in models):
        return Skipped(reason="The model is divided between some of the processes only.")
    return without_room(situation, missing_of_others(situation))


def bound(situation: Situation) -> float | None:
    """Weights are gathered in forward and backward, and gradients exchanged in backward."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("replicated-weights"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: where the script calls ``fully_shard`` is not recorded."""
    mesh = 'init_device_mesh(device, (world_size, 1), mesh_dim_names=("replicate", "shard"))'
    return (NoSourceForm(reason=f"Pass mesh={mesh} to each call of fully_shard."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Give each call of ``fully_shard`` the mesh; all ranks make it, at their first call."""
    made: list[Any] = []

    def replicate(interface: str, arguments: dict[str, Any]) -> None:
        if interface != "fsdp2":
            return
        reason = _reason_against(hooks.torch, arguments)
        if reason:
            hooks.note(f"A model stays sharded: {reason}.")
            return
        if not made:
            made.append(_replicas(hooks.torch, arguments.get("mesh")))
        arguments["mesh"] = made[0]
        if type(arguments.get("reshard_after_forward")) is int:  # a number of ranks to divide by, of which there is one
            arguments["reshard_after_forward"] = True

    hooks.before_sharding.append(replicate)


def _reason_against(torch: Any, arguments: dict[str, Any]) -> str:
    mesh, policy = arguments.get("mesh"), arguments.get("offload_policy")
    if mesh is not None and mesh.ndim != 1:
        return "its mesh has several dimensions"
    if mesh is not None and mesh.size() < torch.distributed.get_world_size():
        return "only some of the processes share it"
    if policy is not None and type(policy).__name__ != "OffloadPolicy":
        return "its weights are kept in host memory"
    if arguments.get("shard_placement_fn") is not None or arguments.get("dp_mesh_dims") is not None:
        return "the script chooses how its weights are placed"
    return ""


def _replicas(torch: Any, mesh: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    device = mesh.device_type if mesh is not None else torch.accelerator.current_accelerator()
    kind = device if isinstance(device, str) else "cpu" if device is None else device.type
    processes = torch.distributed.get_world_size()
    return init_device_mesh(kind, (processes, 1), mesh_dim_names=("replicate", "shard"))
