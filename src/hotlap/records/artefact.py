"""The proof that is deployed with a model."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.comparisons import SpeedComparison
from hotlap.records.quality import OutputQuality, Quality
from hotlap.records.workload import Plan


class ArtefactProof(Record, frozen=True, kw_only=True):
    """What is known about a deployed model, from the study that chose it and from loading its files again.

    ``quality`` compares the plan with the model in float32, and ``speed`` with the unmodified model in eager mode.
    ``outputs`` compare the model that a fresh process loaded from the files, without hotlap, with the plan for
    ``inputs`` of the user's; each relative error may be ``error_limit`` at most. ``speed_of_files`` is the speed of the
    loaded model as a multiple of the plan's, from launches that took turns (None: not measured, for the reason in
    ``speed_remark``), and ``load_seconds`` and ``call_seconds`` (the median) are those of the fresh process,
    and ``resting_bytes`` is what it held of the host's memory before its first call. ``size_bytes`` is that of all
    files.
    """

    study: str
    target: str
    plan: Plan
    machine: str
    library_versions: tuple[tuple[str, str], ...] = ()
    hotlap_version: str = ""
    form: str = ""
    quality: Quality | None = None
    speed: SpeedComparison | None = None
    inputs: int = 0
    outputs: tuple[OutputQuality, ...] = ()
    error_limit: float = 0.0
    load_seconds: float = 0.0
    call_seconds: float = 0.0
    size_bytes: int = 0
    resting_bytes: int = 0
    speed_of_files: SpeedComparison | None = None
    speed_remark: str = ""
