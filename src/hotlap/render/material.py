"""The input of a report. Commands read it from disk; rendering opens no file except its own templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotlap.records import Costs, Study

if TYPE_CHECKING:
    from hotlap.diagnose.profile import Profile
    from hotlap.traces.lanes import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """``profile`` is the evidence for findings, and ``lanes`` are the profiled steps; ``plan_profile`` and
    ``plan_lanes`` are the same with the plan. None if not measured or no longer stored.

    ``command`` is the command of the study, and ``seed`` the seed of its trials. ``patch`` is a unified diff, or empty.
    ``plan_path`` is the path of the plan, or empty. ``source_lines`` are the lines of source that the findings name,
    one for each, empty where it is not known; there may be none at all.
    """

    study: Study
    profile: Profile | None = None
    lanes: Lanes | None = None
    plan_profile: Profile | None = None
    plan_lanes: Lanes | None = None
    command: str = ""
    seed: int | None = None
    patch: str = ""
    costs: Costs | None = None
    plan_path: str = "hotlap.toml"
    source_lines: tuple[str, ...] = ()
