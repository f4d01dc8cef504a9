"""An optimizer's step in which each rank updates its share of the weights. Not a lever.

Only public hooks of torch's optimizers are used: before and after a step, and after ``state_dict`` and
``load_state_dict``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from hotlap.levers.support.independent_updates import reason_against
from hotlap.levers.support.last_update import LastUpdate
from hotlap.levers.support.rank_answers import RankAnswers
from hotlap.levers.support.shares import buckets, owners, send_from_owners, size_bytes

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

Answers = dict[Any, RankAnswers | None]
Wrapped = dict[int, tuple[ReferenceType[Any], Any]]
"""Of each weight in a wrapper, by its identity: the weight, and the wrapper's process group."""


def share_optimizers(hooks: Hooks) -> None:
    """Share the state of each optimizer of wrapped weights between the ranks of the wrapper."""
    wrapped: Wrapped = {}
    answers: Answers = {}
    shared: list[_SharedOptimizer] = []

    def made(optimizer: Any) -> None:
        reason = reason_against(optimizer)
        if reason:
            hooks.note(f"The state of the optimizer stays on every rank: {reason}.")
        else:
            shared.append(_SharedOptimizer(hooks, optimizer, len(shared), wrapped, answers))

    def around_step(optimizer: Any, step: Fetch) -> Any:
        try:
            return step()
        finally:  # where the update itself raises an error
            for it in shared:
                it.restore()

    def remember(wrapper: Any) -> None:
        ignored = getattr(wrapper, "parameters_to_ignore", ())
        for name, it in wrapper.module.named_parameters():
            if name not in ignored and not hasattr(it, "to_local"):
                wrapped[id(it)] = (ref(it), wrapper.process_group)

    hooks.after_data_parallel.append(remember)
    hooks.after_optimizer.append(made)
    hooks.around_step.append(around_step)


