"""Compare the outputs of a candidate with those of the model in float32.

The comparison is only meaningful for trained weights: rounding that changes the answers of a trained model may not
change those of random weights. So no quality is claimed for a model whose weights were just initialised, unless its
outputs are bitwise identical.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hotlap.files import open_regular
from hotlap.measure.share import share_with_interval
from hotlap.measure.tokens import compared_tokens, difference_words
from hotlap.records import OutputQuality, Proof, QualityVerdict, ScoreQuality, TaskQuality
from hotlap.wording import share

_UNIT_TOLERANCE = 1e-2
_FEWEST_VECTORS = 3
_LARGEST_FILE_BYTES = 2**31
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class Unreadable(Exception):
    """A file of outputs that cannot be compared; the message gives the reason."""


def outputs_of(path: str) -> Mapping[str, Any]:
    """Read the arrays that a child wrote. Raises :class:`Unreadable`; nothing is ever unpickled."""
    import numpy

    try:
        with open_regular(Path(path), _LARGEST_FILE_BYTES) as file, numpy.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        raise Unreadable(f"The outputs in {path} cannot be read: {error}") from error


def random_share(one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """The share of the weights that differ between two seeds; None if the two models have different weights."""
    first, second = one.get("weights"), other.get("weights")
    if first is None or second is None or first.shape != second.shape or not len(first):
        return None
    sizes, differs = first[:, 1], first[:, 0] != second[:, 0]
    return float(sizes[differs].sum() / sizes.sum()) if sizes.sum() else None


def compared_outputs(
    reference: Mapping[str, Any], candidate: Mapping[str, Any], *, first: int = 0
) -> tuple[OutputQuality, ...] | str:
    """Compare each tensor that the model returns, or return a sentence if the two do not return the same tensors.

    Inputs before number ``first`` do not count.
    """
    ours, theirs = _by_name(reference, first), _by_name(candidate, first)
    if "prompts" in reference and "prompts" in candidate and list(ours) == list(theirs) == ["output"]:
        return (compared_tokens(reference, candidate, first=first),)
    if list(ours) != list(theirs):
        return f"It returns {_listed(theirs)} instead of {_listed(ours)}."
    for name, rows in ours.items():
        shapes = [it.shape for it in rows], [it.shape for it in theirs[name]]
        if shapes[0] != shapes[1]:
            return f"Its {name} has different shapes than the model's."
    alone = len(ours) == 1
    return tuple(_compared(name, rows, theirs[name], alone) for name, rows in ours.items())


def judge_quality(
    outputs: tuple[OutputQuality, ...] | str,
    *,
    level: float,
    inputs: int,
    random_weights: float | None,
    proof: Proof,
    score: ScoreQuality | str | None = None,
) -> TaskQuality:
    """Judge the outputs: ``exact`` (bitwise identical), ``within`` the level, ``lost`` (below it) or ``not-verified``.

    Random weights leave quality ``not-verified``. The level applies to cosine and agreement, or to the user's own
    metric, where there is a ``score``; a sentence in its place says that the candidate has none.
    """
    compared = () if isinstance(outputs, str) else outputs

    def verdict(kind: QualityVerdict, text: str) -> TaskQuality:
        return TaskQuality(
            verdict=kind,
            proof=proof,
            text=text,
            level=level,
            inputs=inputs,
            outputs=compared,
            random_share=random_weights,
            score=None if isinstance(score, str) else score,
        )

    if isinstance(outputs, str):
        return verdict("lost", outputs)
    broken = next((it for it in outputs if not it.finite), None)
    if broken is not None:
        return verdict("lost", f"Its {broken.name} holds NaN or infinity.")
    if not outputs:
        return verdict("not-verified", "The model returns no tensor, so there is nothing to compare.")
    # Rounding that changes no token of random weights may change those of trained ones.
    hides = bool(random_weights) and proof != "exact" and any(it.of_tokens for it in outputs)
    if all(it.worst_relative_error == 0 for it in outputs) and not hides:
        return verdict("exact", _same(outputs, inputs))
    if isinstance(score, str):
        return verdict("lost", score)
    worst = min(outputs, key=lambda it: _quality(it))
    said = _sentence(worst, inputs) if score is None else f"{_of_score(score)} {_sentence(worst, inputs)}"
    if (_quality(worst) if score is None else score.kept.value) < level:
        return verdict("lost", f"{said} That is below the level of {level:g}.")
    if random_weights:
        drawn = "The model's weights were" if random_weights == 1 else f"{share(random_weights)} of the weights were"
        return verdict("not-verified", f"{drawn} drawn at random and not loaded, so no quality is claimed.")
    unknown = " Whether the weights were loaded could not be checked." if random_weights is None else ""
    return verdict("within", f"{said}{unknown}")


def _by_name(archive: Mapping[str, Any], first: int) -> dict[str, list[Any]]:
    """The arrays of each tensor, in order of the inputs."""
    found: dict[str, list[Any]] = {}
    for key, array in archive.items():
        number, slash, name = key.partition("/")
        if slash and number.isdecimal() and int(number) >= first:
            found.setdefault(name, []).append(array)
    return found


def _compared(name: str, ours: Sequence[Any], theirs: Sequence[Any], alone: bool) -> OutputQuality:
    import numpy

    squares, errors, cosines = 0.0, 0.0, [1.0]
    worst = 0.0
    finite = True
    for own, other in zip(ours, theirs, strict=True):
        a, b = own.astype(numpy.float64).ravel(), other.astype(numpy.float64).ravel()
        same = a == b  # an infinity in both, as in a mask, is no difference
        finite = finite and bool(numpy.all(numpy.isfinite(b) | same))
        a, b = numpy.where(same & ~numpy.isfinite(a), 0.0, a), numpy.where(same & ~numpy.isfinite(b), 0.0, b)
        if not finite or not numpy.all(numpy.isfinite(a)):
            return OutputQuality(name=name, finite=False)
        square, error = float(a @ a), float((a - b) @ (a - b))
        squares, errors = squares + square, errors + error
        worst = max(worst, _relative(error, square))
        norms = math.sqrt(square * float(b @ b))
        cosines.append(min(1.0, float(a @ b) / norms) if norms else float(error == 0))
    agreed, decisions = _decisions(name, ours, theirs, alone)
    return OutputQuality(
        name=name,
        relative_error=_relative(errors, squares),
        worst_relative_error=worst,
        cosine=min(cosines),
        agreement=share_with_interval(agreed, decisions) if decisions else None,
        decisions=decisions,
    )


def _relative(error: float, square: float) -> float:
    if square:
        return math.sqrt(error / square)
    return 0.0 if error == 0 else math.inf


def _decisions(name: str, ours: Sequence[Any], theirs: Sequence[Any], alone: bool) -> tuple[int, int]:
    """How many decisions agree, and of how many.

    Logits are outputs with that name, or a single output of two dimensions whose rows are not unit vectors. For unit
    vectors, nearest neighbours are compared.
    """
    import numpy

    is_rows = alone and all(it.ndim == 2 and it.shape[-1] > 1 and it.dtype.kind == "f" for it in ours)
    if is_rows and all(numpy.allclose(numpy.linalg.norm(it, axis=1), 1, atol=_UNIT_TOLERANCE) for it in ours):
        if len({it.shape[-1] for it in ours}) > 1:
            return 0, 0
        return _neighbours(numpy.concatenate(ours), numpy.concatenate(theirs))
    if not is_rows and not name.endswith("logits"):
        return 0, 0
    pairs = [(a.argmax(axis=-1), b.argmax(axis=-1)) for a, b in zip(ours, theirs, strict=True) if a.shape[-1:] > (1,)]
    return sum(int((a == b).sum()) for a, b in pairs), sum(a.size for a, _ in pairs)


def _neighbours(ours: Any, theirs: Any) -> tuple[int, int]:
    """Whether each row's nearest other row is the same; rows shared by several inputs count once."""
    import numpy

    _, first = numpy.unique(ours, axis=0, return_index=True)
    if len(first) < _FEWEST_VECTORS:
        return 0, 0
    nearest = []
    for rows in (ours[first], theirs[first]):
        likeness = rows @ rows.T
        numpy.fill_diagonal(likeness, -math.inf)
        nearest.append(likeness.argmax(axis=1))
    return int((nearest[0] == nearest[1]).sum()), len(first)


