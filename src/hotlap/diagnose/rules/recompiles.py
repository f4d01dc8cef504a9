"""torch.compile compiles the same function again and again.

## What it is
A compiled function was called with arguments that match none of its compiled versions: another size, another number in
a Python attribute, another type of object. torch recompiled it each time, three times or more.

## Why it is slow
Each compilation takes seconds, in the middle of training. After some of them (8, unless
`torch._dynamo.config.recompile_limit` says otherwise) torch gives up and runs that function uncompiled, which only a
log message reports.

## How to see it
`TORCH_LOGS=recompiles python train.py` prints each guard that failed.

## What to do
For sizes: pad or bucket the inputs, `drop_last=True` in the loader, `torch.compile(..., dynamic=True)`, or
`torch._dynamo.mark_dynamic(tensor, dimension)`. For numbers that change in every step: keep them in tensors, or outside
of the compiled function.

## When it is fine
One recompilation is normal: torch specialises first and generalises at the first change. So is one for evaluation mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hotlap.diagnose.compiled import compiled_with, in_words, shortened, site_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, duration
from hotlap.records import CompileReport, Finding, GraphBreak

title = "The same function is compiled again and again"
group = "compile"

FEWEST = 3
"""One recompilation generalises, a second may be for evaluation."""

TORCH_LIMIT = 8
"""torch's default limit of compiled versions of one function."""

_MOST_FINDINGS = 5
_REASONS_SHOWN = 2


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per function, the most often compiled first."""
    functions: defaultdict[tuple[str, int], list[GraphBreak]] = defaultdict(list)
    for it in profile.compile.recompiles:
        functions[it.file, it.line].append(it)
    often = sorted((it for it in functions.values() if _times(it) >= FEWEST), key=lambda it: -_times(it))
    for guards in often[:_MOST_FINDINGS]:
        times, place, report = _times(guards), guards[0], profile.compile
        yield Finding(
            rule="recompiles",
            kind="risk",
            share=exactly(0.0),
            title=f"torch compiled {in_words(place)} again, {count(times, 'time')} besides the first.",
            evidence=(
                *(f"Because of: {shortened(it.reason)}" for it in guards[:_REASONS_SHOWN]),
                f"All compiling took {duration(report.seconds)}, for {count(report.graphs, 'graph')}.",
                f"By default torch gives up after {TORCH_LIMIT} versions of a function, and runs it uncompiled.",
            ),
            remedy=_remedy(guards),
            site=site_of(place, profile),
        )


def _times(guards: list[GraphBreak]) -> int:
    return sum(it.count for it in guards)


def _remedy(guards: list[GraphBreak]) -> str:
    if any("size mismatch" in it.reason or "stride mismatch" in it.reason for it in guards):
        return (
            "Give the function inputs of one size (padding, buckets, `drop_last=True`), or compile it with "
            "`dynamic=True`."
        )
    return "Keep the value that changes in a tensor, or outside of the compiled function; see `TORCH_LOGS=recompiles`."


def _sizes(times: int, line: int = 12) -> tuple[GraphBreak, ...]:
    return tuple(
        GraphBreak(
            reason=f"tensor 'x' size mismatch at index 1. expected {100 + it}, actual {101 + it}",
            file="/home/me/net.py",
            line=line,
        )
        for it in range(times)
    )


_COUNTER = GraphBreak(reason="self.step == 4", file="/home/me/net.py", line=30, count=5)

fires = {
    "sequences of many lengths": compiled_with(CompileReport(seconds=40.0, graphs=6, recompiles=_sizes(5))),
    "a number that changes with every step": compiled_with(
        CompileReport(seconds=9.0, graphs=6, recompiles=(_COUNTER,))
    ),
    "at the edge": compiled_with(CompileReport(seconds=40.0, graphs=4, recompiles=_sizes(FEWEST))),
}
silent = {
    "nothing was measured": Profile(),
    "compiled once": compiled_with(CompileReport(seconds=20.0, graphs=1)),
    "it generalised": compiled_with(CompileReport(seconds=20.0, graphs=2, recompiles=_sizes(1))),
    "a few functions, each twice": compiled_with(
        CompileReport(seconds=20.0, graphs=9, recompiles=(*_sizes(2), *_sizes(2, line=90)))
    ),
}
