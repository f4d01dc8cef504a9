"""The table of all scripts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.batch.results import (
    CONFIDENCE,
    CONFIRMING_REPLICATES,
    MOST_STEP_SECONDS,
    PROMISED,
    SEARCH_SECONDS,
    SHARED_LAUNCHES,
    SHARED_ROUNDS,
    SWEEP_REPLICATES,
    Progress,
    Swept,
    rates_of,
    rival_of,
    slower_of,
    verdict_of,
)
from bench.report import table
from hotlap.records import BatchSearch, Estimate


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """A script's results, as they are written."""

    script: str
    own: int = 0
    knee: int = 0
    bound_by: str = ""
    swept: tuple[Swept, ...] = ()
    failed: tuple[int, ...] = ()
    rival: int = 0
    slower: Estimate | None = None
    verdict: str = ""
    between_launches: tuple[float, ...] = ()
    within_launches: tuple[float, ...] = ()
    search_launches: int = 0
    search_seconds: float = 0.0
    sweep_launches: int = 0
    sweep_replicates: int = 0
    disturbed: int = 0
    trouble: str = ""


def summary(progress: Progress) -> Row:
    """The results of a script."""
    search = progress.search or BatchSearch()
    return Row(
        script=progress.script,
        own=search.own,
        knee=search.knee,
        bound_by=search.bound_by,
        swept=rates_of(progress),
        failed=progress.failed,
        rival=rival_of(progress),
        slower=slower_of(progress),
        verdict=verdict_of(slower_of(progress)),
        between_launches=progress.compared,
        within_launches=progress.shared,
        search_launches=search.launches,
        search_seconds=progress.search_seconds,
        sweep_launches=progress.sweep_launches,
        sweep_replicates=len(progress.swept),
        disturbed=progress.disturbed,
        trouble=progress.trouble,
    )


def text_of(found: Sequence[Progress], kept: Sequence[str] = ()) -> str:
    """The table, and what its columns are; ``kept`` are the scripts that ran with freed memory kept."""
    rows = [summary(it) for it in found]
    heads = (
        *("script", "own size", "knee", "search ended by", "throughput in the sweep, by size"),
        *("fastest other size", "knee slower by", f"within {100 * PROMISED:.0f} %", "launches", "of the sweep"),
    )
    known = [it for it in rows if it.slower is not None]
    lines = []
    if known:
        worst = max(known, key=_ratio)
        text = f"In the worst case, {worst.script}, the knee is slower by {_slower(worst)}."
        lines += [text if _ratio(worst) > 1 else "No knee was slower than the fastest other size, on the mean.", ""]
    lines += [
        f"Throughput is a ratio to that of the script's own size, from up to {SWEEP_REPLICATES} replicates. *Knee "
        f"slower by* compares the knee with the fastest other size of the sweep in {CONFIRMING_REPLICATES} further "
        f"replicates of fresh launches; where these leave it open, {SHARED_LAUNCHES} launches in which both sizes take "
        f"turns join them (`and within`), each the median of {SHARED_ROUNDS} rounds. The interval is that of "
        f"{100 * CONFIDENCE:g} %, so that both looks have 95 %; below 0 the knee is faster. It is "
        f"*kept* where the whole interval is within the {100 * PROMISED:.0f} % that the search promises, *broken* "
        f"where it is beyond, and else *open*. Launches are processes of the script. The search had a budget of "
        f"{SEARCH_SECONDS:.0f} s; sizes whose step takes more than about {MOST_STEP_SECONDS:g} s are not part of the "
        "sweep.",
        "",
        table(heads, [cells(it) for it in found]),
    ]
    if kept:
        lines += [
            "",
            f"With the variables of the lever `keep-freed-memory`, since launches differ less: {', '.join(kept)}.",
        ]
    failed = [f"{size} of {it.script}" for it in rows for size in it.failed]
    if failed:
        lines += ["", f"These sizes of the sweep failed and were left out: {', '.join(failed)}."]
    disturbed = [f"{it.disturbed} of {it.script}" for it in rows if it.disturbed]
    if disturbed:
        lines += ["", f"Other processes disturbed replicates of the sweep: {', '.join(disturbed)}."]
    return "\n".join(lines)


def cells(progress: Progress) -> tuple[str, ...]:
    """A row of the table; a script without a result says why."""
    row = summary(progress)
    if row.trouble:
        return row.script, str(row.own or ""), str(row.knee or ""), "", row.trouble, "", "", "", "", ""
    swept = ", ".join(f"{it.size}: {it.rate:.2f}" for it in row.swept)
    slower = f"{_slower(row)}, and within" if row.within_launches else _slower(row)
    return (
        *(row.script, str(row.own), str(row.knee), row.bound_by, swept, str(row.rival or ""), slower),
        *(row.verdict, str(row.search_launches), str(row.sweep_launches)),
    )


def _ratio(row: Row) -> float:
    return row.slower.value if row.slower is not None else 0.0


def _slower(row: Row) -> str:
    """By which share the throughput of the knee is below the rival's, with its interval."""
    if row.slower is None:
        return ""
    value, low, high = (100 * (1 - 1 / it) for it in (row.slower.value, row.slower.low, row.slower.high))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"
