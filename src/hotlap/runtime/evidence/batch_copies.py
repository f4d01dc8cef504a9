"""How a loader's batches get to the device: from pageable or from pinned memory, with or without the host waiting."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from hotlap.records import CallSite
from hotlap.runtime.batches import tensors
from hotlap.runtime.call_sites import user_site
from hotlap.runtime.evidence.unnoticed import named_alike
from hotlap.runtime.interception import Interception

MOST_TENSORS = 64


class CopyCount:
    """The copies of one loader's batches; a batch counts once, by its first such tensor."""

    def __init__(self) -> None:
        self.pageable = 0
        self.blocking = 0
        self.site: CallSite | None = None


class BatchCopies:
    """Recognises the tensors of the batch that was fetched last when they are copied to a device.

    A tensor that the script has made of them (of another type, say) is not recognised: nothing is said of it. Where
    torch was built for the CPU alone there are no such copies, and its methods stay what they are.
    """

    def __init__(self, interception: Interception) -> None:
        torch = interception.hooks.torch
        self._count: CopyCount | None = None
        self._batch: dict[int, weakref.ref[Any]] = {}
        self._pageable_seen = self._blocking_seen = False
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        if torch.version.cuda is not None or torch.version.hip is not None:
            for name in ("to", "cuda"):
                watched = self._watched(getattr(torch.Tensor, name))
                interception.patches.replace(torch.Tensor, name, named_alike(torch.Tensor, name, watched))

    def count(self, batch: Any, count: CopyCount | None) -> None:
        """From now on count the copies of this batch, which came from the loader with that count."""
        self._count = count
        self._pageable_seen = self._blocking_seen = False
        found = zip(tensors(batch), range(MOST_TENSORS), strict=False) if count is not None else ()
        self._batch = {id(tensor): weakref.ref(tensor) for tensor, _ in found if tensor.device.type == "cpu"}

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling = self._is_compiling

        @functools.wraps(method)
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self._batch:  # in this order: a compiler must not come upon the batch
                return method(tensor, *args, **kwargs)
            result = method(tensor, *args, **kwargs)
            if result.device.type != "cpu":
                self.copied(tensor, args, kwargs)
            return result

        return call

    def copied(self, tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``tensor`` was copied to a device by a method that was called with these arguments."""
        count = self._count
        if count is None or not self._is_of_the_batch(tensor):
            return
        if not tensor.is_pinned():
            if self._pageable_seen:
                return
            self._pageable_seen = True
            count.pageable += 1
        elif not _non_blocking(args, kwargs):
            if self._blocking_seen:
                return
            self._blocking_seen = True
            count.blocking += 1
        else:
            return
        if count.site is None:
            count.site = user_site("copy")

    def _is_of_the_batch(self, tensor: Any) -> bool:
        reference = self._batch.get(id(tensor))
        return reference is not None and reference() is tensor


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """In all their forms ``to`` and ``cuda`` take it as the first of their arguments that is a truth value."""
    return bool(kwargs.get("non_blocking", next((it for it in args if isinstance(it, bool)), False)))
