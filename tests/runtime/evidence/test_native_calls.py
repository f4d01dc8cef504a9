"""What a line is in, by its bytecode."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import relu

from hotlap.runtime.evidence.native_calls import OPERATOR, NativeCalls


def counting(words: Any, counts: Any) -> None:
    for word in words:
        counts[word] = counts.get(word, 0) + 1


def names_of(function: Callable[..., object], *operations: str) -> list[str]:
    """The native function that is reported at each instruction of this kind."""
    natives, code = NativeCalls(torch), function.__code__
    found = [it for it in dis.get_instructions(code) if it.opname in operations]
    return [natives.name(code, it.offset, function.__globals__) for it in found]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: torch.sort(x), ["torch.sort"]),
        (lambda x: F.gelu(x), ["torch.nn.functional.gelu"]),
        (lambda x: np.dot(x, x), ["numpy.dot"]),
        (lambda x: relu(x), [OPERATOR]),
        (lambda x, act: act(x), [OPERATOR]),
        (lambda self: self.weight.data.add_(1), ["torch.Tensor.add_"]),
        (lambda x: x.relu().view(3), ["torch.Tensor.relu", "torch.Tensor.view"]),
        (lambda file, text: file.write("line " + str(text)), ["str", ".write"]),
        (lambda rows: rows[0].append(1), [".append"]),
        (lambda path: memoryview(path).tobytes(), ["memoryview", ".tobytes"]),
        (lambda rows: len(rows), ["len"]),
        (lambda line: line.split(), [".split"]),
    ],
)
def test_calls_are_named_as_the_line_names_them(function: Callable[..., object], names: list[str]) -> None:
    assert names_of(function, "CALL") == names


def test_plain_python_is_no_operator() -> None:
    assert names_of(counting, "CALL") == [".get"]
    assert names_of(counting, "BINARY_OP") == [OPERATOR]
    assert set(names_of(counting, "JUMP_BACKWARD", "FOR_ITER")) == {""}
