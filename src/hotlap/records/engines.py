"""How an inference engine other than eager torch ran the model of an inference target."""

from __future__ import annotations

from typing import Final

from hotlap.records.base import Record


class OperatorShare(Record, frozen=True, kw_only=True):
    """How many operators of the engine's own graph are of one kind: a provider that runs them, or a number format that
    they compute in."""

    name: str
    operators: int


class EngineReport(Record, frozen=True, kw_only=True):
    """The engine that ran a model instead of torch, as the engine itself reports.

    ``operators`` are those of the graph that it executes. ``by_provider`` and ``by_precision`` divide them (empty: not
    reported). ``precision`` is the number format of the operators that matter, as the engine reports it, and
    ``quantized`` how many compute with 8-bit integers. ``calibrated_inputs`` is how many of the first inputs calibrated
    the quantization: outputs for these say nothing about quality. ``load_seconds`` is the time for exporting,
    converting and loading; ``build_seconds`` of it are for exporting and converting, which one launch of a study does
    and all others then load. ``size_bytes`` is the size of the engine's files on disk. Only a launch that compares
    outputs looks into the engine's graph; that of any other leaves these figures at 0.
    """

    engine: str
    version: str = ""
    precision: str = ""
    operators: int = 0
    quantized: int = 0
    by_provider: tuple[OperatorShare, ...] = ()
    by_precision: tuple[OperatorShare, ...] = ()
    calibrated_inputs: int = 0
    load_seconds: float = 0.0
    build_seconds: float = 0.0
    size_bytes: int = 0


BUILT_ENGINES: Final = "HOTLAP_BUILT_ENGINES"
"""The variable that names the folder in which the launches of a study keep what engines built."""
