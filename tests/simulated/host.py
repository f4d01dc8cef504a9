"""The test of a machine's rates on the simulated host: its products are not computed, since they are never read."""

from __future__ import annotations

from typing import Any

_TEST = "hotlap.machine.ceilings"


def is_the_test(command: list[str]) -> bool:
    """Whether a process with this command measures the machine's rates."""
    return _TEST in command


def install(torch: Any, library: Any) -> None:
    """Let products of matrices on the host take their simulated time alone, where a place for the result is given."""
    multiply = torch.mm
    kinds = {torch.bfloat16: 1, torch.float16: 2}

    def mm(left: Any, right: Any, *, out: Any = None) -> Any:
        if out is None or not out.is_cpu:
            return multiply(left, right) if out is None else multiply(left, right, out=out)
        operations = 2.0 * left.shape[0] * left.shape[1] * right.shape[1]
        library.multiply_on_host(operations, kinds.get(left.dtype, 0))
        return out

    torch.mm = mm
