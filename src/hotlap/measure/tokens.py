"""Compare generated tokens, and the times that they took."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hotlap.measure import levels
from hotlap.measure.latency import latency_of, timed_steps
from hotlap.measure.share import share_with_interval
from hotlap.records import Estimate, GenerationTimes, OutputQuality, Replicate, TokenDifference


def generation_times(replicates: Sequence[Replicate], arm: int, *, confidence: float) -> GenerationTimes | None:
    """The tokens of an arm in all replicates; None if its steps are no calls of ``generate()``."""
    runs = [it.runs[arm] for it in replicates]
    if not runs or any(not it.steps.first_token_seconds for it in runs):
        return None
    first = [it.steps.first_token_seconds[row] for it in runs for row in timed_steps(it)]
    further = [it.steps.token_seconds[row] for it in runs for row in timed_steps(it)]
    each = levels.seconds_per_sample(replicates, (arm,), confidence=confidence)
    return GenerationTimes(
        tokens_per_second=Estimate(value=1 / each.value, low=1 / each.high, high=1 / each.low, unit="1/s")
        if each is not None and each.low > 0
        else None,
        first_token=latency_of(first, confidence),
        per_token=latency_of([it for it in further if it is not None], confidence),
    )


def compared_tokens(reference: Mapping[str, Any], candidate: Mapping[str, Any], *, first: int = 0) -> OutputQuality:
    """The share of sequences with the same tokens after their prompts, and the first difference."""
    agreed = sequences = 0
    difference: TokenDifference | None = None
    for number, prompt_length in enumerate(reference["prompts"]):
        if number < first:
            continue
        ours, theirs = (archive[f"{number}/output"][:, int(prompt_length) :] for archive in (reference, candidate))
        for row, (own, other) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=True)):
            sequences += 1
            agreed += own == other
            if own != other and difference is None:
                pairs = enumerate(itertools.zip_longest(own, other))
                position, (expected, found) = next(it for it in pairs if it[1][0] != it[1][1])
                difference = TokenDifference(
                    prompt=number + 1, row=row + 1, position=position + 1, expected=expected, found=found
                )
    return OutputQuality(
        name="tokens",
        of_tokens=True,
        worst_relative_error=0.0 if difference is None else 1.0,
        relative_error=1 - agreed / sequences if sequences else 0.0,
        agreement=share_with_interval(agreed, sequences) if sequences else None,
        decisions=sequences,
        first_difference=difference,
    )


def difference_words(it: TokenDifference, rows: bool) -> str:
    """``prompt 3, token 5: 17 instead of 42``."""
    where = f"prompt {it.prompt}, row {it.row}" if rows else f"prompt {it.prompt}"
    found, expected = ("the end" if token is None else str(token) for token in (it.found, it.expected))
    return f"{where}, token {it.position}: {found} instead of {expected}"
