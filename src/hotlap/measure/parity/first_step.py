"""G2: the loss and the gradients of the first step, from the same weights and batch, dropout off.

The error of a lever that keeps the precision, against float64, may be little more than the baseline's own. A healthy
lever that changes the precision cannot pass that rule; it must keep the direction of the gradient instead.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hotlap.files import open_regular
from hotlap.measure.parity.losses import percent
from hotlap.records import GateResult, Run

Tensor: TypeAlias = npt.NDArray[np.float64]

LOSS_TOLERANCE = 2.0**-8
"""One rounding of bfloat16; healthy first losses differed by up to 0.0023 of their value."""
WHOLE_COSINE = 0.999
TENSOR_COSINE = 0.99
TURN_RATIO = 4.0
UNDIRECTED = 0.5
ERROR_RATIO = 2.0
WIDE_ERROR_RATIO = 3.0
TINY_TENSOR = 64
NEGLIGIBLE_NORM = 1e-4
"""Below this share of the whole gradient's norm a tensor is noise around zero (a bias before a normalisation, the
attention's key bias) and has no direction of its own."""
NEGLIGIBLE_ERROR = 0.01
JUMP_OF_WHOLE = 0.05
JUMP_OF_TENSOR = 0.15
"""By so much of its norm a gradient may differ where activations cross thresholds, as a whole and in each tensor."""

_LARGEST_TENSOR_BYTES = 2**34
_HALF = frozenset({"float16", "bfloat16", "torch.float16", "torch.bfloat16"})
_PREFIX = "gradient/"
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class _Unreadable(Exception):
    """A gradient file that cannot be compared; the message gives the reason."""


@dataclass(slots=True)
class _Gradients:
    """The first step of one run; tensors are read one at a time, so that a large model fits."""

    path: str
    archive: Any
    names: dict[str, str] = field(default_factory=dict)

    def loss(self) -> float:
        return float(self._read("loss").reshape(-1)[0])

    def __getitem__(self, name: str) -> Tensor:
        return self._read(self.names[name])

    def _read(self, key: str) -> Tensor:
        array = self.archive[key]  # numpy returns bytes if a member is not an array
        numbers = isinstance(array, np.ndarray) and array.dtype.kind in "fiu"
        if not numbers or (key == "loss" and not array.size):
            raise _Unreadable(f"{key} in {self.path} is not numeric.")
        return np.asarray(array, dtype=np.float64)


def first_step(
    baseline: Run,
    candidate: Run,
    *,
    changes_precision: bool,
    reference: Run | None = None,
    rounded: Run | None = None,
    nudged: Sequence[Run] = (),
    amplifies: bool = False,
) -> GateResult:
    """Compare the first step of both runs, read from the files that ``Run.gradients_path`` names.

    ``reference`` is the baseline in float64, for levers that keep the precision; ``rounded`` is the baseline with
    initial weights rounded to the lower precision, for levers that change it. ``nudged`` are runs of the baseline with
    its initial weights changed by one ulp, which show what rounding alone does to single gradients; ``amplifies`` says
    that it moves the losses. ``passed`` is None if a file is missing or broken. The file is a numpy archive with the
    keys ``loss`` and ``gradient/<parameter name>``; nothing in it is ever unpickled.
    """
    runs = {"baseline": baseline, "candidate": candidate}
    if not changes_precision:
        if reference is None or not reference.gradients_path:
            return _open("There is no first step in float64 to compare rounding errors with.")
        runs["reference"] = reference
    elif rounded is not None and rounded.gradients_path:
        runs["rounded"] = rounded
    if not all(run.gradients_path for run in runs.values()):
        return _open("The gradients of the first step were not captured.")
    opened: dict[str, _Gradients] = {}
    try:
        for name, run in runs.items():
            opened[name] = _open_gradients(run.gradients_path)
        differing = _different_tensors(opened)
        if differing:
            return GateResult(gate="G2", passed=False, text=differing)
        if changes_precision:
            return _keeps_direction(opened["baseline"], opened["candidate"], opened.get("rounded"))
        arithmetic = _arithmetic_of(baseline)
        ours, theirs, true = (opened[it] for it in ("baseline", "candidate", "reference"))
        found = _keeps_precision(ours, theirs, true, arithmetic)
        moves_loss = _loss_error(ours.loss(), theirs.loss(), true.loss(), arithmetic).share > 1
        if found.passed or found.found is None or moves_loss:
            return found
        jumps = max((_jump(ours, it, true, arithmetic) for it in nudged), default=0.0)
        return _unless_rounding_jumps(found, jumps, _moved(ours, theirs)) if jumps or amplifies else found
    except (_Unreadable, *_UNREADABLE) as error:
        return _open(f"The gradients of the first step cannot be read: {error}")
    finally:
        for it in opened.values():
            it.archive.close()


