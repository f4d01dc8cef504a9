"""What the script's ``DistributedDataParallel`` wrappers are: their arguments, their hook, and when they exchange."""

from __future__ import annotations

import zlib
from typing import Any
from weakref import ReferenceType, ref

from hotlap.records import CallSite, DataParallelFacts
from hotlap.runtime.call_sites import exact_user_site
from hotlap.runtime.hooks import Hooks


class DataParallelWatch:
    """Remembers every wrapper of the process, without keeping it alive."""

    def __init__(self, hooks: Hooks, *, digests: bool = False) -> None:
        """``digests``: make digests of the weights for the facts."""
        self._torch = hooks.torch
        self._digests = digests
        self._requested: dict[str, Any] = {}
        self._wrappers: list[_Wrapper] = []
        hooks.before_data_parallel.append(self._requested_with)
        hooks.after_data_parallel.append(self._made)

    def _requested_with(self, arguments: dict[str, Any]) -> None:
        self._requested = {key: value for key, value in arguments.items() if key != "module"}

    def _made(self, wrapper: Any) -> None:
        site = exact_user_site("call", "DistributedDataParallel")
        self._wrappers.append(_Wrapper(ref(wrapper), self._requested, site, self._torch))
        self._requested = {}

    def backward_begins(self) -> None:
        """Count the wrappers that will not exchange gradients in this backward pass."""
        for it in self._wrappers:
            wrapper = it.wrapper()
            if wrapper is not None and not wrapper.require_backward_grad_sync:
                it.unsynchronised += 1

    def forward_begins(self, root: Any, site: CallSite | None) -> None:
        """Note whether this training forward of a root, called at ``site``, is that of a wrapper, or goes round one."""
        if not self._wrappers:
            return
        modules = {id(it) for it in root.modules()}
        for it in self._wrappers:
            wrapper = it.wrapper()
            if wrapper is None:
                continue
            if id(wrapper) in modules:
                it.is_called = True
            elif any(id(part) in modules for part in wrapper.modules() if part is not wrapper):
                it.bypassed_at = it.bypassed_at or site

    def sites(self) -> list[CallSite | None]:
        """The lines that made them."""
        return [it.site for it in self._wrappers]

    def facts(self) -> tuple[DataParallelFacts, ...]:
        """What was observed of each of them."""
        return tuple(it.facts(self._torch if self._digests else None) for it in self._wrappers)


class _Wrapper:
    """One wrapper. What can change later, or is gone when the script has ended, is read when it is made."""

    def __init__(
        self, wrapper: ReferenceType[Any], arguments: dict[str, Any], site: CallSite | None, torch: Any
    ) -> None:
        made, distributed = wrapper(), torch.distributed
        self.wrapper = wrapper
        self.site = site
        self.unsynchronised = 0
        self.is_called = False
        self.bypassed_at: CallSite | None = None
        self._arguments = arguments
        self._backend = str(distributed.get_backend(made.process_group)) if made is not None else ""
        self._processes = int(distributed.get_world_size(made.process_group)) if made is not None else 1
        weights = [it for it in made.parameters() if it.requires_grad] if made is not None else []
        self._bytes = sum(it.numel() * it.element_size() for it in weights)

    def facts(self, torch: Any) -> DataParallelFacts:
        """With a digest of the weights if torch is given, as long as the script holds them."""
        given, wrapper = self._arguments, self.wrapper()
        cap = given.get("bucket_cap_mb")
        return DataParallelFacts(
            backend=self._backend,
            processes=self._processes,
            gradient_bytes=self._bytes,
            bucket_cap_mb=float(cap) if isinstance(cap, (int, float)) else None,
            gradient_as_bucket_view=bool(given.get("gradient_as_bucket_view")),
            static_graph=bool(given.get("static_graph")),
            find_unused_parameters=bool(given.get("find_unused_parameters")),
            communication_hook=_hook_of(wrapper),
            unsynchronised_backwards=self.unsynchronised,
            bypassed_at=None if self.is_called else self.bypassed_at,
            weights_digest=weights_digest(torch, wrapper) if torch is not None and wrapper is not None else "",
            site=self.site,
        )


def _hook_of(wrapper: Any) -> str:
    """The name of the registered hook. torch keeps it in ``_comm_hooks`` (2.2 and later) and has no public way to read
    it."""
    hooks = getattr(wrapper, "_comm_hooks", None) or ()
    return next((str(getattr(hook, "__name__", type(hook).__name__)) for hook, _ in hooks), "")


def weights_digest(torch: Any, wrapper: Any) -> str:
    """A digest of the weights that are exchanged, equal on all ranks if each of their bits is; empty where processes
    share them. Their bits are summed as integers, whose sum no order changes."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = []
    for it in wrapper.parameters():
        if hasattr(it, "to_local"):
            return ""
        if it.requires_grad and not it.is_complex():
            bits = it.detach().view(kinds[it.element_size()])
            sums.append(int(bits.sum(dtype=torch.int64)))
    return f"{zlib.crc32(repr(sums).encode()):08x}"
