"""The part that runs on a node: a local executor that answers questions in JSON."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hotlap.cluster.journey import Parcel, packed
from hotlap.cluster.questions import (
    CollectivesQuestion,
    LaunchQuestion,
    MachineQuestion,
    NodeAnswer,
    NodeQuestion,
    ReplicatesQuestion,
    TogetherQuestion,
)
from hotlap.errors import HotlapError
from hotlap.machine.systems import require_linux
from hotlap.records import Isolation
from hotlap.trial.executor import OneSlot
from hotlap.trial.handshake import require_numpy
from hotlap.trial.local import LocalExecutor
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.sweeping import sweep_temporary_folders


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """Where a node keeps the runs of a study: ``runs``, on a file system that it shares with the driver; or, where that
    is empty, a folder of its own, from which files travel back. ``environment`` is added to that of trials;
    ``restored`` are variables that a scheduler sets and the driver had otherwise (None: it had none)."""

    runs: str
    environment: dict[str, str]
    restored: dict[str, str | None]


class NodeServer:
    """Answers questions with an executor of this node, one at a time."""

    def __init__(self, folders: NodeFolders, isolation: bytes) -> None:
        require_linux("hotlap")
        require_numpy()
        for name, value in folders.restored.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self._stack = ExitStack()
        self._shared = bool(folders.runs)
        sweep_temporary_folders()
        self._runs = Path(folders.runs or self._stack.enter_context(owned_folder("hotlap-node-")))
        self._executor: OneSlot = LocalExecutor(
            directory=self._runs,
            environment=folders.environment,
            isolation=msgspec.json.decode(isolation, type=Isolation),
        )

    def answer(self, question: bytes) -> Parcel:
        """The answer in JSON, with the files of its runs unless the driver sees them anyway."""
        before = self._folders()
        try:
            answer = _answered(self._executor, msgspec.json.decode(question, type=NodeQuestion))
        except HotlapError as error:
            answer = NodeAnswer(error=error.what, remedy=error.remedy)
        text = msgspec.json.encode(answer)
        if self._shared:
            return Parcel(text, "", ())
        return packed(text, self._runs, sorted(self._folders() - before))

    def close(self) -> None:
        """Remove the folder of this node."""
        self._stack.close()

    def _folders(self) -> set[str]:
        return {it.name for it in self._runs.iterdir()} if self._runs.is_dir() else set()


def _answered(executor: OneSlot, question: NodeQuestion) -> NodeAnswer:
    match question:
        case LaunchQuestion(request=request):
            return NodeAnswer(runs=(executor.launch(request),))
        case TogetherQuestion(requests=requests):
            return NodeAnswer(runs=executor.launch_together(requests))
        case ReplicatesQuestion(requests=requests):
            return NodeAnswer(replicates=executor.take_replicates(requests))
        case MachineQuestion():
            return NodeAnswer(machine=executor.machine())
        case CollectivesQuestion(request=request):
            return NodeAnswer(collectives=executor.collectives(request))
