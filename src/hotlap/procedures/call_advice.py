"""Findings about the calls of a model, from the run of the unmodified one."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import CallSite, Estimate, Finding, ModelFacts, Run

_UNKNOWN = Estimate(value=0.0, low=0.0, high=0.0)


def call_findings(run: Run) -> tuple[Finding, ...]:
    """Calls in training mode, and calls with a single sample in a script."""
    return tuple(it for it in (_in_training_mode(run), _single_samples(run)) if it is not None)


def _in_training_mode(run: Run) -> Finding | None:
    """``eval()`` was forgotten, unless training mode is meant. Nothing is changed: outputs would be others."""
    found = next((it for it in run.facts.models if it.trains), None)
    if found is None:
        return None
    before = "before its calls" if run.facts.calls_in_script else "in the function that makes it"
    return Finding(
        rule="calls-in-training-mode",
        kind="risk",
        share=_UNKNOWN,
        title=f"{found.kind} is called in training mode, in which dropout and normalisation behave otherwise.",
        evidence=(", ".join(_layers(found)),) if any(_layers(found)) else (),
        remedy=f"Call `model.eval()` {before}, unless that is meant. hotlap does not change this, since outputs would "
        "be different ones.",
        site=_site(run),
    )


def _layers(of: ModelFacts) -> Iterator[str]:
    dropped = sum(share > 0 for share in of.dropout)
    if dropped:
        yield f"{dropped} dropout {'layer' if dropped == 1 else 'layers'}"
    if of.batch_norms:
        yield f"{of.batch_norms} batch norm {'layer' if of.batch_norms == 1 else 'layers'}"


def _single_samples(run: Run) -> Finding | None:
    """A hint with the line, if a script calls its model with one sample at a time."""
    samples = run.steps.samples
    if not run.facts.calls_in_script or not samples or max(samples) > 1 or run.facts.samples_from in ("tokens", "none"):
        return None
    kind = run.facts.models[0].kind if run.facts.models else "the model"
    return Finding(
        rule="single-sample-calls",
        kind="hint",
        share=_UNKNOWN,
        title=f"Each call of {kind} computes a single sample.",
        evidence=(f"{len(samples)} calls were seen.",),
        remedy="Where several inputs are waiting, stack them and call the model once: kernels use cores and caches "
        "better with a batch. Where each answer is needed at once, batch requests in the server.",
        site=_site(run),
    )


def _site(run: Run) -> CallSite | None:
    return next((it for it in run.facts.sites if it.role == "model"), None)
