"""What the file of a kind of study must contain, and how it is found.

One file is one kind, named after it (:data:`hotlap.records.StudyKind`). Everything else in a report depends on the
contents of the study, never on its kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache

from hotlap.history import Entry
from hotlap.records import Study, StudyKind
from hotlap.render.blocks import Fact, Tone
from hotlap.render.brief import Row


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
    """The contents of a kind's file; members with a default are optional.

    ``headline`` is the answer of a study whose script did not fail, ``what_was_done`` explains how it was obtained, for
    readers without knowledge of hotlap, and ``result`` is the row of ``hotlap history``. ``facts`` are additional
    figures for the first screen of a page, and ``summary_rows`` additional rows of the summary on a terminal.
    ``next_commands`` are commands to run next, with their purpose; the path is that of the plan, or empty. ``sides``
    names the baseline and the candidate of the study's comparison, and ``shows_gain`` says whether its speedup is the
    gain of a plan, ``goes_into_source`` whether ``hotlap patch`` can write that plan into the script, and
    ``counts_calls`` that a step is a call of a model.
    """

    headline: Callable[[Study], Headline]
    what_was_done: Callable[[Study], str]
    result: Callable[[Entry], str]
    facts: Callable[[Study], Iterable[Fact]] = _nothing
    summary_rows: Callable[[Study], Iterable[Row]] = _nothing
    next_commands: Callable[[Study, str], Iterable[tuple[str, str]]] = _nothing
    sides: Callable[[Study], tuple[str, str]] = _before_and_after
    shows_gain: bool = False
    goes_into_source: bool = False
    counts_calls: bool = False


@cache
def presenter_of(kind: StudyKind) -> Presenter:
    """The file of a kind of study."""
    module = importlib.import_module(f"hotlap.render.kinds.{kind}")
    return Presenter(**{it.name: getattr(module, it.name) for it in fields(Presenter) if hasattr(module, it.name)})