def first_difference(paths: Sequence[str]) -> str | None:
    """The first tensor whose gradient is not the same in all of these files; empty where all are; None if they cannot
    be compared."""
    opened: list[_Gradients] = []
    try:
        opened.extend(_open_gradients(it) for it in paths)
        names = opened[0].names
        if any(it.names.keys() != names.keys() for it in opened):
            return None
        first = opened[0]
        differing = (name for name in names for it in opened[1:] if not np.array_equal(first[name], it[name]))
        return next(differing, "")
    except (_Unreadable, *_UNREADABLE):
        return None
    finally:
        for it in opened:
            it.archive.close()


# ---------------------------------------------------------------------------------------------
# The two rules
# ---------------------------------------------------------------------------------------------


def _keeps_direction(baseline: _Gradients, candidate: _Gradients, rounded: _Gradients | None) -> GateResult:
    """The rule for levers that change the precision: the loss within one rounding, and the gradient's direction.

    The cosine must be 0.999 for the whole gradient and 0.99 for each tensor; or, if rounding only the initial weights
    already turns it by more, the turn (1 - cosine) may be four times as large as with rounded weights.

    How far rounding turns a gradient depends on the network: the cosine of a healthy bf16 first step was 0.99999 in a
    network of GELUs, 0.999 with ReLUs, 0.93 in a ResNet-18 and 0.14 in a ResNet-50 at its initialisation. The turn was
    always 1.2 to 2.1 times that of rounded weights, where the latter was not negligible.
    """
    ours, theirs = baseline.loss(), candidate.loss()
    loss_error = abs(theirs - ours) / max(abs(ours), _SMALLEST)
    if not loss_error <= LOSS_TOLERANCE:
        return _failed(loss_error, LOSS_TOLERANCE, f"The loss of the first step changes by {percent(loss_error)}.")
    turns = _turns(baseline, candidate)
    if isinstance(turns, str):
        return _failed(None, None, turns)
    expected = _turns(baseline, rounded) if rounded is not None else _Turns(0.0, {})
    if isinstance(expected, str):
        expected = _Turns(0.0, {})
    limit = max(1 - WHOLE_COSINE, TURN_RATIO * expected.whole)
    if limit >= UNDIRECTED:
        text = "Rounding only the initial weights already turns the first gradient too far to judge its direction."
        return GateResult(gate="G2", passed=None, found=1 - turns.whole, limit=1 - limit, text=text)
    if not turns.whole <= limit:
        text = f"The gradient of the first step turns: its cosine is {1 - turns.whole:.5f}."
        return _failed(1 - turns.whole, 1 - limit, text)
    for name, turn in turns.each.items():
        allowed = max(1 - TENSOR_COSINE, TURN_RATIO * expected.each.get(name, 0.0))
        if not turn <= allowed:
            return _failed(1 - turn, 1 - allowed, f"The gradient of {name} turns: its cosine is {1 - turn:.4f}.")
    text = f"The first loss agrees within {percent(loss_error)}; its gradient keeps a cosine of {1 - turns.whole:.6f}."
    return GateResult(gate="G2", passed=True, found=1 - turns.whole, limit=1 - limit, text=text)


@dataclass(frozen=True, slots=True)
class _Turns:
    """How far a gradient turned, as 1 - cosine: as a whole, and for each tensor that has a direction."""

    whole: float
    each: dict[str, float]


def _turns(baseline: _Gradients, other: _Gradients) -> _Turns | str:
    """The turns of all tensors, or a sentence with the reason why there are none."""
    norm = math.sqrt(math.fsum(_square(baseline[name]) for name in baseline.names))
    dots, squares, each = [], [], {}
    for name in baseline.names:
        one, its = baseline[name], other[name]
        if not np.isfinite(its).all():
            return f"The gradient of {name} is not finite in the first step."
        dot, square, other_square = _dot(one, its), _square(one), _square(its)
        dots.append(dot)
        squares.append(other_square)
        if math.sqrt(square) > NEGLIGIBLE_NORM * norm:
            each[name] = 1 - _cosine(dot, square, other_square)
        elif math.sqrt(_square(its - one)) > NEGLIGIBLE_ERROR * norm:
            return f"The gradient of {name} was close to zero and no longer is."
    return _Turns(1 - _cosine(math.fsum(dots), norm * norm, math.fsum(squares)), each)


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """The relative error of one rounding, how many of these a sum in another order and a loss may have anyway, and how
    many times the baseline's error is allowed."""

    rounding: float
    in_sums: int
    in_loss: int
    ratio: float


