"""What was written of a model, and how it was examined, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap import plan
from hotlap.records import ArtefactProof, SpeedComparison
from hotlap.render import text
from hotlap.render.quality import quality_phrase


def artefact_lines(proof: ArtefactProof, folder: str) -> Iterator[str]:
    """The form, whether the files are right, and what the study found about the form."""
    settings = text.listed([plan.describe(it) for it in proof.plan.settings])
    yield f"Wrote {folder}: {settings}, {text.size(proof.size_bytes)}."
    yield (
        f"Outputs: a fresh process without hotlap loaded the files in {text.duration(proof.load_seconds)}; for "
        f"{text.count(proof.inputs, 'input')} they return what the study's form returned, {_agreement(proof)}."
    )
    if proof.resting_bytes:
        yield f"Memory: that process held {text.size(proof.resting_bytes)} of the host's memory before its first call."
    if proof.speed_of_files is not None:
        yield f"Speed: {_interval(proof.speed_of_files)} compared with the study's form."
    else:
        yield f"Speed: {text.duration(proof.call_seconds)} per call (median), not compared with the study's form."
        if proof.speed_remark:
            yield text.sentence(proof.speed_remark)
    if proof.speed is not None:
        phrase = quality_phrase(proof.quality)
        yield f"The study: {_interval(proof.speed)} compared with the unmodified model, {phrase}."
    yield "To use it: install requirements.txt, then `from load import load` in that folder."


def _agreement(proof: ArtefactProof) -> str:
    worst = max((it.worst_relative_error for it in proof.outputs), default=0.0)
    if worst == 0:
        return "to the last bit"
    return f"with a relative error of {worst:.1g} ({proof.error_limit:.1g} allowed)"


def _interval(found: SpeedComparison) -> str:
    it = found.speedup
    interval = f"{100 * found.confidence:g} % interval {it.low:.3f} to {it.high:.3f}"
    return f"{it.value:.3f}x ({interval}, {text.count(found.replicates, 'replicate')})"
