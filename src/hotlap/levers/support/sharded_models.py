"""FSDP2 in place of ``DistributedDataParallel``, in a script that goes on as if it had the latter. Not a lever."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from hotlap.levers.support.blocks import repeated_blocks
from hotlap.levers.support.rank_answers import RankAnswers
from hotlap.levers.support.whole_weights import (
    Shards,
    SharedTensors,
    is_shared,
    local,
    save_and_load_whole,
    save_and_load_whole_state,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks


def shard_models(hooks: Hooks, *, reshard_after_forward: bool) -> None:
    """Make each ``DistributedDataParallel`` a sharded model, where what the script does with it stays possible."""
    models = _Models(hooks, reshard_after_forward)
    hooks.instead_of_data_parallel.append(models.take_over)
    hooks.after_optimizer.append(models.optimizer_made)
    hooks.after_update.append(models.updated)
    hooks.after_clip.append(lambda norm: norm.full_tensor() if is_shared(norm) else norm)


class _Models:
    """The sharded models of the process and the optimizers of their weights."""

    def __init__(self, hooks: Hooks, reshard_after_forward: bool) -> None:
        self._hooks = hooks
        self._torch = hooks.torch
        self._reshard = reshard_after_forward
        self._held: list[Callable[[], Any]] = []
        self._answers: RankAnswers | None = None
        self._models: list[_Sharded] = []
        self._states: list[tuple[Callable[[], Any], SharedTensors]] = []

    def take_over(self, wrapper: Any, arguments: dict[str, Any]) -> bool:
        """Whether the wrapper is now a sharded model; every rank decides alike."""
        reason = self._reason_against(wrapper, arguments)
        if not reason and self._answers is None:
            self._answers = RankAnswers.open(self._torch, self._torch.distributed.group.WORLD)
            if self._answers is None:
                reason = "the ranks cannot connect to each other to save it"
        if reason:
            self._hooks.note(f"A model stays whole on every rank: {reason}.")
            return False
        assert self._answers is not None
        self._models.append(_Sharded(self._torch, wrapper, arguments, self._answers, len(self._models), self._reshard))
        return True

    def _reason_against(self, wrapper: Any, arguments: dict[str, Any]) -> str:
        torch, module = self._torch, arguments["module"]
        world = torch.distributed.group.WORLD
        if arguments.get("process_group") not in (None, world) or arguments.get("device_mesh") is not None:
            return "only some of the processes train it"
        if type(wrapper) is not torch.nn.parallel.DistributedDataParallel:
            return f"{type(wrapper).__name__} may change what its base class does"
        if any(is_shared(it) for it in module.parameters()):
            return "processes share its weights already"
        if getattr(module, "_ddp_params_and_buffers_to_ignore", None):
            return "some of its weights are not exchanged"
        held = {id(it) for optimizer in self._held if (made := optimizer()) is not None for it in _weights(made)}
        if any(id(it) in held for it in module.parameters()):
            return "its optimizer was made before it was wrapped"
        return _shared_across_units(torch, module)

    def optimizer_made(self, optimizer: Any) -> None:
        """Its checkpoints must be whole, if it updates sharded weights."""
        if not any(map(is_shared, _weights(optimizer))) or self._answers is None:
            self._held.append(ref(optimizer))
            return
        share = functools.partial(_share, self._torch, self._answers, f"optimizer's state ({len(self._states)})")
        self._states.append((ref(optimizer), save_and_load_whole_state(self._torch, optimizer, share)))

    def updated(self, optimizer: Any) -> None:
        """What other ranks ask for is that after this update."""
        for made, state in self._states:
            if made() is optimizer:
                state.changed()
        for it in self._models:
            it.changed()


class _Sharded:
    """One sharded model, and its copy without weights, which evaluates with whole ones."""

    def __init__(
        self,
        torch: Any,
        wrapper: Any,
        arguments: dict[str, Any],
        answers: RankAnswers,
        number: int,
        reshard_after_forward: bool,
    ) -> None:
        module = arguments["module"]
        self._torch = torch
        self._module = module
        self._trains = False
        self._sends_buffers = True
        self._copy = _hollow(torch, module)
        self._filled = -1
        _send_from_first(torch, [*module.parameters(), *module.buffers()])
        units = _shard(torch, module, reshard_after_forward)
        self.weights = _share(torch, answers, f"weights ({number})", self._shards)
        save_and_load_whole(torch, module, self.weights)
        for name, unit in units:
            _evaluate_whole(torch, unit, functools.partial(self._whole_part, name))
        self._become(wrapper, arguments)

    def changed(self) -> None:
        """The weights were updated; the copy gives its own up."""
        self.weights.changed()
        if self._filled >= 0:
            _hollow_out(self._torch, self._copy)
            self._filled = -1

    def _shards(self) -> list[tuple[Any, dict[str, Any]]]:
        return [("", {name: local(it) for name, it in self._module.named_parameters(remove_duplicate=False)})]

    def _become(self, wrapper: Any, arguments: dict[str, Any]) -> None:
        """Make the wrapper an instance of a class between: what the script uses of ``DistributedDataParallel``."""
        torch = self._torch
        torch.nn.Module.__init__(wrapper)
        wrapper.module = self._module
        wrapper.process_group = torch.distributed.group.WORLD
        wrapper.device = next(self._module.parameters()).device
        wrapper.device_ids = wrapper.output_device = None
        wrapper.require_backward_grad_sync = True
        wrapper.parameters_to_ignore = set()
        wrapper.broadcast_buffers = bool(arguments.get("broadcast_buffers", True))
        wrapper.hotlap_forward = self._forward
        wrapper.__class__ = _stand_in(torch)

    def _forward(self, wrapper: Any, args: Any, kwargs: Any) -> Any:
        """Buffers are sent from the first rank when ``DistributedDataParallel`` sends them: unless the forward pass
        before had no exchange of gradients."""
        torch, module = self._torch, self._module
        if self._sends_buffers and wrapper.broadcast_buffers:
            _send_from_first(torch, list(module.buffers()))
        self._sends_buffers = torch.is_grad_enabled() and wrapper.require_backward_grad_sync
        if torch.is_grad_enabled():
            module.set_requires_gradient_sync(wrapper.require_backward_grad_sync)
        self._trains, before = torch.is_grad_enabled(), self._trains
        try:
            return module(*args, **kwargs)
        finally:
            self._trains = before

    def _whole_part(self, name: str) -> Any:
        """The part of the copy that stands for this unit now, filled with whole weights; None while it trains."""
        if self._torch.is_grad_enabled() or self._trains:
            return None
        if self._filled != self.weights.version:
            self._copy.load_state_dict(self.weights.whole()[""], strict=False, assign=True)
            self._filled = self.weights.version
        for mine, its in zip(self._module.modules(), self._copy.modules(), strict=True):
            vars(its).update((key, it) for key, it in vars(mine).items() if isinstance(it, (bool, int, float, str)))
        return self._copy.get_submodule(name)


def _share(torch: Any, answers: RankAnswers, name: str, shards: Shards) -> SharedTensors:
    distributed = torch.distributed
    return SharedTensors(torch, answers, distributed.get_rank(), distributed.get_world_size(), name, shards)


def _weights(optimizer: Any) -> list[Any]:
    return [it for group in optimizer.param_groups for it in group["params"]]


def _blocks(torch: Any, module: Any) -> tuple[Any, ...]:
    run = repeated_blocks(torch, module)
    return run.blocks if run is not None else ()


def _shared_across_units(torch: Any, module: Any) -> str:
    """Why blocks cannot be sharded one by one; empty where they can."""
    blocks = _blocks(torch, module)
    within = {id(it) for block in blocks for it in block.modules()}
    owners: dict[int, set[int]] = {}
    for part in module.modules():
        unit = next((id(it) for it in blocks if id(part) in within and any(part is one for one in it.modules())), 0)
        for weight in part.parameters(recurse=False):
            owners.setdefault(id(weight), set()).add(unit)
    return "blocks have weights in common" if any(len(it) > 1 for it in owners.values()) else ""


def _shard(torch: Any, module: Any, reshard_after_forward: bool) -> list[tuple[str, Any]]:
    """Shard each block, then the rest; the units and their names."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    blocks = _blocks(torch, module)
    names = {id(it): name for name, it in module.named_modules()}
    mesh = DeviceMesh.from_group(torch.distributed.group.WORLD, next(module.parameters()).device.type)
    for it in (*blocks, module):
        fully_shard(it, mesh=mesh, reshard_after_forward=reshard_after_forward)
    return [(names[id(it)], it) for it in (*blocks, module)]


