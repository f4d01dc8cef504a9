"""What the rules about torch.compile share: the place of a break, its reason, and a compiled run. Not a rule itself."""

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
    """``net.py:41``; the compiled model, where torch names only what stands around its call."""
    if place.file and not _is_around_the_call(place):
        return line_of(place.file, place.line)
    return "the compiled model's call" if place.file else "a place that torch does not name"


def site_of(place: GraphBreak, profile: Profile) -> CallSite | None:
    """The line, where it is one of the user's own code; else that of the model's call, if torch named that."""
    if _is_around_the_call(place):
        return site_with(profile, "model")
    if not place.file or place.file.startswith("<") or _LIBRARY_FOLDERS & set(PurePath(place.file).parts):
        return None
    return CallSite(role="model", file=place.file, line=place.line)


def _is_around_the_call(place: GraphBreak) -> bool:
    """Whether this is torch.compile's own wrapper around a model's call, or ours in a script that is watched."""
    parents = PurePath(place.file).parents
    return _OWN_FOLDER in parents or any(it.parts[-2:] == ("torch", "_dynamo") for it in parents)


def reason_of(place: GraphBreak) -> str:
    """torch's reason on one line of bounded length, as a sentence."""
    text = shortened(place.reason)
    return f"torch says: {text}" if text.endswith(".") else f"torch says: {text}."


def shortened(text: str) -> str:
    """A text of torch's on one line, without control characters, its end cut off where it is long."""
    printable = "".join(it if it.isprintable() else " " for it in text[: 4 * _LONGEST_REASON])
    line = " ".join(printable.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3].rstrip()}..."


def is_compiled(profile: Profile) -> bool:
    """Whether the script compiles a model of its own accord."""
    return any(it.compiled for it in profile.facts.models)


def compiled_with(report: CompileReport) -> Profile:
    """A run of a compiled model, for examples."""
    run = run_on(CPU, model=ModelFacts(kind="Net", parameters=1_000_000, compiled=True))
    return msgspec.structs.replace(run, compile=report)
