"""Other random numbers than the program's, which show what depends on a seed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from hotlap.records import ShiftSeeds
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: ShiftSeeds) -> None:
    """At once, for what the program seeds from here on: torch, Python's ``random``, and NumPy's global generator."""
    torch, replace = place.hooks.torch, place.interception.patches.replace

    def shifted(plain: Callable[..., Any]) -> Callable[..., Any]:
        def seed(value: Any = None, *args: Any, **kwargs: Any) -> Any:
            return plain(value + asked.offset if isinstance(value, int) else value, *args, **kwargs)

        return seed

    replace(torch, "manual_seed", shifted(torch.manual_seed))
    replace(torch.random, "manual_seed", torch.manual_seed)
    replace(random, "seed", shifted(random.seed))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        replace(numpy.random, "seed", shifted(numpy.random.seed))
