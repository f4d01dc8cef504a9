"""Which rank owns which weights, and sending them from their owners to all ranks. Not a lever."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

BUCKET_BYTES = 25 * 2**20
_IN_FLIGHT = 4
"""Buckets that are being sent at the same time; each is a copy of its weights."""


def size_bytes(weight: Any) -> int:
    """The bytes of a tensor's elements."""
    return int(weight.numel() * weight.element_size())


def owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Which rank owns each weight: the largest first, each to the rank that has the fewest bytes so far."""
    held, found = [0] * ranks, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda it: -sizes[it]):
        owner = min(range(ranks), key=lambda it: held[it])
        found[index] = owner
        held[owner] += sizes[index]
    return found


def buckets(weights: Iterable[Any]) -> list[list[Any]]:
    """Weights of one owner, together up to :data:`BUCKET_BYTES`; those of a bucket have one format and device."""
    found: list[list[Any]] = []
    filled: dict[tuple[Any, Any], tuple[list[Any], int]] = {}
    for weight in weights:
        kind, size = (weight.dtype, weight.device), size_bytes(weight)
        bucket, held = filled.get(kind, ([], BUCKET_BYTES + 1))
        if held + size > BUCKET_BYTES:
            bucket, held = [], 0
            found.append(bucket)
        bucket.append(weight)
        filled[kind] = (bucket, held + size)
    return found


def send_from_owners(torch: Any, shares: Sequence[Sequence[list[Any]]], group: Any) -> None:
    """Replace every rank's weights by those of their owner; ``shares[r]`` are the buckets of rank ``r``.

    A collective: all ranks call it with the same buckets.
    """
    distributed = torch.distributed
    rank = distributed.get_rank(group)
    waiting: deque[tuple[Any, Any, list[Any] | None]] = deque()
    rounds = max((len(it) for it in shares), default=0)
    with torch.no_grad():
        for number in range(rounds):
            for owner, share in enumerate(shares):
                if number < len(share):
                    bucket = share[number]
                    flat = _flat(torch, bucket, filled=owner == rank)
                    source = distributed.get_global_rank(group, owner)
                    work = distributed.broadcast(flat, src=source, group=group, async_op=True)
                    waiting.append((work, flat, None if owner == rank else bucket))
                if len(waiting) >= _IN_FLIGHT:
                    _receive(*waiting.popleft())
        while waiting:
            _receive(*waiting.popleft())


def _flat(torch: Any, bucket: list[Any], *, filled: bool) -> Any:
    """One tensor for the bucket, filled with its weights where they are sent. A single weight needs no copy."""
    first = bucket[0]
    if len(bucket) == 1 and first.is_contiguous():
        return first.detach()
    if filled:
        return torch.cat([it.detach().reshape(-1) for it in bucket])
    return torch.empty(sum(it.numel() for it in bucket), dtype=first.dtype, device=first.device)


def _receive(work: Any, flat: Any, bucket: list[Any] | None) -> None:
    work.wait()
    if bucket is None or flat.data_ptr() == bucket[0].data_ptr():
        return
    for weight, piece in zip(bucket, flat.split([it.numel() for it in bucket]), strict=True):
        weight.copy_(piece.view(weight.shape))
