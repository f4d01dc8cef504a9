"""Calls by which a training loop reports: experiment trackers, progress bars, tables and files that are written.

Their libraries are found in ``sys.modules`` once training runs; none is imported for it. What the interpreter's own C
types write (``file.write``, ``csv.writer``) cannot be wrapped: sampled lines name it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

from hotlap.evidence import LoopCallKind
from hotlap.runtime.evidence.callers import Caller
from hotlap.runtime.evidence.calls import CallWatch, Look, Seen


@dataclass(frozen=True, slots=True)
class Reporter:
    """Functions that report, of one class or object in a module; ``owner`` is its name, empty for the module itself.

    ``users_own``: a call counts only where the user's line made it, and not a library.
    """

    module: str
    owner: str
    names: tuple[str, ...]
    kind: LoopCallKind
    users_own: bool = False


_SUMMARIES = (
    "add_scalar",
    "add_scalars",
    "add_histogram",
    "add_image",
    "add_images",
    "add_figure",
    "add_text",
    "add_tensor",
    "add_embedding",
    "add_pr_curve",
    "flush",
)
_BAR = ("update", "set_postfix", "set_postfix_str", "set_description", "set_description_str", "refresh")
TABLE = (
    Reporter("torch.utils.tensorboard.writer", "SummaryWriter", _SUMMARIES, "tensorboard"),
    Reporter("tensorboardX.writer", "SummaryWriter", _SUMMARIES, "tensorboard"),
    Reporter("wandb", "", ("log",), "tracker"),
    Reporter("wandb", "run", ("log",), "tracker"),
    Reporter("wandb.sdk.wandb_run", "Run", ("log",), "tracker"),
    Reporter("mlflow", "", ("log_metric", "log_metrics"), "tracker"),
    Reporter("tqdm.std", "tqdm", _BAR, "progress-bar"),
    Reporter("csv", "DictWriter", ("writeheader", "writerow", "writerows"), "file-write", users_own=True),
    Reporter("json", "", ("dump",), "file-write", users_own=True),
    Reporter("pandas.core.generic", "NDFrame", ("to_csv", "to_json", "to_pickle"), "file-write", users_own=True),
)
"""Public names, as the libraries' own documentation gives them, at the place where the class is defined."""


class ReporterWatch:
    """Wraps what of :data:`TABLE` the script has imported; :meth:`look` again for what it imports later."""

    def __init__(self, watch: CallWatch) -> None:
        self._watch = watch
        self._missing = list(TABLE)

    def look(self) -> None:
        """Wrap the rows whose module has come since the last look. Cheap enough for every step."""
        for row in [it for it in self._missing if it.module in sys.modules]:
            owner = _owner(row)
            if owner is not None:
                self._missing.remove(row)
                for name in row.names:
                    if isinstance(getattr(owner, name, None), (FunctionType, MethodType)):
                        self._watch.wrap(owner, name, "loop", _reports(row))


def _owner(row: Reporter) -> Any:
    """What holds the functions; None while there is none, as ``wandb.run`` before a run begins."""
    module = sys.modules.get(row.module)
    if not isinstance(module, ModuleType) or not row.owner:
        return module
    return vars(module).get(row.owner)


def _reports(row: Reporter) -> Look:
    def look(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, caller: Caller) -> Seen | None:
        return Seen(row.kind) if caller.directly or not row.users_own else None

    return look
