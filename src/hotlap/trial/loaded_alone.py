"""What a deployed model returns in a fresh process, in which hotlap cannot be imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.errors import ArtefactError
from hotlap.measure.quality import Unreadable, outputs_of
from hotlap.sandbox.order import NONE, Order
from hotlap.trial import artefact_program
from hotlap.trial.output import read_tail
from hotlap.trial.process import OwnedProcess

_OUTPUTS = "outputs.npz"


def outputs_when_loaded_alone(python: str, folder: Path, inputs: Path, *, limit_seconds: float) -> Mapping[str, Any]:
    """Load the model of a folder with an interpreter, and call it with each input of an archive.

    The result holds the outputs (``0/logits``), ``load_seconds``, ``resting_bytes`` and ``call_seconds``. Raises
    :class:`ArtefactError` when the model cannot be loaded or called.
    """
    process = OwnedProcess()
    outputs, output = process.folder / _OUTPUTS, process.folder / "output"
    command = [python, artefact_program.__file__, str(folder), str(inputs), str(outputs)]
    try:
        process.start(
            command,
            directory=str(folder),
            environment={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            output=output,
            # Not isolated, but ended by the launcher when we and the watchdog are killed.
            order=Order(command=command, directory=str(folder), mode=NONE, owned=[str(process.folder)]),
        )
        in_time = process.wait(limit_seconds)
        status = process.end()
        said = read_tail(output).strip()
        found = outputs_of(str(outputs)) if in_time and status == 0 else None
    except Unreadable as error:
        raise ArtefactError(str(error), remedy="Run the command again.") from error
    finally:
        process.kill()
    if not in_time:
        raise ArtefactError(
            f"The written model did not answer within {limit_seconds:g} seconds, in a fresh process.",
            remedy="Run the command again, with a larger --startup-limit.",
        )
    if found is None:
        reason = said.rpartition("\n")[2] or f"exit status {status}"
        raise ArtefactError(
            f"The written model does not run in a fresh process without hotlap: {reason}", remedy=said[-2000:]
        )
    return found
