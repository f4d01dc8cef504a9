"""hotlap makes a PyTorch training script faster, and proves it.

The public surface is what ``__all__`` names. Nothing of it is loaded before it is used, so that ``import hotlap`` costs
a training process next to nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hotlap.api import apply as apply
    from hotlap.api import check as check
    from hotlap.api import lint as lint
    from hotlap.api import load_study as load_study
    from hotlap.api import nan as nan
    from hotlap.api import patch as patch
    from hotlap.api import profile as profile
    from hotlap.api import trace as trace
    from hotlap.api import tune as tune
    from hotlap.errors import HotlapError as HotlapError
    from hotlap.records import Plan as Plan
    from hotlap.records import Study as Study

__version__ = "0.1.0"

__all__ = [
    "HotlapError",
    "Plan",
    "Study",
    "__version__",
    "apply",
    "check",
    "lint",
    "load_study",
    "nan",
    "patch",
    "profile",
    "trace",
    "tune",
]

_HOMES = {
    "HotlapError": "hotlap.errors",
    "Plan": "hotlap.records",
    "Study": "hotlap.records",
    "apply": "hotlap.api",
    "check": "hotlap.api",
    "lint": "hotlap.api",
    "load_study": "hotlap.api",
    "nan": "hotlap.api",
    "patch": "hotlap.api",
    "profile": "hotlap.api",
    "trace": "hotlap.api",
    "tune": "hotlap.api",
}

_ROOMS = ("check", "trace", "tune")
"""Functions that are named like a package."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_HOMES[name]), name)
    return _with_room(found) if name in _ROOMS else found


def _with_room(function: Any) -> Any:
    """Add to a function what the package of the same name holds, so that ``import hotlap.trace.reader as reader``
    finds the module. The function is called and inspected as before."""
    import functools

    class Function:
        __call__ = staticmethod(function)

        def __getattr__(self, name: str) -> Any:
            room = sys.modules.get(f"{__name__}.{function.__name__}")
            return getattr(room if room is not None else function, name)

        def __repr__(self) -> str:
            return repr(function)

    found = functools.update_wrapper(Function(), function)
    globals()[function.__name__] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(type(sys)):  # type: ignore[misc]
    """Keeps ``hotlap.tune`` the function: importing the room of that name would otherwise put itself in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, type(sys))):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
