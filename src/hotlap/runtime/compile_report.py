"""What torch.compile did in this process, whether the script or a lever called it: its seconds, its graph breaks, its
recompilations, and the places that run eagerly although compiling was requested.

torch keeps all of this by itself (``torch._dynamo.utils``), so nothing is patched and nothing costs time while training
runs. These are internals: what a version of torch lacks is left empty. Developed against torch 2.13.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from hotlap.records import CompileReport, GraphBreak

MOST_PLACES = 32
LONGEST_REASON = 300
REMEMBERED_COMPILATIONS = 4096  # torch's own limit is 64

_OWN_FOLDERS = tuple(str(Path(__file__).parents[1] / it) for it in ("runtime", "levers"))

# Dynamo's name for a branch whose condition is a tensor, and what it means.
_BRANCH = "generic_jump"
_BRANCH_TEXT = "A branch depends on the value of a tensor."


def start(torch: ModuleType) -> None:
    """Let torch keep the records of more compilations than by default. May be called often; does nothing before
    ``torch._dynamo`` was imported (which the first optimizer does)."""
    utils = _utils()
    if utils is not None and hasattr(utils, "set_compilation_metrics_limit"):
        utils.set_compilation_metrics_limit(REMEMBERED_COMPILATIONS)


def collect(torch: ModuleType, forward: CodeType | None = None) -> CompileReport:
    """Everything so far; empty when nothing was compiled. ``forward`` is that of the script's only model: what Dynamo
    begins with is then hotlap's wrapper around it, which means nothing to users."""
    utils = _utils()
    if utils is None:
        return CompileReport()
    compilations = tuple(utils.get_compilation_metrics())
    return CompileReport(
        seconds=float(utils.calculate_time_spent().get("total_wall_time", 0.0)),
        graphs=int(utils.counters["stats"]["unique_graphs"]),
        loaded=int(utils.counters["inductor"]["fxgraph_cache_hit"]),
        graph_breaks=_counted(_graph_breaks(utils)),
        recompiles=_counted(_recompilations(compilations, forward)),
        fallbacks=_counted(_fallbacks(compilations, forward)),
    )


def _utils() -> Any:
    """Dynamo's records, if Dynamo is imported already: importing it takes seconds."""
    return sys.modules.get("torch._dynamo.utils")


def _graph_breaks(utils: Any) -> Iterator[GraphBreak]:
    for broken in getattr(utils, "graph_break_reasons", ()):
        if not broken.graph_break:
            continue
        place = broken.user_stack[-1] if broken.user_stack else None
        yield GraphBreak(
            reason=_sentence(str(broken.reason)),
            file=place.filename if place else "",
            line=(place.lineno or 0) if place else 0,
        )


def _recompilations(compilations: tuple[Any, ...], forward: CodeType | None) -> Iterator[GraphBreak]:
    for compilation in compilations:
        reason = getattr(compilation, "recompile_reason", None)
        if reason and not compilation.fail_type:
            file, line = _function(compilation, forward)
            yield GraphBreak(reason=_guard(reason), file=file, line=line)


def _fallbacks(compilations: tuple[Any, ...], forward: CodeType | None) -> Iterator[GraphBreak]:
    """Frames that Dynamo gave up, by its own metrics, and CUDA graphs that Inductor left out."""
    for compilation in compilations:
        if compilation.fail_type:
            file, line = _function(compilation, forward)
            yield GraphBreak(
                reason=_sentence(compilation.fail_reason or compilation.fail_type),
                file=compilation.fail_user_frame_filename or file,
                line=compilation.fail_user_frame_lineno or line,
            )
        skipped = getattr(compilation, "cudagraph_skip_reason", None)
        if skipped:
            yield GraphBreak(reason=f"No CUDA graph: {_sentence(skipped)}")


def _function(compilation: Any, forward: CodeType | None) -> tuple[str, int]:
    """The function that was compiled, with its first line."""
    file, line = compilation.co_filename or "", compilation.co_firstlineno or 0
    if not file.startswith(_OWN_FOLDERS):
        return file, line
    return (forward.co_filename, forward.co_firstlineno) if forward is not None else ("", 0)


def _counted(places: Iterator[GraphBreak]) -> tuple[GraphBreak, ...]:
    """Equal places as one with a count, the most frequent first, at most ``MOST_PLACES``."""
    counts = Counter(places)
    return tuple(
        GraphBreak(reason=place.reason, file=place.file, line=place.line, count=count)
        for place, count in counts.most_common(MOST_PLACES)
    )


def _sentence(reason: str) -> str:
    """Dynamo's first line and its explanation, without hints and links."""
    if reason.startswith(_BRANCH):
        return _BRANCH_TEXT
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if not lines:
        return "torch gave no reason."
    explained = [line.removeprefix("Explanation: ") for line in lines[1:] if line.startswith("Explanation: ")]
    return ": ".join([lines[0], *explained[:1]])[:LONGEST_REASON]


def _guard(reason: str) -> str:
    """The guard that failed, without the source line that torch adds behind ``#``."""
    first = reason.splitlines()[0].partition("#")[0].strip()
    identifier, colon, guard = first.partition(": ")
    return (guard if colon and identifier.replace("/", "").isdigit() else first)[:LONGEST_REASON]


def anything_compiled(torch: Any, *roots: Any) -> bool:
    """Whether the script has compiled anything so far, or one of these models' modules will be."""
    if collect(torch).graphs:
        return True
    modules = (module for root in roots for module in root.modules())
    return any(hasattr(it, "_orig_mod") or getattr(it, "_compiled_call_impl", None) for it in modules)


def is_compiled(module: Any) -> bool:
    """Whether the script compiled this very module, in one of the ways that torch has."""
    if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    return hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
