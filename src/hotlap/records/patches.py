"""A plan as a diff of the source, and its proof."""

from __future__ import annotations

import importlib

from hotlap.records.base import Record
from hotlap.records.comparisons import SpeedComparison
from hotlap.records.quality import Quality
from hotlap.records.workload import Setting


class LeftOut(Record, frozen=True, kw_only=True):
    """A lever of the plan that is not in the patch, and why."""

    setting: Setting
    reason: str


class PatchedFile(Record, frozen=True, kw_only=True):
    """A file before and after, by its absolute path; ``sha256`` is the digest of its bytes before."""

    path: str
    before: str
    after: str
    sha256: str


class PatchProof(Record, frozen=True, kw_only=True):
    """The patched copy (with no plan) against the original with the same levers installed from outside.

    ``numbers`` compares what training computes; ``speed`` above 1 means that the patched copy is faster. ``refusal`` is
    why the patch may not be used (empty: it may); ``text`` says what was found. ``delta`` is the smallest slowdown that
    counted, ``steps`` how many steps had to be compared, ``machine`` where (empty: unknown) and ``python`` with which
    interpreter (empty: the study's): a request for no more there needs no new proof.
    """

    text: str
    delta: float = 0.0
    steps: int = 0
    machine: str = ""
    python: str = ""
    refusal: str = ""
    numbers: Quality | None = None
    speed: SpeedComparison | None = None


class Patch(Record, frozen=True, kw_only=True):
    """The levers of a study as a change of its source: those that are in it, those that are not, and the files."""

    study: str = ""
    directory: str
    written: tuple[Setting, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    files: tuple[PatchedFile, ...] = ()
    remarks: tuple[str, ...] = ()
    proof: PatchProof | None = None

    @property
    def diff(self) -> str:
        """The unified diff that ``hotlap patch`` prints, with its header; ``git apply`` accepts it. It is rendered
        elsewhere, on demand."""
        rendered: str = importlib.import_module("hotlap.render.patch").patch_text(self)
        return rendered
