"""Whether results are still the same: the losses of a training, or the outputs of a model that is only called."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate
from hotlap.records.generation import TokenDifference

Proof: TypeAlias = Literal["exact", "rounding", "behaviour"]
USUAL_LEVEL: Final = 0.99
"""What cosine and agreement of a model's outputs must reach unless another level is given."""

QualityVerdict: TypeAlias = Literal["exact", "within", "lost", "not-verified"]


class Sameness(Record, frozen=True, kw_only=True):
    """What every kind of :data:`Quality` has: ``proof`` is the required one, ``text`` a sentence to show."""

    verdict: QualityVerdict
    proof: Proof
    text: str = ""

    @property
    def verified(self) -> bool:
        """Whether results were shown to be the same, within the limits of this proof."""
        return self.verdict in ("exact", "within")

    @property
    def trajectory_limit(self) -> float | None:
        """How far apart the smoothed losses may be, as a share; None where no limit for them was found."""
        return None

    @property
    def likeness(self) -> float | None:
        """The smallest cosine or agreement of all outputs; None without outputs, and where one is not finite."""
        return None

    @property
    def worst_relative_error(self) -> float:
        """The largest relative error of one output for one input; 0 without outputs."""
        return 0.0


class GateResult(Record, frozen=True, kw_only=True):
    """One parity gate: what was compared, the number found and the limit it had to keep."""

    gate: Literal["G0", "G1", "G2", "G3", "G4", "G5"]
    passed: bool | None
    found: float | None = None
    limit: float | None = None
    text: str = ""


class Parity(Sameness, frozen=True, kw_only=True, tag="parity"):
    """Whether training still produces the same results, over so many ``steps``: of a whole run, or ``single_steps``
    that started from where the baseline's did."""

    steps: int = 0
    gates: tuple[GateResult, ...] = ()

    @property
    def single_steps(self) -> bool:
        """Whether single steps show it, and not the losses of a whole run."""
        return any(it.gate == "G5" and it.passed for it in self.gates)

    @property
    def trajectory_limit(self) -> float | None:
        return next((it.limit for it in self.gates if it.gate == "G3" and it.limit and it.passed is not None), None)

    @property
    def compared(self) -> int:
        """How many steps were compared."""
        return self.steps


class OutputQuality(Record, frozen=True, kw_only=True):
    """One tensor that the model returns, of a candidate against the model in float32, over all inputs.

    ``relative_error`` is the norm of the difference as a share of the reference's norm, over all inputs together, and
    ``worst_relative_error`` that of the worst input; ``cosine`` is the smallest of one input. ``agreement`` is the
    share of ``decisions`` that are the same (None where the output holds none): of logits the largest class, of vectors
    of unit length the nearest other one. ``finite`` is false where a value is NaN, or infinite and the reference's is
    not; the figures mean nothing then. Of generated tokens a decision is a sequence, ``first_difference`` is the first
    token that differs, and there are no other figures.
    """

    name: str
    finite: bool = True
    relative_error: float = 0.0
    worst_relative_error: float = 0.0
    cosine: float = 1.0
    agreement: Estimate | None = None
    decisions: int = 0
    of_tokens: bool = False
    first_difference: TokenDifference | None = None


class ScoreQuality(Record, frozen=True, kw_only=True):
    """The user's own metric of outputs, of a candidate against the model in float32, on the same ``samples``.

    ``reference`` and ``candidate`` are the means of the scores, of which larger ones are better, and ``kept`` is the
    candidate's as a share of the reference's, with an interval over samples. An interval is empty (both ends are the
    value) where there is a single score. ``name`` is that of the user's function.
    """

    name: str
    samples: int
    reference: Estimate
    candidate: Estimate
    kept: Estimate


class TaskQuality(Sameness, frozen=True, kw_only=True, tag="task-quality"):
    """Whether a model still returns the same for so many ``inputs`` of the user's.

    ``level`` is what cosine and agreement had to reach. ``random_share`` is the share of the model's weights that
    another random seed changes: they were drawn and not loaded (None: unknown). With the user's own metric, ``score``,
    the level is the share of it that had to be kept, and cosine and agreement are not required.
    """

    level: float
    inputs: int
    outputs: tuple[OutputQuality, ...] = ()
    random_share: float | None = None
    score: ScoreQuality | None = None

    @property
    def likeness(self) -> float | None:
        if not self.outputs or not all(it.finite for it in self.outputs):
            return None
        if self.score is not None:
            return self.score.kept.value
        agreements = (it.agreement.value for it in self.outputs if it.agreement is not None)
        return min(*(it.cosine for it in self.outputs), *agreements, 1.0)

    @property
    def worst_relative_error(self) -> float:
        return max((it.worst_relative_error for it in self.outputs), default=0.0)

    @property
    def compared(self) -> int:
        """How many inputs were compared."""
        return self.inputs


Quality: TypeAlias = Parity | TaskQuality
"""What is known about the results of a plan. ``verdict`` and ``verified`` say whether it was proved."""
