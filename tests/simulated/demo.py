"""``make device-demo``: ``hotlap profile``, or another command, on a small script and a simulated device.

What it shows is how hotlap treats a device. No figure of it is one of real hardware.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from simulated.__main__ import BUILD
from simulated.environment import simulated_device
from simulated.library import NoCompiler
from simulated.profile import FOLDER

SCRIPT = Path(__file__).with_name("demo_train.py")
SLOW = "[device]\nslower = 50\n"
BANNER = """\
{line}
  S I M U L A T I O N: there is no such device here ({device}, made fifty
  times as slow). Its times follow from a table of rates. They prove logic
  and no speed: quote none of them.
{line}
"""


def main() -> int:
    """The command's exit code; 0 where nothing here compiles C++, which is said."""
    parser = argparse.ArgumentParser(prog="python -m simulated.demo", description=__doc__)
    parser.add_argument("--device", default="a100", choices=sorted(it.stem for it in FOLDER.iterdir()))
    parser.add_argument("--build", type=Path, default=BUILD, help="where the compiled device is kept")
    parser.add_argument("command", nargs="*", default=["profile", "--full"], help="hotlap's command and its options")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="simulated-") as folder:
        try:
            device = simulated_device(options.device, Path(folder, "device"), options.build, scenario=SLOW)
        except NoCompiler as error:
            sys.stdout.write(f"{error} So there is no demonstration.\n")
            return 0
        script = Path(folder, "project", "train.py")
        script.parent.mkdir()
        script.write_bytes(SCRIPT.read_bytes())
        banner = BANNER.format(line="=" * 72, device=options.device)
        sys.stdout.write(banner)
        sys.stdout.flush()
        command = [sys.executable, "-m", "hotlap", *options.command, str(script)]
        done = subprocess.run(command, env={**os.environ, **device.variables}, cwd=script.parent, check=False)
        sys.stdout.write(banner)
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