class _SharedOptimizer:
    """One optimizer; which weights are whose is decided at its first step, by all ranks alike."""

    def __init__(self, hooks: Hooks, optimizer: Any, number: int, wrapped: Wrapped, answers: Answers) -> None:
        self._hooks = hooks
        self._torch = hooks.torch
        self._optimizer = optimizer
        self._name = f"optimizer's state ({number})"
        self._wrapped = wrapped
        self._answers = answers
        self._weights: list[Any] = []
        self._share: _Share | None = None
        self._unshared: list[tuple[dict[str, Any], list[Any]]] = []
        self._groups: list[dict[str, Any]] | None = None
        self._updates = 0
        self._loaded = False
        optimizer.register_step_pre_hook(self._begins)
        optimizer.register_step_post_hook(self._ends)
        optimizer.register_state_dict_post_hook(self._completed)
        optimizer.register_load_state_dict_post_hook(self._was_loaded)

    # -- the step ------------------------------------------------------------------------------

    def _begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Leave only this rank's share in the groups; a closure is called before, with all of them."""
        if self._torch.compiler.is_compiling():
            return None
        weights = [it for group in optimizer.param_groups for it in group["params"]]
        if len(weights) != len(self._weights) or any(a is not b for a, b in zip(weights, self._weights, strict=True)):
            self._gather()
            self._weights = weights
            self._share = self._divide(weights)
        if self._share is None:
            return None
        result = _with_closure_called(self._torch, args, kwargs)
        if self._loaded:
            self._drop_others()
        self._groups = optimizer.param_groups
        self._unshared = [(group, group["params"]) for group in self._groups]
        for group, params in self._unshared:
            group["params"] = [it for it in params if self._share.is_mine(it)]
        optimizer.param_groups = [group for group, _ in self._unshared if group["params"]]
        return result

    def _ends(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Put the groups back, and send every weight from its owner to all ranks."""
        share = self._share
        if share is None or self._groups is None:
            return
        self.restore()
        self._updates += 1
        share.held_from(optimizer)
        share.answers.give(self._name, self._updates, share.parts)
        send_from_owners(self._torch, share.buckets, share.group)

    def restore(self) -> None:
        """The groups as the script knows them."""
        if self._groups is None:
            return
        for group, params in self._unshared:
            group["params"] = params
        self._optimizer.param_groups = self._groups
        self._groups, self._unshared = None, []

    def _divide(self, weights: list[Any]) -> _Share | None:
        """Decide what is whose; every rank makes the same calls, and comes to the same answer."""
        ours, groups = self._wrapped_among(weights)
        if len(groups) != 1:
            self._leave("its weights are in no DistributedDataParallel, or in several groups of processes")
            return None
        (group,) = groups
        distributed = self._torch.distributed
        ranks, rank = distributed.get_world_size(group), distributed.get_rank(group)
        if ranks < 2:
            return None
        sizes = [(tuple(it.shape), str(it.dtype)) for it in ours]
        everywhere: list[Any] = [None] * ranks
        distributed.all_gather_object(everywhere, sizes, group=group)
        if any(it != sizes for it in everywhere):
            self._leave("the ranks hold different weights")
            return None
        if group not in self._answers:
            self._answers[group] = RankAnswers.open(self._torch, group)
        answers = self._answers[group]
        if answers is None:
            self._leave("the ranks cannot connect to each other to save it")
            return None
        self._loaded = True  # state from before is everywhere
        return _Share(self._torch, group, rank, weights, ours, owners(list(map(size_bytes, ours)), ranks), answers)

    def _wrapped_among(self, weights: list[Any]) -> tuple[list[Any], set[Any]]:
        """Those of the weights that wrappers hold, and the wrappers' process groups."""
        ours, groups = [], set()
        for it in weights:
            known = self._wrapped.get(id(it))
            if known is not None and known[0]() is it:
                ours.append(it)
                groups.add(known[1])
        return ours, groups

    def _gather(self) -> None:
        """Before weights are divided again: all state of the weights so far, on this rank too."""
        share = self._share
        if share is None or not self._updates or self._loaded:
            return
        placed_with_weight = {
            id(it): bool(group.get("fused") or group.get("capturable"))
            for group in self._optimizer.param_groups
            for it in group["params"]
        }
        for index, kept in self._of_others(share):
            weight = self._weights[index]
            for name, it in kept.items():
                if hasattr(it, "to") and (it.shape == weight.shape or placed_with_weight.get(id(weight))):
                    kept[name] = it.to(weight.device)
            self._optimizer.state[weight] = kept

    def _of_others(self, share: _Share) -> Iterator[tuple[int, dict[str, Any]]]:
        for rank in share.other_owners:
            for piece in share.answers.ask(rank, self._name, self._updates):
                yield self._torch.load(io.BytesIO(piece), weights_only=True)

    def _leave(self, reason: str) -> None:
        self._hooks.note(f"The state of {type(self._optimizer).__name__} stays on every rank: {reason}.")

    # -- its state -----------------------------------------------------------------------------

    def _was_loaded(self, optimizer: Any) -> None:
        self._loaded = True

    def _drop_others(self) -> None:
        self._loaded = False
        if self._share is not None:
            for weight in self._share.others:
                self._optimizer.state.pop(weight, None)

    def _completed(self, optimizer: Any, found: dict[str, Any]) -> None:
        """Add the others' shares to what ``state_dict`` returns, in the order of the weights."""
        share = self._share
        if share is None or self._loaded or not self._updates:
            return
        state = dict(found["state"])
        state.update(self._of_others(share))
        found["state"] = {key: state[key] for key in sorted(state, key=lambda it: (isinstance(it, str), it))}


class _Share:
    """What this rank owns of an optimizer's weights, and how the others' are sent."""

    def __init__(
        self,
        torch: Any,
        group: Any,
        rank: int,
        weights: list[Any],
        ours: list[Any],
        owner: list[int],
        answers: RankAnswers,
    ) -> None:
        self.group = group
        self.answers = answers
        owned = list(zip(ours, owner, strict=True))
        ranks = range(torch.distributed.get_world_size(group))
        self.other_owners = sorted(set(owner) - {rank})
        self.buckets = [buckets(it for it, its in owned if its == each) for each in ranks]
        self.others = [it for it, its in owned if its != rank]
        self._torch = torch
        self._not_mine = {id(it) for it in self.others}
        self._positions = {id(it): index for index, it in enumerate(weights)}
        self._mine = [it for it, its in owned if its == rank]
        self._held: list[tuple[int, dict[str, Any]]] = []
        self._update = LastUpdate(torch)

    def is_mine(self, weight: Any) -> bool:
        """Whether this rank updates it: its own, and what no wrapper holds."""
        return id(weight) not in self._not_mine

    def held_from(self, optimizer: Any) -> None:
        """Remember this rank's state after an update; the next update changes it in place."""
        state = optimizer.state
        self._held = [(self._positions[id(it)], state[it]) for it in self._mine if it in state]
        self._update.record()

    def parts(self) -> Iterator[bytes]:
        """The state of each weight, in host memory. Called on another thread."""
        with self._update.awaited():
            for index, kept in self._held:
                in_host = {name: it.cpu() if hasattr(it, "cpu") else it for name, it in kept.items()}
                piece = io.BytesIO()
                self._torch.save((index, in_host), piece)
                yield piece.getvalue()


def _with_closure_called(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments of a step whose closure has been called; the optimizer would call it first, too."""
    closure: Callable[[], Any] | None = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        return None
    with torch.enable_grad():
        loss = closure()
    return (args[0], lambda: loss), {}
