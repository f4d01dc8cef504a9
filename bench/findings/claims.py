"""What findings claim, next to what curing the cause by hand saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.findings.score import Claim, Score
from bench.findings.truth import Truth

_TOLERANCE = 0.05
"""Share of the time by which machines differ from hour to hour."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a finding of a script claims, and what its cure saves."""

    script: str
    claim: Claim
    truth: Truth

    @property
    def is_borne_out(self) -> bool | None:
        """Whether a cure saves at least half of what was claimed, since few remove a cause whole; of a bound, whether
        it saves no more. None where the interval of what it saves allows both."""
        low, high = self.truth.low or 0.0, self.truth.high or 0.0
        if self.claim.is_bound:
            most = self.claim.share + _TOLERANCE
            yes, no = high <= most, low > most
        else:
            least = self.claim.share / 2 - _TOLERANCE
            yes, no = low >= least, high < least
        return yes if yes or no else None


def compared(scores: Sequence[Score], truths: Sequence[Truth]) -> list[Comparison]:
    """Every claim whose cure was timed, whatever the claim's unit: a share of the step or of the run."""
    cures: Mapping[tuple[str, str], Truth] = {
        (it.name, rule): it for it in truths if it.saved is not None and not it.trouble for rule in it.rules
    }
    return [
        Comparison(score.name, claim, cures[score.name, claim.rule])
        for score in scores
        for claim in score.claims
        if (score.name, claim.rule) in cures
    ]
