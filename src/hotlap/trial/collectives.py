"""Measuring collectives between processes of this machine, in processes that end with us."""

from __future__ import annotations

import msgspec

from hotlap.errors import HotlapError
from hotlap.records import CollectiveRates, TrainedParts
from hotlap.trial.process import run_module

_SECONDS = 6.0
_LIMIT_SECONDS = 120.0
_MOST_PROCESSES = 64


def measured_collectives(
    processes: int, device: str = "cpu", *, parts: TrainedParts | None = None, seconds: float = _SECONDS
) -> CollectiveRates:
    """The rates between so many processes, one per device on CUDA, in about ``seconds`` after their start; on the
    processor, what strategies do with ``parts`` of a model takes as long again.

    Raises :class:`HotlapError` where they cannot be measured, with fewer than 2 or more than 64 processes, and where
    processes do not finish within two minutes; none is left then.
    """
    if not 2 <= processes <= _MOST_PROCESSES:
        raise HotlapError(
            f"Collectives cannot be measured between {processes} processes.",
            remedy=f"Choose from 2 to {_MOST_PROCESSES}.",
        )
    more = ("--parts", msgspec.json.encode(parts).decode()) if parts is not None else ()
    printed = run_module(
        "torch.distributed.run",
        ("--standalone", f"--nproc-per-node={processes}", "-m", "hotlap.machine.collectives",
         "--device", device, "--seconds", f"{seconds:g}", *more),
        timeout_seconds=_LIMIT_SECONDS + 2 * seconds,
    )  # fmt: skip
    try:
        return msgspec.json.decode(printed[printed.find("{") :], type=CollectiveRates)
    except msgspec.DecodeError as error:
        raise HotlapError(
            f"What was measured cannot be read: {error}.", remedy="Run `hotlap.machine.collectives` by hand."
        ) from error
