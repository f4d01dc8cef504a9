"""Running git. The user's repository is only read: no lock is taken, no index refreshed, no hook run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from hotlap.errors import HotlapError

_LONGEST_OUTPUT_BYTES = 64 * 2**20
_LONGEST_COMPLAINT_BYTES = 2000

# Set by hooks and by editors that git started; they would select another repository.
_OF_ANOTHER_REPOSITORY = frozenset({
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
    "GIT_NAMESPACE", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
})  # fmt: skip
_OURS = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_NOTHING: Mapping[str, str] = MappingProxyType({})


def git(directory: Path, *words: str, limit_seconds: float = 60.0, variables: Mapping[str, str] = _NOTHING) -> bytes:
    """What a git command prints, run in that directory with these variables added.

    Raises :class:`HotlapError`, with git's own words, when there is no git, when the command fails, takes longer than
    ``limit_seconds``, or prints more than 64 MiB.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}
    command = ["git", "-C", str(directory), "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words]
    where = f"git {' '.join(words)}"
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                command,
                env={**inherited, **_OURS, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                timeout=limit_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"git did not finish within {limit_seconds:g} seconds."
            raise HotlapError(what, where=where, remedy="Run that command by hand to see what it waits for.") from None
        except OSError as error:
            what = f"git cannot be run: {error.strerror or error}."
            raise HotlapError(what, where=where, remedy="Install git, or compare with a plan or a study.") from None
        if done.returncode != 0:
            errors.seek(0)
            complaint = errors.read(_LONGEST_COMPLAINT_BYTES).decode("utf-8", "replace").strip()
            what = f"git failed: {complaint or f'exit status {done.returncode}'}"
            raise HotlapError(what, where=where, remedy="Run that command by hand to see its whole output.")
        if output.tell() > _LONGEST_OUTPUT_BYTES:
            what = "git printed more than 64 MiB."
            raise HotlapError(what, where=where, remedy="The repository has too many files for this.")
        output.seek(0)
        return output.read()


def paths(printed: bytes) -> list[str]:
    """The entries of an output in which each ends with a zero byte."""
    return [os.fsdecode(it) for it in printed.split(b"\0") if it]
