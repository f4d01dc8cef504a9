"""Everything a report is made of. Commands read it from disk; rendering opens no file but its own templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotlap.records import Costs, Study

if TYPE_CHECKING:
    from hotlap.diagnose.profile import Profile
    from hotlap.traces.lanes import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """``profile`` is what findings were made of, and ``lanes`` the profiled steps; None where it is not kept any more.

    ``command`` is how the study was made, as one would type it again, and ``seed`` the seed of its trials. ``patch`` is
    a unified diff; empty where there is none. ``plan_path`` is where the plan was written, empty where it was not.
    """

    study: Study
    profile: Profile | None = None
    lanes: Lanes | None = None
    command: str = ""
    seed: int | None = None
    patch: str = ""
    costs: Costs | None = None
    plan_path: str = "hotlap.toml"
