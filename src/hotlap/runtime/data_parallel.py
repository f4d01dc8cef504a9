"""What the script's ``DistributedDataParallel`` wrappers are: their arguments, their hook, and when they exchange."""

from __future__ import annotations

from typing import Any
from weakref import ReferenceType, ref

from hotlap.records import CallSite, DataParallelFacts
from hotlap.runtime.call_sites import exact_user_site
from hotlap.runtime.hooks import Hooks


class DataParallelWatch:
    """Remembers every wrapper of the process, without keeping it alive."""

    def __init__(self, hooks: Hooks) -> None:
        self._torch = hooks.torch
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

    def sites(self) -> list[CallSite | None]:
        """The lines that made them."""
        return [it.site for it in self._wrappers]

    def facts(self) -> tuple[DataParallelFacts, ...]:
        """What was observed of each of them."""
        return tuple(it.facts() for it in self._wrappers)


class _Wrapper:
    """One wrapper. What can change later, or is gone when the script has ended, is read when it is made."""

    def __init__(
        self, wrapper: ReferenceType[Any], arguments: dict[str, Any], site: CallSite | None, torch: Any
    ) -> None:
        made, distributed = wrapper(), torch.distributed
        self.wrapper = wrapper
        self.site = site
        self.unsynchronised = 0
        self._arguments = arguments
        self._backend = str(distributed.get_backend(made.process_group)) if made is not None else ""
        self._processes = int(distributed.get_world_size(made.process_group)) if made is not None else 1
        weights = [it for it in made.parameters() if it.requires_grad] if made is not None else []
        self._bytes = sum(it.numel() * it.element_size() for it in weights)

    def facts(self) -> DataParallelFacts:
        given = self._arguments
        cap = given.get("bucket_cap_mb")
        return DataParallelFacts(
            backend=self._backend,
            processes=self._processes,
            gradient_bytes=self._bytes,
            bucket_cap_mb=float(cap) if isinstance(cap, (int, float)) else None,
            gradient_as_bucket_view=bool(given.get("gradient_as_bucket_view")),
            static_graph=bool(given.get("static_graph")),
            find_unused_parameters=bool(given.get("find_unused_parameters")),
            communication_hook=_hook_of(self.wrapper()),
            unsynchronised_backwards=self.unsynchronised,
            site=self.site,
        )


def _hook_of(wrapper: Any) -> str:
    """The name of the registered hook. torch keeps it in ``_comm_hooks`` (2.2 and later) and has no public way to read
    it."""
    hooks = getattr(wrapper, "_comm_hooks", None) or ()
    return next((str(getattr(hook, "__name__", type(hook).__name__)) for hook, _ in hooks), "")
