"""What uses the memory of a training step."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.script import CallSite
from hotlap.records.workload import Plan

MemoryKind: TypeAlias = Literal[
    "parameters", "gradients", "optimizer-state", "activations", "inputs", "temporaries", "other"
]
MemoryPhase: TypeAlias = Literal["data", "forward", "backward", "between", "optimizer"]


class MemoryAmounts(Record, frozen=True, kw_only=True):
    """Bytes of storages by what they are for; each storage counts once, however many tensors view it.

    ``parameters`` has buffers too. ``activations`` were made in a forward pass and still existed when its backward
    began, or were recomputed in it. ``inputs`` came from the loader, or were made before the forward pass of their
    step. ``temporaries`` are everything else that a step allocates. ``other`` existed before counting began.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    inputs: int = 0
    temporaries: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """All of them, in bytes."""
        return sum(getattr(self, it) for it in self.__struct_fields__)


class MemoryOverStep(Record, frozen=True, kw_only=True):
    """One step, as columns of equal length: ``amounts[i]`` is what was held after ``operations[i]`` operations of it.

    Of a long step these are some moments, the highest of each stretch. ``phases`` says which phase began after how many
    operations. ``step`` counts from 0.
    """

    step: int = 0
    operations: tuple[int, ...] = ()
    amounts: tuple[MemoryAmounts, ...] = ()
    phases: tuple[tuple[int, MemoryPhase], ...] = ()


class ModuleMemory(Record, frozen=True, kw_only=True):
    """What belongs to one module at the peak, without the modules in it; ``kind`` is its class."""

    name: str
    kind: str = ""
    amounts: MemoryAmounts = MemoryAmounts()


class MemoryGrowth(Record, frozen=True, kw_only=True):
    """Memory that grows with every step.

    ``name`` is the variable and ``site`` the line that adds to it; both are unknown where no variable of the script was
    found. ``made_at`` is the line that made most of what is kept, in bytes. ``holds_graph``: the graphs of its tensors
    are kept, and so may be their activations.
    """

    name: str = ""
    tensors: int = 0
    tensors_per_step: float = 0.0
    holds_graph: bool = False
    site: CallSite | None = None
    made_at: CallSite | None = None


class AllocatorUse(Record, frozen=True, kw_only=True):
    """Statistics of a device's caching allocator: the peaks of the bytes that tensors held and that it reserved, and at
    the end the bytes of free pieces that no other size could use. ``retries`` counts how often it had to free its cache
    to get memory. ``snapshot_path`` is for PyTorch's viewer."""

    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    fragmented_bytes: int = 0
    retries: int = 0
    limit_bytes: int = 0
    snapshot_path: str = ""


class MemoryAccount(Record, frozen=True, kw_only=True):
    """The memory of ``device`` over the first steps of the unmodified script.

    ``peak`` is what was held in the largest step at its highest moment, in ``peak_phase``; ``timeline`` is that step,
    and ``modules`` are its modules, the largest first. ``step_peak_bytes`` and ``step_end_bytes`` have one row a step.
    ``growth_bytes_per_step`` is how much the memory at the end of each step grows after warm-up (0: it does not).
    """

    device: str = "cpu"
    peak: MemoryAmounts = MemoryAmounts()
    peak_phase: MemoryPhase = "forward"
    timeline: MemoryOverStep = MemoryOverStep()
    modules: tuple[ModuleMemory, ...] = ()
    step_peak_bytes: tuple[int, ...] = ()
    step_end_bytes: tuple[int, ...] = ()
    growth_bytes_per_step: float = 0.0
    growing: tuple[MemoryGrowth, ...] = ()
    allocator: AllocatorUse | None = None


class EstimatedPeak(Record, frozen=True, kw_only=True):
    """The peak with this plan and batch size (0: the script's own), sharded over ``ranks``; ``error`` says why there is
    none. ``peak_bytes`` excludes what the script held before."""

    batch_size: int = 0
    plan: Plan = Plan()
    ranks: int = 1
    peak_bytes: int = 0
    amounts: MemoryAmounts = MemoryAmounts()
    error: str = ""


class MemoryEstimate(Record, frozen=True, kw_only=True):
    """Peaks that were computed on tensors without data, for a device of ``device_memory_bytes`` (0: not given), of
    which ``headroom`` (a share) is to stay free for the allocator and the device's own context."""

    peaks: tuple[EstimatedPeak, ...] = ()
    device_memory_bytes: int = 0
    headroom: float = 0.1

    def fits(self, peak: EstimatedPeak) -> bool:
        """Whether it leaves that headroom free."""
        return not peak.error and peak.peak_bytes <= (1 - self.headroom) * self.device_memory_bytes
