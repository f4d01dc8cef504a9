"""What is said differently of a study by what was asked for, and the look into the folder that finds it.

One file is one kind, named after it (:data:`hotlap.records.StudyKind`). All else that a report shows is decided by what
the study holds, never by its kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache

from hotlap.history import Entry
from hotlap.records import Study, StudyKind
from hotlap.render.blocks import Fact, Tone


@dataclass(frozen=True, slots=True)
class Headline:
    """``sentence`` in full; ``details`` are further sentences, ``output`` a script's last words, verbatim."""

    tone: Tone
    sentence: str
    details: tuple[str, ...] = ()
    output: str = ""


def _nothing(study: Study, plan_path: str = "") -> tuple[()]:
    return ()


def _before_and_after(study: Study) -> tuple[str, str]:
    return "before", "after"


@dataclass(frozen=True, slots=True)
class Presenter:
    """What a kind's file offers; it may leave out what has a default.

    ``headline`` is the answer of a study whose script did not fail, ``what_was_done`` how it came about, for a reader
    who knows nothing of hotlap, and ``result`` the row of ``hotlap history``. ``facts`` are figures of its own for the
    first screen of a page. ``next_commands`` is what to type now, with what it is for; a plan lies at the path, or
    nowhere where that is empty. ``sides`` names the baseline and the candidate of the study's comparison, and
    ``shows_gain`` says whether its speedup is what a plan gained.
    """

    headline: Callable[[Study], Headline]
    what_was_done: Callable[[Study], str]
    result: Callable[[Entry], str]
    facts: Callable[[Study], Iterable[Fact]] = _nothing
    next_commands: Callable[[Study, str], Iterable[tuple[str, str]]] = _nothing
    sides: Callable[[Study], tuple[str, str]] = _before_and_after
    shows_gain: bool = False


@cache
def presenter_of(kind: StudyKind) -> Presenter:
    """The presenter of a kind of study."""
    module = importlib.import_module(f"hotlap.render.kinds.{kind}")
    return Presenter(**{it.name: getattr(module, it.name) for it in fields(Presenter) if hasattr(module, it.name)})
