"""The memory account in words: the peak, its kinds, modules, and what grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hotlap.records import (
    CallSite,
    EstimatedPeak,
    MemoryAccount,
    MemoryAmounts,
    MemoryEstimate,
    MemoryGrowth,
    ModuleMemory,
)
from hotlap.render import text

KINDS: Final = (
    ("parameters", "parameters", "var(--as-it-is)"),
    ("optimizer_state", "optimizer state", "var(--optimizer)"),
    ("gradients", "gradients", "var(--backward)"),
    ("activations", "activations", "var(--forward)"),
    ("inputs", "inputs", "var(--data-wait)"),
    ("temporaries", "temporaries", "var(--differ)"),
    ("other", "held from before", "var(--other)"),
)
"""The field of the amounts, its name, and its colour; drawn from the bottom upwards."""

_OF_A_STEP = KINDS[:-1]
KIND_HEADINGS = ("", ">at the peak", ">share", ">most in this step")
MODULE_HEADINGS = ("module", ">activations", ">gradients", ">optimizer")
_MODULES_SHOWN = 12
_PHASES = {
    "data": "before the forward pass",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "between": "between the passes",
    "optimizer": "in the optimizer's step",
}


def peak_sentence(account: MemoryAccount) -> str:
    """The peak, its phase, and its largest part besides what existed before."""
    field, largest, _ = max(_OF_A_STEP, key=lambda it: getattr(account.peak, it[0]))
    share = text.share_of(getattr(account.peak, field), account.peak.total)
    return (
        f"Memory peaks at {text.size(account.peak.total)} {_PHASES[account.peak_phase]}; "
        f"the largest part that training holds is {largest} ({share})."
    )


def kind_rows(account: MemoryAccount) -> Iterator[tuple[str, ...]]:
    """A row for each kind with memory, and one for the total."""
    moments = account.timeline.amounts or (account.peak,)
    for field, name, _ in KINDS:
        at_peak, most = getattr(account.peak, field), max(getattr(it, field) for it in moments)
        if most:
            yield name, text.size(at_peak), text.share_of(at_peak, account.peak.total), text.size(most)
    yield "all", text.size(account.peak.total), text.share(1.0), text.size(max(it.total for it in moments))


def module_rows(account: MemoryAccount) -> tuple[tuple[str, ...], ...]:
    """The modules with the most memory at the peak."""
    return tuple((_module(it), *_cells(it.amounts)) for it in account.modules[:_MODULES_SHOWN])


def growth_sentences(account: MemoryAccount) -> Iterator[str]:
    """What grows, what holds it, and what to do; nothing without growth."""
    if account.growth_bytes_per_step:
        yield f"Memory grows by {text.size(account.growth_bytes_per_step)} per step."
    for it in account.growing:
        yield _growing(it)


def allocator_sentences(account: MemoryAccount) -> Iterator[str]:
    """The behaviour of the device's allocator; nothing for a CPU."""
    use = account.allocator
    if use is None:
        return
    reserved = f"{text.size(use.peak_reserved_bytes)} of {text.size(use.limit_bytes)}"
    yield (
        f"The allocator reserved {reserved} at most, and tensors held {text.size(use.peak_allocated_bytes)}; "
        f"{text.size(use.fragmented_bytes)} lay in free pieces at the end."
    )
    if use.retries:
        yield (
            f"It found no memory {text.count(use.retries, 'time')} and freed its cache first: "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may avoid that."
        )
    if use.snapshot_path:
        yield f"For the viewer at pytorch.org/memory_viz: {text.one_line(use.snapshot_path)}"


def remarks(account: MemoryAccount) -> Iterator[str]:
    """What the figures are."""
    counted = text.count(len(account.step_peak_bytes), "step")
    yield (
        f"Storages of tensors on {text.one_line(account.device)}, counted over {counted}; the largest is step "
        f"{account.timeline.step + 1}. Libraries, Python objects and the workspaces of kernels are not in it."
    )


ESTIMATE_HEADINGS = (">batch size", "with", ">peak", "fits")


def estimate_sentence(estimate: MemoryEstimate) -> str:
    """The first peak, and what fits: the largest batch size, with the fewest levers."""
    first = estimate.peaks[0]
    peak = f"The unmodified script would peak at {text.size(first.peak_bytes)}"
    if not estimate.device_memory_bytes:
        return f"{peak}."
    device = text.size(estimate.device_memory_bytes)
    if all(map(estimate.fits, estimate.peaks)):
        return f"{peak}; all that was estimated fits into {device}."
    fitting = [it for it in estimate.peaks if estimate.fits(it)]
    if not fitting:
        return f"{peak}; nothing that was estimated fits into {device}."
    shown = min(fitting, key=lambda it: (-it.batch_size, it.ranks > 1, len(it.plan.settings), it.peak_bytes))
    return f"{peak}; a batch size of {shown.batch_size} fits into {device} with {_with(shown)}."


def estimate_rows(estimate: MemoryEstimate) -> Iterator[tuple[str, ...]]:
    """A row for each peak."""
    for it in estimate.peaks:
        fits = "" if not estimate.device_memory_bytes else "yes" if estimate.fits(it) else "no"
        peak = text.size(it.peak_bytes) if not it.error else ""
        yield str(it.batch_size or ""), _with(it), peak, text.one_line(it.error, limit=200) or fits


def estimate_remarks(estimate: MemoryEstimate) -> Iterator[str]:
    """What the figures are."""
    yield (
        "Estimates, on tensors without data: storages of tensors alone. A device's context, its libraries and the "
        f"allocator's free pieces come on top; {100 * estimate.headroom:g} % is left for them."
    )
    if any(it.ranks > 1 for it in estimate.peaks):
        yield "Sharded peaks are arithmetic: state divided by the ranks, and the largest module gathered as a whole."


def _with(it: EstimatedPeak) -> str:
    words = [text.one_line(f"{setting.lever} {text.setting_values(setting)}") for setting in it.plan.settings]
    if it.ranks > 1:
        words.append(f"sharded over {it.ranks} ranks")
    return " + ".join(words) or "no lever"


def _module(it: ModuleMemory) -> str:
    name, kind = text.one_line(it.name, limit=60), text.one_line(it.kind, limit=40)
    return f"{name} ({kind})" if name else kind


def _cells(it: MemoryAmounts) -> tuple[str, ...]:
    return tuple(text.size(size) if size else "" for size in (it.activations, it.gradients, it.optimizer_state))


def _growing(it: MemoryGrowth) -> str:
    if not it.name:
        made = f", made at {_place(it.made_at)}" if it.made_at is not None else ""
        return f"{text.count(it.tensors, 'tensor')} were kept{made}; no variable of the script was found to hold them."
    where = f" ({_place(it.site)})" if it.site is not None else ""
    graph = ", each with its graph" if it.holds_graph else ""
    made = ""
    if it.made_at is not None and (it.site is None or _place(it.made_at) != _place(it.site)):
        made = f" Most of what is kept was made at {_place(it.made_at)}."
    advice = "Keep `.detach()` or `.item()` of them." if it.holds_graph else "Empty it, or keep numbers."
    return (
        f"`{text.one_line(it.name, limit=80)}`{where} holds {text.count(it.tensors, 'tensor')}{graph}, "
        f"{it.tensors_per_step:.2g} more with every step. {advice}{made}"
    )


def _place(site: CallSite) -> str:
    return f"{text.file_name(site.file)}:{site.line}"
