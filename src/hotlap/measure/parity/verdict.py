"""Turn the results of the gates into a verdict and a sentence.

What could not be shown is ``not-verified``, never passed. The sentence is "no difference found within ..."; only losses
that are bitwise equal are called identical.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hotlap.measure.parity.held_out import held_out
from hotlap.measure.parity.invariants import compare_invariants
from hotlap.measure.parity.learning import is_scaled, learning, learning_at_equal_samples
from hotlap.measure.parity.losses import INTENDED_STEPS, pair, percent
from hotlap.measure.parity.noise import furthest, noise_explains
from hotlap.measure.parity.ranks import exchanged_gradients, of_rank, on_every_rank, ranks_of
from hotlap.measure.parity.repeatability import repeatability
from hotlap.measure.parity.single_steps import single_steps
from hotlap.measure.parity.trajectory import FLOOR, WIDEST_LIMIT, exact_trajectory, limit_of, trajectory
from hotlap.records import GateResult, Parity, Proof, Quality, QualityVerdict, Run

_SEVERITY: Mapping[QualityVerdict, int] = {"exact": 0, "within": 1, "not-verified": 2, "lost": 3}


@dataclass(frozen=True, slots=True)
class RestoredSteps:
    """Runs whose single steps started from where those of ``kept`` did, the unmodified script: with nudged initial
    weights (``unmodified``), and with the lever."""

    kept: Run
    unmodified: Run
    candidate: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityEvidence:
    """The runs behind a verdict; all have the same seed, and none is timed.

    ``baseline_again`` is the baseline once more; without it ``repeated`` are two other runs of the unmodified script,
    which show whether it is repeatable (G1) and do not widen the limit of G3. ``nudged`` are runs of the baseline with
    its initial weights moved by one unit in the last place, ``reference`` is the baseline in float64 (its first step is
    enough), ``reseeded`` the baseline with other random numbers for what cannot be aligned (augmentation of a stream),
    ``rounded`` the baseline with its initial weights rounded to a lever's lower precision (its first step is enough).
    ``seeds`` are (baseline, candidate) pairs of runs, each pair with a seed of its own, for levers that change what is
    learned. ``changes_precision`` chooses the rule of G2; ``allowed`` are the fields of ``Invariants`` that the lever
    declares to change; ``noisy`` says that other runs of the script show noise of its own, which only an exact lever
    needs to know. ``samples_factor`` is how many times as many samples a step of the candidate has: then learning is
    compared at equal samples. ``changes_evaluation`` says that the lever computes evaluations otherwise: then held-out
    losses are compared too. ``restored`` is there where rounding alone moves losses too much (G5).
    """

    baseline: Run
    candidate: Run
    proof: Proof
    baseline_again: Run | None = None
    repeated: tuple[Run, Run] | None = None
    nudged: tuple[Run, ...] = ()
    reference: Run | None = None
    reseeded: Run | None = None
    rounded: Run | None = None
    seeds: tuple[tuple[Run, Run], ...] = ()
    changes_precision: bool = False
    allowed: frozenset[str] = frozenset()
    noisy: bool = False
    samples_factor: float = 1.0
    changes_evaluation: bool = False
    restored: RestoredSteps | None = None


def judge(evidence: ParityEvidence) -> Parity:
    """Evaluate the gates that the kind of proof requires.

    ``exact`` needs G0 and losses equal to the last bit, or within three times the baseline's own difference when that
    is not zero, and never less than 0.1 % where the script is noisy (the verdict is then ``within``). ``rounding``
    needs G0, a repeatable baseline (G1) and G3, or G5 where G3 stayed open for rounding; G2 where the gradients of the
    first step were captured. ``behaviour``
    needs G0 and G4. A gate that fails means ``lost``; one that is needed and stayed open means ``not-verified``.

    Raises :class:`ValueError` without two runs of the unmodified script.
    """
    gates = tuple(_gates(evidence))
    verdict = _verdict(evidence, gates)
    steps = _compared_steps(evidence, gates)
    text = _sentence(verdict, evidence.proof, gates, steps)
    return Parity(verdict=verdict, proof=evidence.proof, steps=steps, gates=gates, text=text)


def _compared_steps(evidence: ParityEvidence, gates: Sequence[GateResult]) -> int:
    if evidence.restored is not None and any(it.gate == "G5" and it.passed for it in gates):
        return len(evidence.restored.candidate.restored_steps)
    return pair(evidence.baseline, evidence.candidate).steps


def judge_exact(replicates: Sequence[Sequence[Run]]) -> Parity:
    """Judge an exact lever by replicates of three runs: the baseline, its repeat and the candidate.

    The baseline's own difference is taken over all replicates; the least favourable replicate decides. Raises
    :class:`ValueError` without a replicate.
    """
    baselines = [run for it in replicates for run in it[:2]]
    noisy = noise_explains(baselines, [it[2] for it in replicates])
    verdicts = [
        judge(
            ParityEvidence(
                baseline=baseline,
                # The replicate's own repeat comes first: if none differs it is chosen, never the baseline itself.
                baseline_again=furthest(baseline, [again, *baselines]),
                candidate=candidate,
                proof="exact",
                noisy=noisy,
            )
        )
        for baseline, again, candidate in replicates
    ]
    return max(verdicts, key=lambda it: _SEVERITY[it.verdict])


def _gates(evidence: ParityEvidence) -> Iterable[GateResult]:
    baseline, candidate = evidence.baseline, evidence.candidate
    if evidence.samples_factor != 1 and not is_scaled(baseline, candidate, evidence.samples_factor):
        yield GateResult(gate="G0", passed=False, text="The script's batches stayed as they were.")
        return
    yield compare_invariants(baseline.invariants, candidate.invariants, allowed=evidence.allowed)
    yield repeatability(*_own_pair(evidence))
    if evidence.changes_evaluation:
        yield held_out(baseline, candidate, evidence.baseline_again)
    if evidence.proof == "behaviour" and evidence.samples_factor != 1:
        yield learning_at_equal_samples(evidence.seeds, evidence.samples_factor)
        return
    if evidence.proof == "behaviour":
        yield learning(evidence.seeds)
        return
    if evidence.proof == "exact":
        yield on_every_rank(
            ranks_of(baseline, candidate),
            lambda rank: exact_trajectory(
                of_rank(baseline, rank),
                of_rank(candidate, rank),
                again=of_rank(_own_pair(evidence)[1], rank),
                noisy=evidence.noisy,
            ),
        )
        return
    from hotlap.measure.parity.first_step import first_step  # imports numpy, which only this gate needs

    yield first_step(
        baseline,
        candidate,
        changes_precision=evidence.changes_precision,
        reference=evidence.reference,
        rounded=evidence.rounded,
        nudged=evidence.nudged,
        amplifies=_amplifies(evidence),
    )
    differing = exchanged_gradients(baseline, candidate)
    if differing is not None:
        yield differing
    yield on_every_rank(ranks_of(baseline, candidate), lambda rank: _trajectory_of(evidence, rank))
    if evidence.restored is not None:
        runs = evidence.restored
        yield single_steps(
            runs.kept, runs.unmodified, runs.candidate, changes_precision=evidence.changes_precision
        )


def _trajectory_of(evidence: ParityEvidence, rank: int) -> GateResult:
    baseline, candidate = of_rank(evidence.baseline, rank), of_rank(evidence.candidate, rank)
    again, reseeded, *nudged = _unmodified(evidence, rank)
    return trajectory(
        baseline, candidate, again=again, nudged=[it for it in nudged if it is not None], reseeded=reseeded
    )


def _amplifies(evidence: ParityEvidence) -> bool:
    """Whether runs of the unmodified script, some with nudged weights, move its losses by more than usual."""
    ranks = range(ranks_of(evidence.baseline, evidence.candidate))
    limits = (limit_of(of_rank(evidence.baseline, it), *_unmodified(evidence, it)) for it in ranks)
    return bool(evidence.nudged) and max(limits) > FLOOR


def _unmodified(evidence: ParityEvidence, rank: int) -> list[Run | None]:
    """The other runs of the unmodified script with the losses of this rank: its repeat, the one with other random
    numbers, and those with nudged weights."""
    runs = (evidence.baseline_again, evidence.reseeded, *evidence.nudged)
    return [of_rank(it, rank) if it is not None else None for it in runs]


def _own_pair(evidence: ParityEvidence) -> tuple[Run, Run]:
    """Two runs of the unmodified script with the same seed."""
    if evidence.baseline_again is not None:
        return evidence.baseline, evidence.baseline_again
    if evidence.repeated is None:
        raise ValueError("A proof needs two runs of the unmodified script.")
    return evidence.repeated


def needs_more_runs(parity: Parity) -> bool:
    """Whether more runs of the baseline, which show what rounding alone does to losses and gradients, might show that
    the results are the same."""
    others = (it for it in parity.gates if it.gate not in {"G1", "G3"} and not _is_too_large(it))
    return parity.verdict not in {"exact", "within"} and all(it.passed is not False for it in others)


def needs_single_steps(parity: Parity) -> bool:
    """Whether all that is open is the trajectory, since rounding alone moves the script's losses too much."""
    if parity.proof != "rounding" or parity.verdict != "not-verified":
        return False
    lacking = _lacking(parity.proof, parity.gates)
    return lacking is not None and lacking.gate == "G3" and (lacking.limit or 0.0) > WIDEST_LIMIT


