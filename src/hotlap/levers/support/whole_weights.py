"""Weights and optimizer state that FSDP2 shares, as whole tensors for the script's own checkpoints and evaluations.

Not a lever. Nothing here is a collective: what is missing is asked of the other ranks (:mod:`.rank_answers`), so that
one rank alone can save or evaluate, as it can under DDP. Only weights divided along their first dimension are known,
which is how ``fully_shard`` divides them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hotlap.levers.support.last_update import LastUpdate
from hotlap.levers.support.rank_answers import RankAnswers

Shards = Callable[[], Iterable[tuple[Any, dict[str, Any]]]]
"""What this rank holds: the part of each tensor, by a key and a name."""


class SharedTensors:
    """The parts of tensors on all ranks of a group, under one name, counted by their changes."""

    def __init__(self, torch: Any, answers: RankAnswers, rank: int, ranks: int, name: str, shards: Shards) -> None:
        self._torch = torch
        self._answers = answers
        self._rank = rank
        self._ranks = ranks
        self._name = name
        self._shards = shards
        self.version = -1
        self._update = LastUpdate(torch)
        self._whole: dict[Any, dict[str, Any]] | None = None
        self.changed()

    def changed(self) -> None:
        """Every rank calls this after each change, equally often."""
        self.version += 1
        self._whole = None
        self._update.record()
        self._answers.give(self._name, self.version, self._parts)

    def whole(self) -> dict[Any, dict[str, Any]]:
        """All tensors, each joined from its parts, until the next change."""
        if self._whole is None:
            parts = [dict(self._of_rank(rank)) for rank in range(self._ranks)]
            self._whole = {
                key: {name: self._joined([it[key][name] for it in parts]) for name in kept}
                for key, kept in parts[self._rank].items()
            }
        return self._whole

    def _joined(self, parts: list[Any]) -> Any:
        own = parts[self._rank]
        if not hasattr(own, "dim") or not own.dim():
            return own
        return self._torch.cat([it.to(own.device) for it in parts if it.numel()] or [own])

    def _of_rank(self, rank: int) -> Iterator[tuple[Any, dict[str, Any]]]:
        if rank == self._rank:
            yield from self._shards()
            return
        for piece in self._answers.ask(rank, self._name, self.version):
            yield self._torch.load(io.BytesIO(piece), weights_only=True)

    def _parts(self) -> Iterator[bytes]:
        """In host memory; called on another thread."""
        with self._update.awaited():
            for key, kept in self._shards():
                piece = io.BytesIO()
                in_host = {name: it.cpu() if hasattr(it, "cpu") else it for name, it in kept.items()}
                self._torch.save((key, in_host), piece)
                yield piece.getvalue()


def is_shared(tensor: Any) -> bool:
    """Whether processes share it."""
    return hasattr(tensor, "to_local")


def local(tensor: Any) -> Any:
    """This rank's part, outside of any graph."""
    return tensor.detach().to_local() if is_shared(tensor) else tensor


def shared_like(torch: Any, whole: Any, model: Any) -> Any:
    """This rank's part of a whole tensor, shared as ``model`` is."""
    from torch.distributed.tensor import DTensor

    mesh = model.device_mesh
    parts = whole.chunk(mesh.size(), dim=0)
    rank = mesh.get_local_rank()
    part = parts[rank] if rank < len(parts) else whole[:0]
    return DTensor.from_local(
        part.to(model.device).contiguous(), mesh, model.placements, run_check=False, shape=model.shape,
        stride=model.stride(),
    )  # fmt: skip


def save_and_load_whole(torch: Any, module: Any, weights: SharedTensors) -> None:
    """``state_dict`` of the module and of each of its parts returns whole weights, and ``load_state_dict`` takes them.

    ``weights`` has one entry, under "", with the names that the parameters have in ``module``.
    """
    for prefix, part in module.named_modules():
        own = {
            name: f"{prefix}.{name}" if prefix else name
            for name, it in part.named_parameters(recurse=False)
            if is_shared(it)
        }
        if not own:
            continue

        def saved(part: Any, state: Any, prefix: str, metadata: Any, own: dict[str, str] = own) -> None:
            for name, full_name in own.items():
                if is_shared(state.get(prefix + name)):
                    state[prefix + name] = weights.whole()[""][full_name]

        def loads(part: Any, state: Any, prefix: str, metadata: Any, *rest: Any, own: dict[str, str] = own) -> None:
            for name in own:
                given = state.get(prefix + name)
                if given is not None and not is_shared(given) and given.shape == getattr(part, name).shape:
                    state[prefix + name] = shared_like(torch, given, getattr(part, name))

        def loaded(part: Any, keys: Any) -> None:
            weights.changed()

        part.register_state_dict_post_hook(saved)
        part.register_load_state_dict_pre_hook(loads)
        part.register_load_state_dict_post_hook(loaded)


def save_and_load_whole_state(torch: Any, optimizer: Any, share: Callable[[Shards], SharedTensors]) -> SharedTensors:
    """The same of an optimizer of such weights. ``share`` makes what its state is shared by."""

    def weights() -> list[Any]:
        return [it for group in optimizer.param_groups for it in group["params"]]

    def shards() -> Iterator[tuple[Any, dict[str, Any]]]:
        for index, weight in enumerate(weights()):
            kept = optimizer.state.get(weight)
            if kept:
                yield index, {name: local(it) for name, it in kept.items()}

    shared = share(shards)

    def saved(optimizer: Any, found: dict[str, Any]) -> None:
        found["state"] = {
            index: {name: shared.whole()[index][name] if is_shared(it) else it for name, it in kept.items()}
            for index, kept in found["state"].items()
        }

    def loads(optimizer: Any, given: dict[str, Any]) -> dict[str, Any]:
        known = dict(enumerate(weights()))
        state = {
            index: {
                name: shared_like(torch, it, known[index])
                if hasattr(it, "dim") and not is_shared(it) and it.dim() and it.shape == known[index].shape
                else it
                for name, it in kept.items()
            }
            for index, kept in given["state"].items()
        }
        return {**given, "state": state}

    optimizer.register_state_dict_post_hook(saved)
    optimizer.register_load_state_dict_pre_hook(loads)
    optimizer.register_load_state_dict_post_hook(lambda optimizer: shared.changed())
    return shared
