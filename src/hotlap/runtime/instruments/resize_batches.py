"""Another batch size: the arguments of the training DataLoader are changed where the script makes it."""

from __future__ import annotations

from typing import Any

from hotlap.records import CallSite, ResizeBatches
from hotlap.runtime.call_sites import exact_user_site
from hotlap.runtime.instruments.api import Place

_TORCHS_OWN = 1
"""The batch size of a DataLoader that was given none."""


def install(place: Place, asked: ResizeBatches) -> None:
    """From the first DataLoader on. One with a batch sampler has no batch size of its own and is not changed."""

    def resize(arguments: dict[str, Any]) -> None:
        if arguments.get("batch_sampler") is not None or arguments.get("batch_size", _TORCHS_OWN) != asked.own:
            return
        if asked.site is None or _same_line(asked.site, exact_user_site("loader")):
            arguments["batch_size"] = asked.size

    place.hooks.before_loader.append(resize)


def _same_line(one: CallSite, other: CallSite | None) -> bool:
    return other is not None and (one.file, one.line) == (other.file, other.line)
