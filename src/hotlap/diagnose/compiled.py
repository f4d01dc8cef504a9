"""Shared by the rules about torch.compile: the place of a graph break, its reason, and a compiled run. Not a rule
itself."""

from __future__ import annotations

from pathlib import PurePath

import msgspec

from hotlap.diagnose.examples import CPU, run_on
from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.wording import line_of
from hotlap.records import CallSite, CompileReport, GraphBreak, ModelFacts

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})
_OWN_FOLDER = PurePath(__file__).parents[1]
_LONGEST_REASON = 160


def in_words(place: GraphBreak) -> str:
    """Return ``net.py:41``, or the compiled model if torch names only its call site."""
    if place.file and not _is_around_the_call(place):
        return line_of(place.file, place.line)
    return "the compiled model's call" if place.file else "a place that torch does not name"


def site_of(place: GraphBreak, profile: Profile) -> CallSite | None:
    """Return the line if it is in the user's code; otherwise that of the model's call, if known, which leads there."""
    if _is_around_the_call(place) or _LIBRARY_FOLDERS & set(PurePath(place.file).parts):
        return site_with(profile, "model")
    if not place.file or place.file.startswith("<"):
        return None
    return CallSite(role="model", file=place.file, line=place.line)


def _is_around_the_call(place: GraphBreak) -> bool:
    """Whether this is a wrapper around a model's call: torch.compile's own, or hotlap's."""
    parents = PurePath(place.file).parents
    return _OWN_FOLDER in parents or any(it.parts[-2:] == ("torch", "_dynamo") for it in parents)


def reason_of(place: GraphBreak) -> str:
    """Return torch's reason as a sentence on one line of bounded length."""
    text = shortened(place.reason)
    return f"torch says: {text}" if text.endswith(".") else f"torch says: {text}."


def shortened(text: str) -> str:
    """Return torch's text on one line, without control characters, truncated if it is long."""
    printable = "".join(it if it.isprintable() else " " for it in text[: 4 * _LONGEST_REASON])
    line = " ".join(printable.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3].rstrip()}..."


def is_compiled(profile: Profile) -> bool:
    """Whether the script itself compiles a model."""
    return any(it.compiled for it in profile.facts.models)


def compiled_with(report: CompileReport) -> Profile:
    """Make a run of a compiled model, for examples."""
    run = run_on(CPU, model=ModelFacts(kind="Net", parameters=1_000_000, compiled=True))
    return msgspec.structs.replace(run, compile=report)
