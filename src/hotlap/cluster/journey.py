"""What travels between the driver of a study and its nodes: paths in questions, files of runs on their way back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from hotlap import files
from hotlap.cluster.questions import (
    CollectivesQuestion,
    LaunchQuestion,
    MachineQuestion,
    NodeQuestion,
    ReplicatesQuestion,
    TogetherQuestion,
)
from hotlap.errors import ClusterError
from hotlap.records import Assignment, LaunchRequest, TurnRequest, Workload

MOST_BYTES = 256 * 2**20
"""How much the files of one answer may have together; the largest are left on the node first."""
_MOST_FILES = 2_000


@dataclass(frozen=True, slots=True)
class Parcel:
    """An answer in JSON. ``root`` is the node's folder of runs, and ``files`` are paths relative to it with their
    content; both are empty where the driver sees that folder itself."""

    answer: bytes
    root: str
    files: tuple[tuple[str, bytes], ...]


def packed(answer: bytes, root: Path, folders: list[str]) -> Parcel:
    """The answer with the regular files of these folders, the smallest first, up to :data:`MOST_BYTES`."""
    found: list[tuple[int, Path]] = []
    for folder in folders:
        for directory, _, names in os.walk(root / folder):
            paths = [Path(directory, name) for name in names]
            found += [(it.stat().st_size, it) for it in paths if it.is_file() and not it.is_symlink()]
    taken: list[tuple[str, bytes]] = []
    size = 0
    for length, path in sorted(found)[:_MOST_FILES]:
        size += length
        if size > MOST_BYTES:
            break
        taken.append((str(path.relative_to(root)), path.read_bytes()))
    return Parcel(answer, str(root), tuple(taken))


def unpacked(parcel: Parcel, runs: Path) -> bytes:
    """Write the files of a parcel below ``runs``, and return the answer with the paths that they have there.

    Raises :class:`ClusterError` for a path that leads out of the folder.
    """
    if not parcel.root:
        return parcel.answer
    for name, content in parcel.files:
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise ClusterError(
                f"A node sent a file for {name!r}, outside of the study.", remedy="Do not use that node."
            )
        target = runs / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        files.replace(target, content, durable=False)
    return _renamed(parcel.answer, parcel.root, str(runs))


def _renamed(text: bytes, old: str, new: str) -> bytes:
    """JSON in which every string that begins with the folder ``old`` begins with ``new``."""
    before, after = (msgspec.json.encode(it)[:-1] for it in (old, new))
    for end in (b"/", b'"'):
        text = text.replace(before + end, after + end)
    return text


def moved(question: NodeQuestion, here: str, there: str, python: str) -> NodeQuestion:
    """The question for a node that has the project's folder ``here`` as ``there``, run by its interpreter."""

    def workload(it: Workload) -> Workload:
        return msgspec.structs.replace(
            it, directory=_below(it.directory, here, there), target=_below(it.target, here, there), python=python
        )

    def assignment(it: Assignment) -> Assignment:
        return msgspec.structs.replace(it, workload=workload(it.workload))

    def launch(it: LaunchRequest) -> LaunchRequest:
        return msgspec.structs.replace(it, assignment=assignment(it.assignment))

    def replicate(it: TurnRequest) -> TurnRequest:
        return msgspec.structs.replace(it, arms=tuple(map(assignment, it.arms)))

    match question:
        case LaunchQuestion(request=request):
            return LaunchQuestion(request=launch(request))
        case TogetherQuestion(requests=requests):
            return TogetherQuestion(requests=tuple(map(launch, requests)))
        case ReplicatesQuestion(requests=replicates):
            return ReplicatesQuestion(requests=tuple(map(replicate, replicates)))
        case MachineQuestion() | CollectivesQuestion():
            return question


def _below(path: str, here: str, there: str) -> str:
    if path == here:
        return there
    return there + path[len(here) :] if path.startswith(here + os.sep) else path


def returned(answer: bytes, here: str, there: str) -> bytes:
    """The answer of a node with the driver's paths of the project."""
    return _renamed(answer, there, here) if here != there else answer
