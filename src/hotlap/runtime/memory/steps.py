"""What each training step holds, counted by storages through the hooks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final
from weakref import WeakSet

from msgspec.structs import replace

from hotlap.evidence import MemoryHolder
from hotlap.records import (
    CallSite,
    MemoryAccount,
    MemoryAmounts,
    MemoryGrowth,
    MemoryKind,
    MemoryOverStep,
    MemoryPhase,
    ModuleMemory,
)
from hotlap.runtime.batches import tensors as tensors_in
from hotlap.runtime.evidence.holders import Holders
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.memory.storages import Held, StorageCount
from hotlap.runtime.unit_clock import UnitClock

WARM_UP_STEPS: Final = 3
"""Steps in which optimizers make their state and caches fill; what is made in them and stays is no growth."""

_LOOK_EVERY: Final = 2
_MOST_MOMENTS: Final = 800
_MOST_MODULES: Final = 200
_FIELDS: Final[dict[MemoryKind, str]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer-state": "optimizer_state",
    "activations": "activations",
    "inputs": "inputs",
    "temporaries": "temporaries",
    "other": "other",
}


class MemorySteps:
    """Counts from the first training forward on, until :meth:`stop`."""

    def __init__(self, interception: Interception, clock: UnitClock) -> None:
        self._torch = interception.hooks.torch
        self._clock = clock
        self._roots = interception.roots
        self._count = StorageCount()
        self._holders = Holders(self._torch)
        self._optimizers: WeakSet[Any] = WeakSet()
        self._phases: list[tuple[int, MemoryPhase]] = [(0, "data")]
        self._at_start: list[Held] = []
        self._peaks: list[int] = []
        self._ends: list[int] = []
        self._largest = MemoryAccount()
        self._stopped = False
        hooks = interception.hooks
        hooks.model_found.append(self._model_found)
        hooks.around_fetch.append(self._fetch)
        hooks.before_forward.append(self._forward_begins)
        hooks.before_backward.append(self._backward_begins)
        hooks.after_backward.append(self._backward_ended)
        hooks.before_update.append(self._update_begins)
        hooks.after_update.insert(0, self._update_ended)

    @property
    def steps(self) -> int:
        """How many steps were counted."""
        return len(self._peaks)

    def stop(self) -> None:
        """Stop counting, and remove everything from torch."""
        self._stopped = True
        self._count.stop()
        self._at_start.clear()

    # -- what the hooks tell -------------------------------------------------------------------

    def _model_found(self, root: Any) -> None:
        if not self._stopped and not self._count.started:
            self._count.start()
        self._note_state()

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        batch = fetch()
        if self._count.started:
            for tensor in tensors_in(batch):
                self._name(tensor, "inputs", of=("temporaries", "other"))
        return batch

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._count.phase == "backward":
            return args, kwargs  # recomputed within it
        if self._count.phase == "data":
            for held in self._made("data"):
                held.kind = "inputs"
        for tensor in (*tensors_in(args), *tensors_in(kwargs)):
            if not tensor.requires_grad:
                self._name(tensor, "inputs", of=("temporaries", "other"))
        self._enter("forward")
        return args, kwargs

    def _backward_begins(self, tensor: Any) -> Any:
        for phase in ("forward", "between"):
            for held in self._made(phase):
                held.kind = "activations"
        self._enter("backward")
        return tensor

    def _backward_ended(self) -> None:
        self._note_gradients()
        self._enter("between")

    def _update_begins(self, optimizer: Any) -> None:
        self._note_gradients()
        self._optimizers.add(optimizer)
        self._enter("optimizer")

    def _update_ended(self, optimizer: Any) -> None:
        self._note_state()
        self._enter("between")

    def step_ended(self) -> None:
        """Account for the step that is over, and begin another one."""
        if not self._count.started:
            return
        for loss in self._clock.kept_losses():
            self._count.leave_out(loss)
        self._note_state()
        self._note_gradients()
        self._close_step()
        if self.steps >= WARM_UP_STEPS and self.steps % _LOOK_EVERY == 0:
            self._holders.look(self.steps)
        self._count.next_step()
        self._count.phase = "data"
        self._phases = [(0, "data")]
        self._at_start = list(self._count.live())

    # -- what storages are for -----------------------------------------------------------------

    def _enter(self, phase: MemoryPhase) -> None:
        self._count.phase = phase
        self._phases.append((self._count.operations, phase))

    def _made(self, phase: str) -> Iterable[Held]:
        """The storages of this step and phase that exist now and of which no more is known."""
        return (
            it
            for it in self._count.live()
            if it.kind == "temporaries" and it.step == self._count.step and it.phase == phase
        )

    def _name(self, tensor: Any, kind: MemoryKind, layer: int = 0, of: Sequence[MemoryKind] = ()) -> None:
        held = self._count.of(tensor)
        if held is not None and (not of or held.kind in of):
            held.kind = kind
            held.layer = layer or held.layer

    def _note_state(self) -> None:
        if not self._count.started:
            return
        owners = {}
        for root in self._roots.all():
            for module in root.modules():
                own = id(module)
                for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                    owners[id(tensor)] = own
                    self._name(tensor, "parameters", own)
        for optimizer in self._optimizers:
            for parameter, state in list(optimizer.state.items()):
                for tensor in tensors_in(state):
                    self._name(tensor, "optimizer-state", owners.get(id(parameter), 0))

    def _note_gradients(self) -> None:
        for root in self._roots.all() if self._count.started else ():
            for module in root.modules():
                for parameter in module.parameters(recurse=False):
                    if parameter.grad is not None:
                        self._name(parameter.grad, "gradients", id(module))

    # -- a step that is over -------------------------------------------------------------------

    def _close_step(self) -> None:
        """Follow the events of the step once all kinds are known."""
        device = self._device()
        held: Counter[MemoryKind] = Counter()
        for it in self._at_start if self.steps else ():
            if it.device == device:
                held[it.kind] += it.bytes
        events = [it for it in self._count.events if it[2].device == device]
        total = most = sum(held.values())
        at, peak = 0, _amounts(held)
        moments = [(0, peak)]
        for index, (operation, sign, storage) in enumerate(events):
            held[storage.kind] += sign * storage.bytes
            total += sign * storage.bytes
            if total > most:
                most, at, peak = total, index + 1, _amounts(held)
            moments.append((operation, _amounts(held)))
        self._peaks.append(most)
        self._ends.append(total)
        # The first step makes what all others find: it is shown only where there is no other.
        if self.steps <= 2 or most > self._largest.peak.total:
            alive = {id(it): it for it in self._at_start if it.device == device and self.steps > 1}
            for _, sign, storage in events[:at]:
                if sign > 0:
                    alive[id(storage)] = storage
                else:
                    alive.pop(id(storage), None)
            self._largest = MemoryAccount(
                device=device,
                peak=peak,
                peak_phase=self._phase_at(moments[at][0]),
                timeline=_timeline(self._count.step, moments, self._phases),
                modules=self._modules(alive.values()),
            )

    def _phase_at(self, operation: int) -> MemoryPhase:
        return [phase for begins, phase in self._phases if begins <= operation][-1]

    def _device(self) -> str:
        for root in self._roots.all():
            for parameter in root.parameters():
                return str(parameter.device.type)
        return "cpu"

    def _modules(self, storages: Iterable[Held]) -> tuple[ModuleMemory, ...]:
        names = {
            id(module): (name.removeprefix("_orig_mod").removeprefix("."), type(module).__name__)
            for root in self._roots.all()
            for name, module in root.named_modules()
        }
        of: defaultdict[int, Counter[MemoryKind]] = defaultdict(Counter)
        for it in storages:
            of[it.layer if it.layer in names else 0][it.kind] += it.bytes
        found = [
            ModuleMemory(name=names[layer][0], kind=names[layer][1], amounts=_amounts(amounts))
            for layer, amounts in of.items()
            if layer
        ]
        return tuple(sorted(found, key=lambda it: -it.amounts.total)[:_MOST_MODULES])

    # -- the whole -----------------------------------------------------------------------------

    def account(self) -> MemoryAccount | None:
        """Everything that was counted; None where no step was."""
        if not self.steps:
            return None
        growth = _growth(self._ends)
        kept = self._kept()
        holders = [it for it in self._holders.result() if _grows(it, growth)]
        made_at = _line_of_most(kept)
        rows = [
            MemoryGrowth(
                name=it.name,
                tensors=it.tensors,
                tensors_per_step=it.tensors_per_step,
                holds_graph=it.holds_graph,
                site=it.site,
                made_at=made_at if growth else None,
            )
            for it in holders
        ]
        if growth and not rows:
            rows = [MemoryGrowth(tensors=len(kept), tensors_per_step=_per_step(kept), made_at=made_at)]
        return replace(
            self._largest,
            step_peak_bytes=tuple(self._peaks),
            step_end_bytes=tuple(self._ends),
            growth_bytes_per_step=growth,
            growing=tuple(rows),
        )

    def _kept(self) -> list[Held]:
        """What a step after warm-up made and the next one did not free."""
        last = self._count.step - 2
        return [
            it
            for it in self._count.live()
            if it.bytes and WARM_UP_STEPS <= it.step < last and it.kind in ("activations", "inputs", "temporaries")
        ]


def _amounts(held: Counter[MemoryKind]) -> MemoryAmounts:
    return MemoryAmounts(**{_FIELDS[kind]: amount for kind, amount in held.items()})


def _timeline(
    step: int, moments: Sequence[tuple[int, MemoryAmounts]], phases: Sequence[tuple[int, MemoryPhase]]
) -> MemoryOverStep:
    """All moments, or the highest of each stretch of them."""
    stretch = max(1, -(-len(moments) // _MOST_MOMENTS))
    shown = [
        max(moments[start : start + stretch], key=lambda it: it[1].total) for start in range(0, len(moments), stretch)
    ]
    return MemoryOverStep(
        step=step,
        operations=tuple(it for it, _ in shown),
        amounts=tuple(it for _, it in shown),
        phases=tuple(phases),
    )


def _growth(ends: Sequence[int]) -> float:
    """Bytes per step by which the memory at the end of a step rises in every step after warm-up but a few; 0 where it
    does not."""
    rises = [later - earlier for earlier, later in zip(ends[WARM_UP_STEPS:], ends[WARM_UP_STEPS + 1 :], strict=False)]
    if len(rises) < WARM_UP_STEPS or sum(it > 0 for it in rises) < 0.8 * len(rises):
        return 0.0
    return max(0.0, float(median(rises)))


def _grows(holder: MemoryHolder, growth: float) -> bool:
    """A variable that keeps graphs grows whatever its storages take; any other only where memory does."""
    steady = holder.tensors_per_step >= 0.5
    return steady and (holder.holds_graph or (growth > 0 and not holder.emptied))


def _per_step(kept: Sequence[Held]) -> float:
    return len(kept) / max(1, len({it.step for it in kept}))


def _line_of_most(kept: Iterable[Held]) -> CallSite | None:
    by_line: Counter[CallSite] = Counter()
    for it in kept:
        if it.site is not None:
            by_line[it.site] += it.bytes
    return max(by_line, key=lambda it: by_line[it]) if by_line else None
