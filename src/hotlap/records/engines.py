"""What another engine than torch's eager execution made of an inference target's model."""

from __future__ import annotations

from hotlap.records.base import Record


class OperatorShare(Record, frozen=True, kw_only=True):
    """How many operators of the engine's own graph are of one kind: a provider that runs them, or a number format that
    they compute in."""

    name: str
    operators: int


class EngineReport(Record, frozen=True, kw_only=True):
    """The engine that ran a model in its place, as the engine itself describes what it does.

    ``operators`` are those of the graph that it executes. ``by_provider`` and ``by_precision`` divide them (empty: it
    does not say). ``precision`` is the number format of the operators that matter, as the engine reports it, and
    ``quantized`` how many compute with 8-bit integers. ``calibrated_inputs`` is how many of the first inputs quantizing
    was calibrated with: what the model returns for these says nothing of its quality. ``load_seconds`` is what
    exporting, converting and loading took, and ``size_bytes`` what the engine's files take on disk. Only a launch that
    compares outputs looks into the engine's graph; that of any other leaves these figures at 0.
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
    size_bytes: int = 0