def needs_more_nudges(parity: Parity) -> bool:
    """Whether only the size of a difference speaks against a change of rounding, of the losses (G3) or of the first
    gradient (G2).

    One nudge is a single draw of how far rounding moves them. In a script that amplifies it, a healthy lever may move
    the losses more than three times as far by chance; other nudges show whether rounding does too.
    """
    failed = [it for it in parity.gates if it.passed is False]
    return parity.proof == "rounding" and bool(failed) and all(map(_is_too_large, failed))


def _is_too_large(gate: GateResult) -> bool:
    """Whether losses or gradients differ by more than the gate's limit."""
    if gate.gate == "G3":
        return gate.passed is False and gate.found is not None
    of_errors = (gate.limit or 0.0) > 1  # in times the baseline's; cosines and the change of a first loss are below
    return gate.gate == "G2" and gate.passed is False and of_errors and (gate.found or 0.0) > (gate.limit or math.inf)


def is_open_for_every_lever(quality: Quality) -> bool:
    """Whether a proof stayed open because of the script: no other lever that rounds can be verified either.

    So it is where the baseline does not repeat itself or its losses could not be compared. Where its noise is too large
    for a lever that differs, one that differs less may still be verified.
    """
    if not isinstance(quality, Parity) or quality.verdict != "not-verified":
        return False
    lacking = _lacking(quality.proof, quality.gates)
    return lacking is not None and (lacking.gate == "G1" or lacking.found is None)


