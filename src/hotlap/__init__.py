"""hotlap makes a PyTorch training script faster, and proves it.

The public API is what ``__all__`` names. It is loaded lazily, so that ``import hotlap`` costs a training process almost
nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hotlap.api.callbacks import lightning_callback as lightning_callback
    from hotlap.api.callbacks import trainer_callback as trainer_callback
    from hotlap.api.questions import check as check
    from hotlap.api.questions import nan as nan
    from hotlap.api.questions import patch as patch
    from hotlap.api.reading import apply as apply
    from hotlap.api.reading import lint as lint
    from hotlap.api.reading import load_study as load_study
    from hotlap.api.reading import trace as trace
    from hotlap.api.searches import batch as batch
    from hotlap.api.searches import infer as infer
    from hotlap.api.searches import memory as memory
    from hotlap.api.searches import profile as profile
    from hotlap.api.searches import scale as scale
    from hotlap.api.searches import tune as tune
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
    "lightning_callback",
    "lint",
    "load_study",
    "memory",
    "nan",
    "patch",
    "profile",
    "scale",
    "trace",
    "trainer_callback",
    "tune",
]

_HOMES = {
    "HotlapError": "hotlap.errors",
    "Limit": "hotlap.records",
    "Objective": "hotlap.records",
    "Plan": "hotlap.records",
    "Study": "hotlap.records",
    "apply": "hotlap.api.reading",
    "batch": "hotlap.api.searches",
    "check": "hotlap.api.questions",
    "infer": "hotlap.api.searches",
    "lightning_callback": "hotlap.api.callbacks",
    "lint": "hotlap.api.reading",
    "load_study": "hotlap.api.reading",
    "memory": "hotlap.api.searches",
    "nan": "hotlap.api.questions",
    "patch": "hotlap.api.questions",
    "profile": "hotlap.api.searches",
    "scale": "hotlap.api.searches",
    "trace": "hotlap.api.reading",
    "trainer_callback": "hotlap.api.callbacks",
    "tune": "hotlap.api.searches",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
