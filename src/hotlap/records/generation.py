"""Text generation: what `generate()` of a transformers model is called with, and what its tokens take."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate
from hotlap.records.latency import Latency


class GenerationFacts(Record, frozen=True, kw_only=True):
    """Calls of ``generate()`` are the units of work, and the tokens that they add the samples.

    ``prompts`` are those that are generated from in turn (0: a script of the user's makes the calls), each of at most
    ``rows`` sequences. ``draws`` says that tokens are sampled; outputs are compared under greedy decoding all the same.
    ``cache`` is the ``cache_implementation`` that was requested (empty: the model's own choice). ``unbatched`` says why
    prompts cannot share a batch (empty: they can).
    """

    prompts: int = 0
    rows: int = 1
    draws: bool = False
    cache: str = ""
    unbatched: str = ""


class GenerationTimes(Record, frozen=True, kw_only=True):
    """The tokens of one arm: how many per second (an interval over launches), the time to the first token of a call,
    and the mean time of each further one, with percentiles over calls."""

    tokens_per_second: Estimate | None = None
    first_token: Latency | None = None
    per_token: Latency | None = None


class TokenDifference(Record, frozen=True, kw_only=True):
    """The first token that differs: in which row of which prompt, at which position after the prompt, both counted from
    1. A token of None is missing, since generation had ended."""

    prompt: int
    row: int
    position: int
    expected: int | None
    found: int | None