def _quality(it: OutputQuality) -> float:
    """The figure that the level applies to: the smaller of cosine and agreement."""
    return min(it.cosine, it.agreement.value) if it.agreement is not None else it.cosine


def _same(outputs: Sequence[OutputQuality], inputs: int) -> str:
    if outputs[0].of_tokens:
        return f"All tokens are the same under greedy decoding, on {_inputs(inputs)}."
    return f"Outputs agree to the last bit on {_inputs(inputs)}."


def _sentence(it: OutputQuality, inputs: int) -> str:
    if it.of_tokens and it.agreement is not None:
        interval = f"{it.agreement.low:.3g} to {it.agreement.high:.3g}"
        said = f"Under greedy decoding {it.agreement.value:.4g} ({interval}) of {it.decisions} sequences are the same"
        where = difference_words(it.first_difference, it.decisions > inputs) if it.first_difference is not None else ""
        return f"{said}; first difference: {where}." if where else f"{said}."
    parts = [f"relative error {it.relative_error:.2g}", f"cosine {it.cosine:.6g}"]
    if it.agreement is not None:
        interval = f"{it.agreement.low:.3g} to {it.agreement.high:.3g}"
        parts.append(f"agreement {it.agreement.value:.4g} ({interval}) on {it.decisions} decisions")
    return f"{it.name}, {_inputs(inputs)}: {', '.join(parts)}."


def _of_score(it: ScoreQuality) -> str:
    """``serve:accuracy, 360 samples: 0.972 of the model's 0.975, ...``"""
    if it.samples == 1:
        return f"{it.name}, 1 score: {it.candidate.value:.4g} ({it.kept.value:.4g} of {it.reference.value:.4g})."
    interval = f"{it.kept.low:.4g} to {it.kept.high:.4g}"
    own = f"{it.candidate.value:.4g} ({it.candidate.low:.4g} to {it.candidate.high:.4g})"
    return f"{it.name}, {it.samples} samples: {own}, {it.kept.value:.4g} ({interval}) of {it.reference.value:.4g}."


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(_shown(names)) or "no tensor"


def _shown(names: Mapping[str, Any]) -> Iterator[str]:
    yield from list(names)[:4]
    if len(names) > 4:
        yield "and more"
