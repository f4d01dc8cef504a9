"""The user's own metric of an inference target: ``evaluate(outputs)`` returns scores, of which larger ones are better.

``outputs`` maps the number of each input to what the model returned for it, on the CPU and with 16-bit numbers widened
to float32. The scores are one number for each sample, or a single one for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from hotlap.levers.support.structures import named_tensors, rebuilt

MOST_SCORES = 10_000_000

Evaluate = Callable[[Mapping[int, Any]], Any]


def kept_output(torch: Any, output: Any) -> Any:
    """A copy of an output that later calls do not overwrite."""

    def copied(tensor: Any) -> Any:
        held = tensor.detach().cpu().clone()
        return held.float() if held.dtype in (torch.bfloat16, torch.float16) else held

    return rebuilt(output, map(copied, [it for _, it in named_tensors(output)]))


def scores_of(evaluate: Evaluate, outputs: Mapping[int, Any], name: str) -> list[float]:
    """What the user's function returns for these outputs, as numbers.

    Raises what it raises, and TypeError or ValueError where it returns anything but numbers.
    """
    found = evaluate(outputs)
    if hasattr(found, "detach"):
        found = found.detach().cpu()
    if hasattr(found, "tolist"):
        found = found.tolist()
    listed = [found] if isinstance(found, Real) else found
    if isinstance(listed, (str, bytes, Mapping)) or not hasattr(listed, "__iter__"):
        raise TypeError(f"{name} returned a {type(found).__name__}, which is no number and holds none.")
    scores: list[float] = []
    for it in listed:
        number = it.item() if hasattr(it, "item") else it
        if not isinstance(number, Real):
            raise TypeError(f"{name} returned a {type(it).__name__} as a score, which is no number.")
        scores.append(float(number))
        if len(scores) > MOST_SCORES:
            raise ValueError(f"{name} returned more than {MOST_SCORES} scores.")
    if not scores:
        raise ValueError(f"{name} returned no score.")
    return scores
