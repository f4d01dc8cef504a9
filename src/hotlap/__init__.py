"""hotlap makes a PyTorch training script faster, and proves it.

The public surface is what ``__all__`` names. Nothing of it is loaded before it is used, so that ``import hotlap`` costs
a training process next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hotlap.api import apply as apply
    from hotlap.api import batch as batch
    from hotlap.api import check as check
    from hotlap.api import infer as infer
    from hotlap.api import lint as lint
    from hotlap.api import load_study as load_study
    from hotlap.api import memory as memory
    from hotlap.api import nan as nan
    from hotlap.api import patch as patch
    from hotlap.api import profile as profile
    from hotlap.api import trace as trace
    from hotlap.api import tune as tune
    from hotlap.errors import HotlapError as HotlapError
    from hotlap.records import Limit as Limit
    from hotlap.records import Objective as Objective
    from hotlap.records import Plan as Plan
    from hotlap.records import Study as Study

__version__ = "0.1.0"

__all__ = [
    "HotlapError",
    "Limit",
    "Objective",
    "Plan",
    "Study",
    "__version__",
    "apply",
    "batch",
    "check",
    "infer",
    "lint",
    "load_study",
    "memory",
    "nan",
    "patch",
    "profile",
    "trace",
    "tune",
]

_HOMES = {
    "HotlapError": "hotlap.errors",
    "Limit": "hotlap.records",
    "Objective": "hotlap.records",
    "Plan": "hotlap.records",
    "Study": "hotlap.records",
    "apply": "hotlap.api",
    "batch": "hotlap.api",
    "check": "hotlap.api",
    "infer": "hotlap.api",
    "lint": "hotlap.api",
    "load_study": "hotlap.api",
    "memory": "hotlap.api",
    "nan": "hotlap.api",
    "patch": "hotlap.api",
    "profile": "hotlap.api",
    "trace": "hotlap.api",
    "tune": "hotlap.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
