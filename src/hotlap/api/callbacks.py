"""Callbacks of training frameworks that keep a study of the run they are in: the account and the alarms of
``hotlap run --watch``, from within."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from hotlap.api.engine import STUDIES
from hotlap.errors import StudyError, UsageError
from hotlap.procedures.watch import Expected, WatchedStudy
from hotlap.records import Plan, StudyStatus, WatchRow, Workload
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.process_groups import place_in_group
from hotlap.runtime.watch.watcher import Watcher
from hotlap.trial.beside import resident_bytes

_WATCHED_BY_OTHERS = ("HOTLAP_ASSIGNMENT", "HOTLAP_WATCH")


def trainer_callback(*, directory: str | os.PathLike[str] = STUDIES) -> Any:
    """A callback for the Hugging Face Trainer that keeps a study of the training it is in.

    ``Trainer(..., callbacks=[hotlap.trainer_callback()])``: make it before the Trainer. Steps are timed by phase as
    ``hotlap run --watch`` does, some or all of them, and nothing of the training changes. The study is kept in
    ``watch`` below ``directory``, saved every half minute and at the end; with several processes, the first one's.
    One callback is for one training. Within ``hotlap run --watch`` and trials it does nothing.

    Raises :class:`HotlapError` where transformers is not installed.
    """
    base = _imported("transformers").TrainerCallback
    watch = _Watch(Path(directory))

    class HotlapCallback(base):  # type: ignore[misc, valid-type]
        """Keeps a study of the training."""

        def on_train_begin(self, *of: Any, **named: Any) -> None:
            """The training begins."""
            watch.begin()

        def on_train_end(self, *of: Any, **named: Any) -> None:
            """The training has ended."""
            watch.end("finished", "The training ended.")

    return HotlapCallback()


def lightning_callback(*, directory: str | os.PathLike[str] = STUDIES) -> Any:
    """A callback for Lightning that keeps a study of the training it is in.

    ``Trainer(..., callbacks=[hotlap.lightning_callback()])``: the same as :func:`trainer_callback`, for
    ``lightning`` or ``pytorch_lightning``, whichever the script has imported.

    Raises :class:`HotlapError` where neither is installed.
    """
    name = "pytorch_lightning" if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules else "lightning"
    package = _imported("pytorch_lightning" if name == "pytorch_lightning" else "lightning.pytorch")
    base = package.Callback
    watch = _Watch(Path(directory))

    class HotlapCallback(base):  # type: ignore[misc, valid-type]
        """Keeps a study of the training."""

        def on_train_start(self, *of: Any, **named: Any) -> None:
            """The training begins."""
            watch.begin()

        def on_train_end(self, *of: Any, **named: Any) -> None:
            """The training has ended."""
            watch.end("finished", "The training ended.")

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            """The training failed or was interrupted."""
            watch.end("interrupted", f"The training ended with {type(exception).__name__}.")

    return HotlapCallback()


class _Watch:
    """Watches from now on, since loaders and optimizers are made before the training begins; rows count from then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._study: WatchedStudy | None = None
        self._ended = any(it in os.environ for it in _WATCHED_BY_OTHERS)
        self._process = os.getpid()
        if self._ended:
            return
        self._torch = _imported("torch")
        self._interception = Interception(Hooks(torch=self._torch))
        self._interception.install()
        self._watcher = Watcher(self._interception, self._add)

    def begin(self) -> None:
        """Open the study in the first process of a training; what is wrong with its folder is a warning."""
        if self._ended or self._study is not None or place_in_group(self._torch)[0] != 0:
            return
        workload = Workload(
            kind="script", target=sys.argv[0] or "python", arguments=tuple(sys.argv[1:]),
            directory=os.fspath(Path.cwd()), python=sys.executable,
        )  # fmt: skip
        try:
            self._study = WatchedStudy(self._directory, workload, Plan(), Expected())
        except StudyError as error:
            warnings.warn(f"hotlap keeps no study of this training: {error.what}", stacklevel=3)
            return
        atexit.register(self.end, "interrupted", "The process ended before the training did.")

    def end(self, status: StudyStatus, sentence: str) -> None:
        """Save the study, and take the hooks away."""
        if self._ended or os.getpid() != self._process:
            return
        self._watcher.end()
        self._ended = True
        self._interception.suspend()
        if self._study is not None:
            self._study.finish(status, sentence)
            self._study.close()

    def _add(self, row: WatchRow) -> None:
        if self._study is not None and not self._ended:
            self._study.add(row, host_bytes=resident_bytes(row.process))
            self._study.check()


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"The callback is for {package}, which cannot be imported: {error}.",
            remedy=f"Install it: pip install {package}",
        ) from error
