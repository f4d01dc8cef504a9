"""Advice on a NaN or infinity by its origin; none if it would be a guess."""

from __future__ import annotations

from hotlap.records import BadNumber, NumberOrigin, NumberRange
from hotlap.render import text

_INFINITE_SLOPES = ("SqrtBackward", "RsqrtBackward", "LogBackward", "PowBackward", "NormBackward", "LinalgVectorNorm")
_SOFTMAXES = frozenset({"softmax", "log_softmax", "safe_softmax"})
_DIVISIONS = frozenset({"div", "reciprocal"})
_DEVIATIONS = frozenset({"std", "var", "std_mean", "var_mean"})
_EXPONENTIALS = frozenset({"exp", "expm1", "exp2", "cosh", "sinh"})
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution", "linear"})

_BATCH = "Find these samples in the data, and drop or replace non-finite values where samples are read."
_UNINITIALISED = "Fill it where it is made: torch.zeros, or one of torch.nn.init."
_WRITTEN = "Make sure that it is removed before the loss: a masked class, for example, must not be a target."
_STATE = "Check what fills it: a checkpoint that was loaded, or code that writes to it between steps."
_ENTERED = "Check what makes that tensor: NumPy, a file, another library, or a custom kernel."
_UPDATE = "The update was larger than the weights' format holds: lower the learning rate, or clip the gradients."
_SLOPE = (
    "Its slope there is infinite although its value is finite. Keep what it is given away from that point, as in "
    "(x + 1e-12).sqrt() or x.clamp(min=1e-6).log(). A torch.where behind it does not help: zero times an infinite "
    "slope is NaN."
)
_MASKED = "A row is masked throughout: leave such rows out, or mask with a large finite number such as -1e9."
_DIVISOR = "The divisor is 0 or nearly so: add a small number such as 1e-6 to it."
_DEVIATION = "The deviation of a single number is NaN: give it more than one, or say correction=0."
_HALF = (
    "float16 holds nothing above 65504: compute this part in float32, inside torch.autocast(..., enabled=False), or "
    "train in bfloat16."
)
_GREW = "What it was given has grown too large: lower the learning rate, clip the gradients, or normalise before it."


def advice(bad: BadNumber) -> str:
    """One or two sentences; nothing if the cause is obvious or unclear."""
    origin = bad.origin
    if origin is None:
        return ""
    match origin.source:
        case "batch":
            return _BATCH
        case "uninitialised":
            return _UNINITIALISED
        case "written":
            return _WRITTEN
        case "state":
            return _STATE
        case "entered":
            return _ENTERED
        case "operation":
            return _of_operation(origin, bad.written is not None)


def _of_operation(origin: NumberOrigin, masked: bool) -> str:
    if origin.phase == "optimizer":
        given = text.one_line(", ".join(origin.arguments))
        return f"The optimizer was given {given}: check the learning rate and its schedule." if given else _UPDATE
    if origin.phase == "backward":
        return _SLOPE if origin.autograd_node.startswith(_INFINITE_SLOPES) else ""
    if masked:
        return _MASKED if _name(origin) in _SOFTMAXES else ""
    if any(it.dtype == "float16" and it.infinite for it in origin.outputs):
        return _HALF
    return _of_arithmetic(_name(origin), origin.inputs)


def _of_arithmetic(name: str, inputs: tuple[NumberRange, ...]) -> str:
    low = inputs[0].low if inputs else None
    high = inputs[0].high if inputs else None
    if name.startswith(("log", "sqrt", "rsqrt")) and low is not None and low <= 0:
        return f"Its smallest input is {low:.4g}: clamp it, as in x.clamp(min=1e-6)."
    if name in _EXPONENTIALS and high is not None:
        return f"Its largest input is {high:.4g}: clamp it, or use what does not overflow (log_softmax, logsumexp)."
    if name in _DIVISIONS and _holds_zero(inputs[-1:]):
        return _DIVISOR
    if name in _DEVIATIONS:
        return _DEVIATION
    return _GREW if name in _PRODUCTS else ""


def _name(origin: NumberOrigin) -> str:
    return origin.operation.strip("_")


def _holds_zero(ranges: tuple[NumberRange, ...]) -> bool:
    return any(it.low is not None and it.high is not None and it.low <= 0 <= it.high for it in ranges)
