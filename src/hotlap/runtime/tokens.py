"""Calls of ``generate()`` of transformers models as units of work: their tokens, counted and timed.

A criterion for stopping that never stops is called after each token, which is transformers' own way to look at them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias

from hotlap.records import GenerationFacts

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

_ONLY_OF_GENERATE: Final = frozenset(
    {"max_new_tokens", "min_new_tokens", "max_length", "generation_config", "do_sample", "num_beams", "eos_token_id"}
)
_CRITERIA_POSITION: Final = 3


def can_generate(model: Any) -> bool:
    """Whether it is a transformers model with ``generate()``."""
    return any(it.__name__ == "GenerationMixin" for it in type(model).__mro__)


def are_prompts(model: Any, inputs: Sequence[Arguments]) -> bool:
    """Whether each input has an argument that ``generate()`` takes, and no single call of the model."""
    return can_generate(model) and all(_ONLY_OF_GENERATE & kwargs.keys() for _, kwargs in inputs)


class Tokens:
    """Counts and times the tokens of each call. Columns have a row for each finished call."""

    def __init__(self, torch: ModuleType, facts: GenerationFacts) -> None:
        self.facts = facts
        self.first_token_seconds: list[float] = []
        self.token_seconds: list[float | None] = []
        self.prompt_length = 0
        """Of the last output, up to its first generated token."""
        self._torch = torch
        self._count = 0
        self._began = 0.0
        self._moments: list[float] = []

    def call(self, generate: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
        """Generate, and note when each token came."""
        # The model's own transformers, which is loaded.
        criteria_list: Any = sys.modules["transformers"].StoppingCriteriaList
        moments, torch = self._moments, self._torch
        moments.clear()
        goes_on: Any = None

        def token_added(sequences: Any, scores: Any, **more: Any) -> Any:
            nonlocal goes_on
            moments.append(time.perf_counter())
            if goes_on is None:
                self.prompt_length = int(sequences.shape[1]) - 1
                goes_on = torch.zeros(sequences.shape[0], dtype=torch.bool, device=sequences.device)
            return goes_on

        own = args[_CRITERIA_POSITION] if len(args) > _CRITERIA_POSITION else kwargs.get("stopping_criteria")
        criteria = criteria_list([*(own or ()), token_added])
        if len(args) > _CRITERIA_POSITION:
            args = (*args[:_CRITERIA_POSITION], criteria, *args[_CRITERIA_POSITION + 1 :])
        else:
            kwargs = {**kwargs, "stopping_criteria": criteria}
        self._began = time.perf_counter()
        output = generate(model, *args, **kwargs)
        if not moments:
            raise ValueError("generate() returned without adding a token.")
        ends = end_tokens(model, kwargs)
        self._count = sum(new_tokens(torch, sequences_of(output), self.prompt_length, ends))
        return output

    def call_ended(self) -> int:
        """Close the row of a call, and return how many tokens it added to all of its sequences."""
        first, *more = self._moments
        self.first_token_seconds.append(first - self._began)
        self.token_seconds.append((more[-1] - first) / len(more) if more else None)
        return self._count


def sequences_of(output: Any) -> Any:
    """The tensor of tokens of what ``generate()`` returned."""
    return getattr(output, "sequences", output)


def new_tokens(torch: ModuleType, sequences: Any, prompt_length: int, ends: frozenset[int]) -> list[int]:
    """How many tokens each sequence has after its prompt, up to the one that ends it."""
    added = sequences[:, prompt_length:]
    if not ends:
        return [int(added.shape[1])] * int(added.shape[0])
    is_end = torch.isin(added, torch.tensor(sorted(ends), device=added.device))
    return [row.index(True) + 1 if True in row else len(row) for row in is_end.tolist()]


def end_tokens(model: Any, kwargs: dict[str, Any]) -> frozenset[int]:
    """The tokens that end a sequence."""
    config = kwargs.get("generation_config") or model.generation_config
    found = kwargs.get("eos_token_id", config.eos_token_id)
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else map(int, found))
