"""What a run may change, as decided when it was started: stored in a file of the run, since the script may set
variables such as TMPDIR and HF_HOME before it starts other processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FILE_NAME = "boundary.json"


class Boundary(NamedTuple):
    """Canonical paths of folders; the nearest one above a path decides, and all other paths are protected.

    ``protected`` are the user's own, ``caches`` are shared with the user's own runs, and ``run`` are those of the run.
    """

    protected: Sequence[str]
    caches: Sequence[str]
    run: Sequence[str]

    def write(self, folder: Path) -> None:
        """Raises ``OSError`` where the file cannot be created."""
        (folder / FILE_NAME).write_text(json.dumps(self._asdict()), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Boundary:
        """Raises ``OSError``, and ``ValueError`` or ``TypeError`` where it was changed."""
        return cls(**json.loads((folder / FILE_NAME).read_text(encoding="utf-8")))
