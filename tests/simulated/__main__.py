"""``PYTHONPATH=tests python -m simulated --device t4 COMMAND...``: run a command on a simulated device.

All that it starts has the device as well. Exits as the command does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from simulated.environment import simulated_device
from simulated.library import NoCompiler
from simulated.profile import FOLDER

BUILD = Path(__file__).resolve().parents[2] / "build" / "simulated"


def main() -> int:
    """The command's exit code; 2 where nothing here compiles C++."""
    parser = argparse.ArgumentParser(prog="python -m simulated", description=__doc__)
    kinds = ", ".join(sorted(it.stem for it in FOLDER.iterdir()))
    parser.add_argument("--device", default="a100", help=f"one of {kinds}")
    parser.add_argument("--devices", type=int, default=1, metavar="COUNT", help="how many of them")
    parser.add_argument("--scenario", type=Path, help="a file with what differs from the device's own")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    scenario = options.scenario.read_text(encoding="utf-8") if options.scenario else ""
    with tempfile.TemporaryDirectory(prefix="simulated-") as folder:
        try:
            device = simulated_device(options.device, Path(folder), BUILD, count=options.devices, scenario=scenario)
        except NoCompiler as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return subprocess.run(options.command, env={**os.environ, **device.variables}, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
