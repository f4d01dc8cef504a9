"""Find the plan file that a study wrote."""

from __future__ import annotations

import importlib
from pathlib import Path

from hotlap import plan
from hotlap.cli.arguments import Parser
from hotlap.errors import PlanError
from hotlap.records import Study

_WRITERS = ("tune", "demo", "lab", "infer")
"""The commands that write a plan without being told where."""


def plan_of(study: Study, written: Path | None = None) -> str:
    """Return the path of the study's plan, as one would type it where the study began; empty if there is none.

    That is ``written``, the file that this command wrote, else the usual file of a command if it names this study.
    """
    if written is not None:
        return str(written)
    folders = Path(), Path(study.workload.directory)
    return next((str(it) for it in _usual_files() for folder in folders if _is_of(study, folder / it)), "")


def _usual_files() -> list[Path]:
    parsers: list[Parser] = [importlib.import_module(f"hotlap.cli.{it}").parser() for it in _WRITERS]
    found = (it.get_default("plan_out") for it in parsers)
    return list(dict.fromkeys(it for it in found if isinstance(it, Path)))


def _is_of(study: Study, path: Path) -> bool:
    """Whether that file holds the study's plan: it names the study, or, written by hand, has the same settings."""
    try:
        named = plan.read_head(path).get("study")
        return named == study.identifier if named else plan.read(path) == study.plan
    except PlanError:
        return False
