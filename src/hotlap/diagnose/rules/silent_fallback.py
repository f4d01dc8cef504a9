"""Code runs uncompiled although compilation was requested.

## What it is
torch.compile gave up on a function, or did not use the CUDA graph of the requested mode, and continued without it.
Training works, but is slower than intended.

## Why it is slow
Uncompiled code runs operator by operator, with the checks of torch.compile in addition. Without a CUDA graph the host
launches each kernel.

## How to see it
torch logs a warning at most once. `hotlap profile train.py` reads its own record of failed and skipped compilations.

## What to do
It depends on the reason, which the finding quotes from torch. At the limit of recompilations: use inputs of the same
size, or raise `torch._dynamo.config.recompile_limit`. For CUDA graphs: avoid CPU work inside, and do not modify inputs
in place.

## When it is fine
If the uncompiled part is small, or intentional (`torch.compiler.disable` is not counted here).
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.compiled import compiled_with, in_words, reason_of, site_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count
from hotlap.records import CompileReport, Finding, GraphBreak

title = "Code runs uncompiled although compilation was requested"
group = "compile"

_MOST_FINDINGS = 5
_CUDA_GRAPH = "No CUDA graph"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per place, the most frequent first.

    There is none if the graph only breaks, which `graph-breaks` reports.
    """
    breaks = {(it.file, it.line) for it in profile.compile.graph_breaks if it.file}
    places = [it for it in profile.compile.fallbacks if (it.file, it.line) not in breaks]
    places.sort(key=lambda it: -it.count)
    for place in places[:_MOST_FINDINGS]:
        yield Finding(
            rule="silent-fallback",
            kind="hint",
            share=exactly(0.0),
            title=_title(place),
            evidence=(reason_of(place), _compiled(profile.compile)),
            remedy=_remedy(place),
            site=site_of(place, profile),
        )


def _title(place: GraphBreak) -> str:
    times = count(place.count, "time")
    if place.reason.startswith(_CUDA_GRAPH):
        return f"A CUDA graph was requested but not used ({times})."
    where = f" on {in_words(place)}" if place.file else ""
    return f"torch.compile gave up{where}, and code runs uncompiled ({times})."


def _compiled(report: CompileReport) -> str:
    return (
        f"{count(report.graphs, 'graph was', 'graphs were')} compiled." if report.graphs else "0 graphs were compiled."
    )


def _remedy(place: GraphBreak) -> str:
    if "recompile" in place.reason.lower():
        return (
            "Make the calls alike: inputs of one size, no Python numbers that change with every step. Or raise "
            "`torch._dynamo.config.recompile_limit`."
        )
    if place.reason.startswith(_CUDA_GRAPH):
        return "Move CPU work and in-place changes of inputs out of the compiled function, or use another mode."
    return "Move the construct that torch names out of the compiled function, or compile a smaller part of the model."


_LIMIT = GraphBreak(reason="Dynamo recompile limit exceeded: Dynamo attempted to recompile too many times", count=2)
_LOOP = GraphBreak(reason="Unsupported context manager in a loop", file="/home/me/net.py", line=12)
_NO_CUDA_GRAPH = GraphBreak(reason="No CUDA graph: skipping cudagraphs due to mutated inputs (2 instances)")

fires = {
    "the limit of recompilations": compiled_with(CompileReport(seconds=60.0, graphs=8, fallbacks=(_LIMIT,))),
    "a function that cannot be compiled": compiled_with(CompileReport(seconds=2.0, graphs=0, fallbacks=(_LOOP,))),
    "no CUDA graph": compiled_with(CompileReport(seconds=30.0, graphs=2, fallbacks=(_NO_CUDA_GRAPH,))),
}
silent = {
    "nothing was measured": Profile(),
    "all of it is compiled": compiled_with(CompileReport(seconds=60.0, graphs=2)),
    "torch counts a graph break among what it gave up": compiled_with(
        CompileReport(seconds=60.0, graphs=2, graph_breaks=(_LOOP,), fallbacks=(_LOOP,))
    ),
    "only graph breaks": compiled_with(CompileReport(seconds=60.0, graphs=2, graph_breaks=(_LOOP,))),
}
