"""The prompts that ``generate()`` is called with: several in a batch, padded at their left, and their answers alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from hotlap.records import GenerationFacts
from hotlap.runtime.tokens import Tokens, end_tokens, new_tokens, sequences_of

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
_TENSORS = ("input_ids", "attention_mask")


def facts_of(model: Any, inputs: Sequence[Arguments]) -> GenerationFacts:
    """What the prompts have in common. Raises ValueError for one without tokens."""
    requested = [_requested(model, kwargs) for _, kwargs in inputs]
    return GenerationFacts(
        prompts=len(inputs),
        rows=max(int(_tokens(it).shape[0]) for it in inputs),
        draws=any(bool(it("do_sample")) for it in requested),
        cache=next((str(it("cache_implementation")) for it in requested if it("cache_implementation")), ""),
        unbatched=_unbatched(model, inputs),
    )


def draws(model: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a call samples its tokens."""
    return bool(_requested(model, kwargs)("do_sample"))


@dataclass(frozen=True, slots=True)
class Prompts:
    """The arguments of a call, and which rows of it belong to which prompt, with the length of each."""

    arguments: Arguments
    parts: tuple[tuple[slice, int], ...]

    def answers(self, torch: ModuleType, tokens: Tokens, model: Any, output: Any) -> Iterator[Any]:
        """What each prompt by itself would have returned."""
        if len(self.parts) == 1:
            yield output
            return
        sequences, width = sequences_of(output), tokens.prompt_length
        counts = new_tokens(torch, sequences, width, end_tokens(model, self.arguments[1]))
        for rows, length in self.parts:
            tokens.prompt_length = length
            yield sequences[rows, width - length : width + max(counts[rows])]
        tokens.prompt_length = width


def calls_of(torch: ModuleType, model: Any, inputs: Sequence[Arguments], together: int) -> list[Prompts]:
    """The calls that generate from each prompt once. Raises ValueError where ``together`` is above 1 and prompts cannot
    share a call."""
    reason = _unbatched(model, inputs) if together > 1 else ""
    if reason:
        raise ValueError(reason)
    if together == 1:
        return [Prompts(it, ((slice(0, 0), 0),)) for it in inputs]
    starts = range(0, len(inputs), together)
    return [_batched(torch, model, inputs[start : start + together]) for start in starts]


def _batched(torch: ModuleType, model: Any, chosen: Sequence[Arguments]) -> Prompts:
    config = model.generation_config
    ends = sorted(end_tokens(model, chosen[0][1]))
    fill = config.pad_token_id if config.pad_token_id is not None else next(iter(ends), 0)
    width = max(int(_tokens(it).shape[1]) for it in chosen)
    rows = [_tokens(it) for it in chosen]
    masks = [it[1].get("attention_mask", torch.ones_like(row)) for it, row in zip(chosen, rows, strict=True)]

    def padded(tensor: Any, value: int) -> Any:
        return torch.nn.functional.pad(tensor, (width - int(tensor.shape[1]), 0), value=value)

    tensors = {
        "input_ids": torch.cat([padded(it, fill) for it in rows]),
        "attention_mask": torch.cat([padded(it, 0) for it in masks]),
    }
    firsts = itertools.accumulate((int(it.shape[0]) for it in rows), initial=0)
    parts = [(slice(at, at + int(it.shape[0])), int(it.shape[1])) for at, it in zip(firsts, rows, strict=False)]
    return Prompts(((), {**chosen[0][1], **tensors, "pad_token_id": fill}), tuple(parts))


def _tokens(arguments: Arguments) -> Any:
    args, kwargs = arguments
    found: Any = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
    if not hasattr(found, "shape") or found.dim() < 2:
        raise ValueError("A prompt needs `input_ids`: a tensor of tokens, sequences by length.")
    return found


def _requested(model: Any, kwargs: dict[str, Any]) -> Any:
    config = kwargs.get("generation_config") or model.generation_config
    return lambda name: kwargs.get(name, getattr(config, name, None))


def _unbatched(model: Any, inputs: Sequence[Arguments]) -> str:
    """Why prompts cannot share a call; empty if they can."""
    if len(inputs) < 2:
        return "There is only one prompt."
    if model.config.is_encoder_decoder:
        return "The model is an encoder-decoder, and hotlap batches the prompts of decoders."
    others = [{key: it for key, it in kwargs.items() if key not in _TENSORS} for _, kwargs in inputs]
    if any(args or "input_ids" not in kwargs or set(kwargs) != set(inputs[0][1]) for args, kwargs in inputs):
        return "Prompts can share a call if each is a mapping with `input_ids` and the same other arguments."
    if any(
        hasattr(value, "shape") or (value is not others[0][key] and value != others[0][key])
        for it in others
        for key, value in it.items()
    ):
        return "Prompts differ in more than `input_ids` and `attention_mask`."
    if _requested(model, inputs[0][1])("return_dict_in_generate"):
        return "`return_dict_in_generate` returns more than tokens, which hotlap does not cut apart."
    return ""