_FLOAT32 = _Arithmetic(rounding=float(np.finfo(np.float32).eps), in_sums=64, in_loss=16, ratio=ERROR_RATIO)
_HALF_PRECISION = _Arithmetic(rounding=float(np.finfo(np.float16).eps), in_sums=4, in_loss=16, ratio=WIDE_ERROR_RATIO)
# Operands are rounded to ten bits of mantissa, sums are float32. Which products are computed so, the library chooses.
_TF32 = _Arithmetic(rounding=2.0**-11, in_sums=4, in_loss=1, ratio=ERROR_RATIO)


def _keeps_precision(
    baseline: _Gradients, candidate: _Gradients, reference: _Gradients, arithmetic: _Arithmetic
) -> GateResult:
    """The rule for levers that keep the precision: errors against float64 at most m times the baseline's own.

    m is 2, or 3 in half precision and for tiny tensors. The baseline's error counts as at least one rounding of the
    tensor's share of the whole gradient, as at least the rounding error of thousands of terms summed in another order,
    and in a tiny tensor as at least the relative error of the whole: smaller errors of the baseline are luck. (In a
    layer of 320 weights of a small convolutional network the errors of healthy channels_last and compiled runs were 3.8
    and 2.3 times the baseline's, all below 1e-5 of the gradient; torch's own accuracy check of compiled models allows
    as much.)

    Where the script lets the device compute float32 products in TensorFloat-32, a rounding is one of that format, also
    if the baseline happened to need none: cuDNN chooses by the layout of the operands. (On an H200 the error of one
    layer in channels_last was 3.7 times that of the same layer without, and losses of 120 steps agreed within 5e-07.)
    """
    whole, own, elements = _whole_error(baseline, reference)
    worst = _loss_error(baseline.loss(), candidate.loss(), reference.loss(), arithmetic)
    for name in reference.names:
        true = reference[name]
        theirs = math.sqrt(_square(candidate[name] - true))
        expected = max(
            math.sqrt(_square(baseline[name] - true)),
            arithmetic.rounding
            * max(arithmetic.in_sums * math.sqrt(_square(true)), whole * math.sqrt(true.size / elements)),
        )
        tiny = true.size <= TINY_TENSOR
        if tiny:
            expected = max(expected, own / max(whole, _SMALLEST) * math.sqrt(_square(true)))
        limit = WIDE_ERROR_RATIO if tiny else arithmetic.ratio
        worst = max(worst, _Excess(_ratio(theirs, expected), limit, name))
    if worst.share > 1:
        text = f"The first step's error in {worst.name} is {worst.found:.3g} times the baseline's, not {worst.limit:g}."
        return _failed(worst.found if math.isfinite(worst.found) else None, worst.limit, text)
    text = f"The first step's errors against float64 are at most {worst.found:.2g} times the baseline's."
    return GateResult(gate="G2", passed=True, found=worst.found, limit=worst.limit, text=text)


def _jump(baseline: _Gradients, nudged: Run, reference: _Gradients, arithmetic: _Arithmetic) -> float:
    """The largest error of a run with nudged weights, in times the baseline's, if the rule does not allow it; 0 if it
    does, or if its gradients cannot be read, which explains nothing."""
    try:
        gradients = _open_gradients(nudged.gradients_path)
    except (_Unreadable, *_UNREADABLE):
        return 0.0
    try:
        found = _keeps_precision(baseline, gradients, reference, arithmetic)
    except (_Unreadable, *_UNREADABLE):
        return 0.0
    finally:
        gradients.archive.close()
    return 0.0 if found.passed else found.found or 0.0


def _unless_rounding_jumps(found: GateResult, jumps: float, moved: _Moved) -> GateResult:
    """The same for a gradient whose errors are larger than the rule for levers that keep the precision allows, where
    rounding alone has such errors too: then they must be as small as its own are.

    An activation that is within rounding of a threshold (a ReLU's, another maximum of a pool) falls on either side of
    it, and its share of the gradient comes or goes as a whole; the loss does not jump. ``bench.first_gradients`` counts
    how often that is so with a healthy lever, and by how much it and nudged weights move gradients.
    """
    if moved.whole > JUMP_OF_WHOLE or moved.most > JUMP_OF_TENSOR:
        return found
    words = found.text.removesuffix(".")
    alone = (
        f"with weights changed in their last place it is up to {jumps:.3g} times" if jumps else "rounding is amplified"
    )
    text = f"{words}; {alone}. The gradient moves by {percent(moved.whole)}."
    return GateResult(gate="G2", passed=True, found=found.found, limit=found.limit, text=text)


