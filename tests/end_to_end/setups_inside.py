"""One trial in surroundings that a test has prepared (another user, mounts of its own), told on standard output:
``python setups_inside.py PROJECT RUNS MODE [NETWORK]``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))

from setting_up import Setup, output_of, seen  # noqa: E402

from hotlap.errors import HotlapError  # noqa: E402
from hotlap.records import Crashed, Isolation  # noqa: E402
from hotlap.trial.isolating import Isolator  # noqa: E402


def tell(project: Path, runs: Path, mode: str) -> dict[str, Any]:
    """The outcome of the trial, and whether the project is unchanged."""
    os.chdir(project)
    before = seen(project)
    told: dict[str, Any] = {}
    demanded: Any = None if mode == "any" else mode
    try:
        protection = Isolator(Isolation(mode=demanded), runs, {}).protection
        told |= {"mode": protection.mode, "reasons": protection.reasons}
        run = Setup(project, runs, demanded).launch(steps=1000)
        crash = run.ending if isinstance(run.ending, Crashed) else None
        told |= {"ending": type(run.ending).__name__, "error": crash.error if crash else ""}
        told |= {"output": output_of(run), "denied": crash.denied_path if crash else ""}
    except HotlapError as error:
        told |= {"refused": str(error)}
    return told | {"same": seen(project) == before}


if __name__ == "__main__":
    print(json.dumps(tell(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
