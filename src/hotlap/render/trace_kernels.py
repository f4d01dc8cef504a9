"""The table of a device's kernels, on the terminal: their time, and how well they fill the device."""

from __future__ import annotations

from hotlap.render import text
from hotlap.render.event_names import event_names
from hotlap.render.lines import Table
from hotlap.traces.records import DeviceBreakdown, KernelRow

_FEW = 10


def kernels(device: DeviceBreakdown, most: int) -> Table:
    """At most so many kernels, with occupancy and blocks per multiprocessor if the trace has them."""
    rows = device.kernels[:most]
    heads = ("name", ">time", ">of busy", ">launches", ">mean", "tensor cores", "?>occupancy", "?>blocks/SM")
    table = Table(*heads, about=_summary(device))
    names = event_names([it.name for it in rows])
    for row in rows:
        table.add(
            names[row.name],
            text.length(row.nanoseconds),
            text.share_of(row.nanoseconds, device.time.busy_nanoseconds),
            f"{row.launches:,}",
            text.length(row.nanoseconds // row.launches),
            {True: "yes", False: "no", None: ""}[row.tensor_cores],
            _occupancy(row),
            _blocks(row),
        )
    return table


def _occupancy(row: KernelRow) -> str:
    return "" if row.occupancy is None else text.share(row.occupancy)


def _blocks(row: KernelRow) -> str:
    blocks = row.blocks_per_multiprocessor
    return "" if blocks is None else f"{blocks:.2f}" if blocks < _FEW else f"{blocks:,.0f}"


def _summary(device: DeviceBreakdown) -> str:
    summary = device.kernel_summary
    line = f"{summary.kernels:,} kernels of {summary.distinct:,} names"
    if summary.per_step is not None:
        line += f", {summary.per_step:,.0f} per step"
    if summary.launch_cost_nanoseconds is not None:
        line += f"; {text.share(summary.short_share)} are shorter than a launch costs the host "
        line += f"({text.length(summary.launch_cost_nanoseconds)})"
    return line
