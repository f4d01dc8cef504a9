"""The state of the user's source when a study begins: which commit, whether it was changed, which script."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hotlap.errors import HotlapError
from hotlap.files import read_bounded
from hotlap.records import Source, Workload
from hotlap.trial.git import git

_LIMIT_SECONDS = 3.0
_LARGEST_SCRIPT_BYTES = 16 * 2**20
_COMMIT = "# branch.oid "
_NO_COMMIT = "(initial)"


def source_of(workload: Workload) -> Source:
    """Find out what is possible within some seconds; the rest stays unknown, and nothing is raised."""
    revision, modified = _git_state(Path(workload.directory))
    return Source(git_revision=revision, git_modified=modified, script_sha256=_digest(workload))


def script_of(workload: Workload) -> Path | None:
    """The file of the script, as far as names show it; None where they do not.

    Of a module, also of one that makes a model, it is the file below the working directory, and under a launcher
    (torchrun) the first Python file among the arguments.
    """
    directory = Path(workload.directory)
    if workload.kind == "script":
        target = directory / workload.target
        return target / "__main__.py" if target.is_dir() else target
    module = directory.joinpath(*workload.target.partition(":")[0].split("."))
    named = [directory / it for it in workload.arguments if it.endswith(".py")]
    candidates = [module.with_name(f"{module.name}.py"), module / "__main__.py", *named]
    return next((it for it in candidates if it.is_file()), None)


def _git_state(directory: Path) -> tuple[str, bool | None]:
    words = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty")
    try:
        printed = git(directory, *words, limit_seconds=_LIMIT_SECONDS).decode("utf-8", "replace")
    except HotlapError:
        return "", None
    lines = printed.splitlines()
    revision = next((it.removeprefix(_COMMIT) for it in lines if it.startswith(_COMMIT)), "")
    return ("" if revision == _NO_COMMIT else revision), any(not it.startswith("#") for it in lines)


def _digest(workload: Workload) -> str:
    try:
        script = script_of(workload)
        return hashlib.sha256(read_bounded(script, _LARGEST_SCRIPT_BYTES)).hexdigest() if script is not None else ""
    except OSError:
        return ""