@dataclass(frozen=True, slots=True)
class _Moved:
    """The norm of a difference of gradients as a share of the baseline's: of the whole, and of the tensor that moved
    most; one close to zero is compared with the hundredth of the whole that it may have."""

    whole: float
    most: float


def _moved(baseline: _Gradients, candidate: _Gradients) -> _Moved:
    norm = max(math.sqrt(math.fsum(_square(baseline[name]) for name in baseline.names)), _SMALLEST)
    squares, most = [], 0.0
    for name in baseline.names:
        one = baseline[name]
        square, own = _square(candidate[name] - one), math.sqrt(_square(one))
        squares.append(square)
        is_negligible = own <= NEGLIGIBLE_NORM * norm
        most = max(most, math.sqrt(square) / (NEGLIGIBLE_ERROR * norm if is_negligible else own))
    return _Moved(math.sqrt(math.fsum(squares)) / norm, most)


_SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class _Excess:
    found: float
    limit: float
    name: str

    @property
    def share(self) -> float:
        return self.found / self.limit

    def __lt__(self, other: _Excess) -> bool:
        return self.share < other.share


def _loss_error(ours: float, theirs: float, true: float, arithmetic: _Arithmetic) -> _Excess:
    """The error that a loss may have anyway: it is one number, whose error may be zero by luck."""
    expected = max(abs(ours - true), arithmetic.in_loss * arithmetic.rounding * abs(true))
    return _Excess(_ratio(abs(theirs - true), expected), WIDE_ERROR_RATIO, "the loss")


def _whole_error(baseline: _Gradients, reference: _Gradients) -> tuple[float, float, int]:
    """The norm of the true gradient, the norm of the baseline's error, and the number of elements."""
    squares, errors, elements = [], [], 0
    for name in reference.names:
        true = reference[name]
        squares.append(_square(true))
        errors.append(_square(baseline[name] - true))
        elements += true.size
    return math.sqrt(math.fsum(squares)), math.sqrt(math.fsum(errors)), max(1, elements)


# ---------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------


def _open_gradients(path: str) -> _Gradients:
    with open_regular(Path(path)) as file, zipfile.ZipFile(file) as archive:
        too_large = [it.filename for it in archive.infolist() if it.file_size > _LARGEST_TENSOR_BYTES]
    if too_large:
        raise _Unreadable(f"{too_large[0]} in {path} is too large.")
    loaded = np.load(path, allow_pickle=False)
    names = {_plain(key.removeprefix(_PREFIX)): key for key in loaded.files if key.startswith(_PREFIX)}
    if not names or "loss" not in loaded.files:
        loaded.close()
        raise _Unreadable(f"{path} holds no loss or no gradients.")
    return _Gradients(path, loaded, names)


def _plain(name: str) -> str:
    """A parameter's name without the prefix that compiling adds."""
    return name.replace("_orig_mod.", "")


def _different_tensors(opened: dict[str, _Gradients]) -> str:
    ours = opened["baseline"]
    for role, it in opened.items():
        odd = sorted(set(ours.names) ^ set(it.names))
        if odd:
            who = "baseline" if odd[0] in ours.names else role
            return f"Only the {who} has a gradient for {odd[0]}."
        for name in ours.names:
            if ours[name].shape != it[name].shape:
                return f"The gradient of {name} has another shape in the {role}."
    return ""


def _arithmetic_of(run: Run) -> _Arithmetic:
    if run.facts.autocast_dtype in _HALF or any(model.dtype in _HALF for model in run.facts.models):
        return _HALF_PRECISION
    return _TF32 if run.facts.allows_tf32 else _FLOAT32


def _dot(one: Tensor, other: Tensor) -> float:
    return float(np.vdot(one, other))


def _square(tensor: Tensor) -> float:
    return float(np.vdot(tensor, tensor))


def _cosine(dot: float, square: float, other_square: float) -> float:
    if square == 0 or other_square == 0:
        return 1.0 if square == other_square else 0.0
    return min(1.0, dot / math.sqrt(square) / math.sqrt(other_square))


def _ratio(found: float, expected: float) -> float:
    if math.isnan(found):
        return math.inf
    if found == 0:
        return 0.0
    return found / expected if expected > 0 else math.inf


def _failed(found: float | None, limit: float | None, text: str) -> GateResult:
    finite = found if found is not None and math.isfinite(found) else None
    return GateResult(gate="G2", passed=False, found=finite, limit=limit, text=text)


def _open(text: str) -> GateResult:
    return GateResult(gate="G2", passed=None, text=text)
