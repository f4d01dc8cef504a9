"""Advice about the calls of a model in a script, from how the script makes them."""

from __future__ import annotations

from hotlap.records import Estimate, Finding, Run


def batching_advice(run: Run) -> Finding | None:
    """A hint with the line, if a script calls its model with one sample at a time."""
    samples = run.steps.samples
    if not run.facts.calls_in_script or not samples or max(samples) > 1 or run.facts.samples_from in ("tokens", "none"):
        return None
    kind = run.facts.models[0].kind if run.facts.models else "the model"
    return Finding(
        rule="single-sample-calls",
        kind="hint",
        share=Estimate(value=0.0, low=0.0, high=0.0),
        title=f"Each call of {kind} computes a single sample.",
        evidence=(f"{len(samples)} calls were seen.",),
        remedy="Where several inputs are waiting, stack them and call the model once: kernels use cores and caches "
        "better with a batch. Where each answer is needed at once, batch requests in the server.",
        site=next((it for it in run.facts.sites if it.role == "model"), None),
    )
