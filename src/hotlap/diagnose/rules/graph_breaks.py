"""The graph of torch.compile breaks inside the compiled function.

## What it is
While tracing the function, TorchDynamo found code that it cannot put into a graph: a branch on a tensor's value,
`.item()`, `print`, a call into a library. It compiled the code before and after it as separate graphs, and Python runs
in between.

## Why it is slow
Nothing is fused across the break, every piece has its own guards and launch, and tensors that cross the break are
written to memory. A branch on a tensor's value makes the host wait for the device in every step as well. CUDA graphs
(`mode="reduce-overhead"`) are broken too.

## How to see it
`TORCH_LOGS=graph_breaks python train.py` prints each with its stack; `torch.compile(model, fullgraph=True)` makes the
first an error. The number of times a break was seen counts compilations, not steps.

## What to do
Move logging and checks out of the compiled function; replace branches on values by `torch.where` or `torch.cond`; keep
numbers that the code needs as Python numbers.

## When it is fine
A break between two large pieces may have no measurable cost.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.compiled import compiled_with, in_words, reason_of, site_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count
from hotlap.records import CompileReport, Finding, GraphBreak

title = "The compiled graph breaks"
group = "compile"

MOST_FINDINGS = 5


def check(profile: Profile) -> Iterator[Finding]:
    """One finding for each place, the most frequent first."""
    places = sorted(profile.compile.graph_breaks, key=lambda it: -it.count)
    graphs = count(profile.compile.graphs, "graph")
    for number, place in enumerate(places[:MOST_FINDINGS], start=1):
        yield Finding(
            rule="graph-breaks",
            kind="hint",
            share=exactly(0.0),
            title=f"The compiled graph breaks at {in_words(place)} ({number} of {count(len(places), 'place')}).",
            evidence=(
                reason_of(place),
                f"Seen in {count(place.count, 'compilation')}; {graphs} were compiled in total.",
            ),
            remedy=_remedy(place),
            site=site_of(place, profile),
        )


def _remedy(place: GraphBreak) -> str:
    if "value of a tensor" in place.reason:
        return "Choose with `torch.where` or `torch.cond`, or take the decision outside of the compiled function."
    if "print" in place.reason or "logging" in place.reason:
        return "Move the output out of the compiled function, for example to where the loss is read."
    return (
        "Move this line out of the compiled function. `TORCH_LOGS=graph_breaks` shows the whole reason, with torch's "
        "own hints."
    )


_BRANCH = GraphBreak(reason="A branch depends on the value of a tensor.", file="/home/me/net.py", line=41, count=2)
_PRINT = GraphBreak(
    reason="Failed to trace builtin operator: Dynamo does not know how to trace builtin operator `print`",
    file="/home/me/net.py",
    line=52,
)
_LIBRARY = GraphBreak(reason="Unsupported", file="/usr/lib/python3/site-packages/library/layer.py", line=7)

fires = {
    "a branch on a tensor": compiled_with(CompileReport(seconds=12.0, graphs=4, graph_breaks=(_BRANCH,))),
    "several places, one of them in a library": compiled_with(
        CompileReport(seconds=30.0, graphs=9, graph_breaks=(_PRINT, _BRANCH, _LIBRARY))
    ),
}
silent = {
    "nothing was measured": Profile(),
    "one graph": compiled_with(CompileReport(seconds=12.0, graphs=1)),
    "only recompilations": compiled_with(
        CompileReport(seconds=12.0, graphs=2, recompiles=(GraphBreak(reason="size mismatch", file="net.py", line=3),))
    ),
}
