"""How what a model returns is consumed."""

from __future__ import annotations

from typing import Any

from hotlap.levers.support.structures import named_tensors


def consume(output: Any) -> None:
    """Copy an output to the host, as a user of it would: on an accelerator the call is over only then."""
    for _, tensor in named_tensors(output):
        if tensor.device.type != "cpu":
            tensor.cpu()
