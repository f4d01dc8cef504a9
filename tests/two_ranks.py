"""Programs of several real ranks: the same input for each of them, and what each wrote."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_SECONDS = 300


def on_ranks(program: Path, given: bytes, folder: Path, ranks: int = 2, *arguments: str) -> list[bytes]:
    """Run ``program RANK RANKS RENDEZVOUS ...`` in so many processes, and return their standard output by rank.

    All of them must succeed; none outlives the call.
    """
    path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(it for it in path if it)}
    with contextlib.ExitStack() as stack:  # files: a rank whose pipe is full would keep the others waiting
        files = [[stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)] for _ in range(ranks)]
        for standard_input, _, _ in files:
            standard_input.write(given)
            standard_input.seek(0)
        started = [
            subprocess.Popen(
                [sys.executable, program, str(rank), str(ranks), str(folder / "rendezvous"), *arguments],
                env=environment,
                stdin=standard_input,
                stdout=output,
                stderr=errors,
            )
            for rank, (standard_input, output, errors) in enumerate(files)
        ]
        try:
            codes = [it.wait(timeout=LIMIT_SECONDS) for it in started]
        finally:
            for it in started:
                it.kill()
        for file in (it for of_rank in files for it in of_rank):
            file.seek(0)
        assert codes == [0] * ranks, "\n".join(errors.read().decode() for _, _, errors in files)
        return [output.read() for _, output, _ in files]
