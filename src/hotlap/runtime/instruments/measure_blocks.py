"""What each repeated block of a model costs: the seconds of its forward pass, and what it keeps for the backward pass.

The bytes are those of the storages that autograd saves within the block, without its parameters and its own inputs,
which stay in memory if the block is recomputed too.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from hotlap.levers.support.blocks import own_switch, repeated_blocks
from hotlap.records import BlockCost, MeasureBlocks
from hotlap.runtime.batches import tensors
from hotlap.runtime.devices import device_kind
from hotlap.runtime.instruments.api import Place

_WARM_UP = 1


def install(place: Place, asked: MeasureBlocks) -> None:
    """For the blocks of the first model that has any, and no switch of its own."""
    blocks: list[_Block] = []

    def found(root: Any) -> None:
        torch = place.hooks.torch
        run = repeated_blocks(torch, root) if not blocks and own_switch(torch, root) is None else None
        for block in run.blocks if run is not None else ():
            blocks.append(_Block(torch, block, device_kind(root)))

    def finish() -> None:
        place.hooks.found["block_costs"] = tuple(it.cost() for it in blocks if it.is_known())

    place.hooks.model_found.append(found)
    place.hooks.before_exit.append(finish)


class _Block:
    def __init__(self, torch: Any, module: Any, kind: str) -> None:
        self._torch = torch
        self._module = module
        self._wait = torch.get_device_module(kind).synchronize if kind != "cpu" else lambda: None
        self._seconds: list[float] = []
        self._bytes: list[int] = []
        self._saved: dict[int, int] = {}
        self._left_out: set[int] = set()
        self._saving: Any = None
        self._began = 0.0
        module.register_forward_pre_hook(self._begin, with_kwargs=True)
        module.register_forward_hook(self._end, always_call=True)

    def is_known(self) -> bool:
        return len(self._seconds) > _WARM_UP

    def cost(self) -> BlockCost:
        return BlockCost(forward_seconds=median(self._seconds[_WARM_UP:]), saved_bytes=round(median(self._bytes)))

    def _begin(self, module: Any, args: Any, kwargs: Any) -> None:
        if not self._torch.is_grad_enabled() or self._saving is not None:
            return
        kept = [*tensors((args, kwargs)), *module.parameters(), *module.buffers()]
        self._left_out = {it.untyped_storage()._cdata for it in kept}
        self._saved = {}
        self._saving = self._torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        self._wait()
        self._began = time.perf_counter()
        self._saving.__enter__()

    def _pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._left_out:
            self._saved[storage._cdata] = int(storage.nbytes())
        return tensor

    def _end(self, module: Any, args: Any, output: Any) -> None:
        if self._saving is None:
            return
        self._saving.__exit__(None, None, None)
        self._saving = None
        self._wait()
        self._seconds.append(time.perf_counter() - self._began)
        self._bytes.append(sum(self._saved.values()))


def _unpack(tensor: Any) -> Any:
    return tensor