def _hollow(torch: Any, module: Any) -> Any:
    """A copy of the module that shares its buffers and whose weights hold no memory."""
    known: dict[int, Any] = {id(it): it for it in module.buffers()}
    for it in module.parameters():
        known[id(it)] = torch.nn.Parameter(it.detach().to("meta"), requires_grad=it.requires_grad)
    return copy.deepcopy(module, known)


def _hollow_out(torch: Any, module: Any) -> None:
    for part in module.modules():
        for name, it in list(part.named_parameters(recurse=False)):
            setattr(part, name, torch.nn.Parameter(it.detach().to("meta"), requires_grad=it.requires_grad))


def _evaluate_whole(torch: Any, unit: Any, part: Callable[[], Any]) -> None:
    """Without gradients, and outside of a training forward, the unit's whole copy is called in its place."""
    kind = type(unit)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole = part() if self is unit else None
        return kind.__call__(self, *args, **kwargs) if whole is None else whole(*args, **kwargs)

    unit.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def _send_from_first(torch: Any, tensors: list[Any]) -> None:
    distributed = torch.distributed
    with torch.no_grad():
        for it in tensors:
            held = it.detach() if it.is_contiguous() else it.detach().contiguous()
            distributed.broadcast(held, src=0)
            if held.data_ptr() != it.data_ptr():
                it.copy_(held)


@functools.cache
def _stand_in(torch: Any) -> type:
    """What a wrapper becomes: an instance of ``DistributedDataParallel`` for the script, which exchanges nothing."""
    base: type = torch.nn.parallel.DistributedDataParallel

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.hotlap_forward(self, args, kwargs)

    def unsupported(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("hotlap: the model is sharded by the lever fully-sharded, which does not support this.")

    members = {"forward": forward, **dict.fromkeys(("register_comm_hook", "join", "join_hook"), unsupported)}
    return type(base.__name__, (base,), members | {"__module__": base.__module__})
