"""Kernels that leave most of the device idle because their grids have few blocks."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.operators import WORTH_A_LOOK, kernels_matter
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most
from hotlap.diagnose.wording import count, duration, name, percent
from hotlap.records import Finding
from hotlap.traces.records import DeviceBreakdown, KernelRow

_SHOWN = 3
_BILLION = 1e9


def small_grids_finding(profile: Profile, device: DeviceBreakdown) -> Iterator[Finding]:
    """Yield time in grids with less than half a block per multiprocessor, except collectives.

    The idle time of the multiprocessors without a block is a bound of the loss.
    """
    rows = [it for it in device.kernels if it.few_blocks_nanoseconds and not it.communication]
    window = max(1, device.time.window_nanoseconds)
    lost = sum(it.without_block_nanoseconds for it in rows) / window
    if lost < WORTH_A_LOOK or not kernels_matter(profile):
        return
    share = sum(it.few_blocks_nanoseconds for it in rows) / window
    longest = sorted(rows, key=lambda it: -it.few_blocks_nanoseconds)[:_SHOWN]
    yield Finding(
        rule="small-grids",
        share=at_most(lost),
        title=f"Kernels with too few blocks for half of the multiprocessors take {percent(min(1.0, share))} of the "
        "step.",
        evidence=tuple(map(_line, longest)),
        remedy="Give each kernel more work: a larger batch or longer sequences, one batched operator (`torch.bmm`, "
        "`foreach=True`) in place of many small ones, or a kernel that splits the reduced dimension. Small kernels "
        "that do not depend on each other can share the device on several streams.",
    )


def _line(row: KernelRow) -> str:
    blocks = f", {row.blocks_per_multiprocessor:.2g} blocks" if row.blocks_per_multiprocessor is not None else ""
    launches = count(row.launches, "launch", "launches")
    return (
        f"{name(row.name)}: {duration(row.few_blocks_nanoseconds / _BILLION)} of {launches}{blocks} per multiprocessor"
    )
