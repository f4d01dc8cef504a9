"""What the first steps show of a model's repeated blocks: whether the script recomputes them, and whether a forward
pass changes their buffers."""

from __future__ import annotations

from typing import Any

from hotlap.levers.support.blocks import own_switch, repeated_blocks, same_blocks
from hotlap.records import BlockFacts, RepeatedModules
from hotlap.runtime import compile_report


class BlocksWatch:
    """Watches the blocks of each root that is called. Hooks would make a compiled graph be compiled again, so nothing
    is watched where anything is compiled."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._handles: dict[int, list[Any]] = {}
        self._versions: dict[int, int] = {}
        self._recomputed: set[int] = set()
        self._updating: set[int] = set()
        self._in_backward = False

    def forward_begins(self, root: Any) -> None:
        """Watch from here to :meth:`backward_ends`."""
        run = None if compile_report.anything_compiled(self._torch, root) else repeated_blocks(self._torch, root)
        if run is None:
            return
        key = id(root)
        self._versions[key] = _versions(run.blocks)
        if key in self._handles:
            return

        def called(module: Any, args: Any) -> None:
            if self._in_backward:
                self._recomputed.add(key)

        self._handles[key] = [it.register_forward_pre_hook(called) for it in run.blocks]

    def forward_ends(self, root: Any) -> None:
        """Compare the counters by which tensors count their changes."""
        before = self._versions.pop(id(root), None)
        run = repeated_blocks(self._torch, root) if before is not None else None
        if run is not None and _versions(run.blocks) != before:
            self._updating.add(id(root))

    def backward_begins(self) -> None:
        """A block that is called from here on is recomputed."""
        self._in_backward = True

    def backward_ends(self) -> None:
        """Remove the hooks."""
        self._in_backward = False
        for handle in (it for handles in self._handles.values() for it in handles):
            handle.remove()
        self._handles.clear()

    def facts(self, root: Any) -> BlockFacts | None:
        """What is known of the root's blocks; None where it has none."""
        run = repeated_blocks(self._torch, root)
        if run is None:
            return None
        switch = own_switch(self._torch, root)
        return BlockFacts(
            kind=type(run.blocks[0]).__name__,
            count=len(run.blocks),
            place=run.place,
            switch=switch.method if switch else "",
            switch_place=switch.place if switch else "",
            switch_skips=switch is not None and switch.skips,
            recomputed=id(root) in self._recomputed,
            updates_buffers=id(root) in self._updating,
        )

    def repeated(self, root: Any) -> tuple[RepeatedModules, ...]:
        """The root's modules that can share compiled code."""
        return tuple(
            RepeatedModules(
                kind=type(run.blocks[0]).__name__,
                count=len(run.blocks),
                place=run.place,
                forward_of_torch=has_forward_of_torch(run.blocks[0]),
                compiled=all(compile_report.is_compiled(it) for it in run.blocks),
            )
            for run in same_blocks(self._torch, root)
        )


def has_forward_of_torch(module: Any) -> bool:
    """Whether the module's class is torch's own, or inherits its forward from one."""
    return str(type(module).forward.__module__).startswith("torch.nn.")


def has_compile_of_its_own(module: Any) -> bool:
    """Whether ``module.compile()`` is not torch's: that of Keras takes a loss and an optimizer."""
    return not str(type(module).compile.__module__).startswith("torch.")


def _versions(blocks: tuple[Any, ...]) -> int:
    return sum(it._version for block in blocks for it in block.buffers())