def _verdict(evidence: ParityEvidence, gates: tuple[GateResult, ...]) -> QualityVerdict:
    if _failed(gates) is not None:
        return "lost"
    if _lacking(evidence.proof, gates) is not None:
        return "not-verified"
    if evidence.proof == "exact" and _equal(evidence.baseline, evidence.candidate):
        return "exact"
    return "within"


def _equal(baseline: Run, candidate: Run) -> bool:
    ranks = range(ranks_of(baseline, candidate))
    return all(pair(of_rank(baseline, it), of_rank(candidate, it)).equal for it in ranks)


def _failed(gates: tuple[GateResult, ...]) -> GateResult | None:
    """The first gate that failed, except G1: an unrepeatable baseline is no difference of the candidate."""
    return next((it for it in gates if it.passed is False and it.gate != "G1"), None)


def _lacking(proof: Proof, gates: tuple[GateResult, ...]) -> GateResult | None:
    """The first required gate that stayed open.

    The first step (G2) only supplements the trajectory (G3). The baseline compared with itself (G1) is not required
    with paired seeds, which have a spread of their own (G4), nor if losses are bitwise identical.
    """
    optional = {"G2"}
    if any(it.gate == "G5" and it.passed for it in gates):
        optional.add("G3")
    if proof == "behaviour" or (proof == "exact" and gates[-1].found == 0):
        optional.add("G1")
    return next((it for it in gates if it.gate not in optional and it.passed is not True), None)


def _sentence(verdict: QualityVerdict, proof: Proof, gates: tuple[GateResult, ...], steps: int) -> str:
    if verdict == "lost":
        failed = _failed(gates)
        return f"Training no longer produces the same results: {_lowered(failed.text)}" if failed else ""
    if verdict == "not-verified":
        lacking = _lacking(proof, gates)
        besides = f" {gates[-1].text}" if gates[-1].gate == "G5" else ""
        return f"Not verified: {_lowered(lacking.text)}{besides}" if lacking else ""
    last = gates[-1]
    if last.gate == "G5":
        why = next(it.text for it in gates if it.gate == "G3")
        return f"No difference found within {percent(last.limit or 0.0)} in {last.text} {why}"
    if verdict == "exact":
        text = last.text
    elif last.gate == "G4":
        text = f"No difference found within the spread of seeds. {last.text}"
    else:
        text = (
            f"No difference found within {percent(last.limit or 0.0)} over {steps} steps "
            f"(largest: {percent(last.found or 0.0)})."
        )
    return text + _short(steps) if last.gate == "G3" else text


def _short(steps: int) -> str:
    if steps >= INTENDED_STEPS:
        return ""
    return f" Checked over {steps} steps; {INTENDED_STEPS} are recommended."


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
