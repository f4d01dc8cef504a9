"""Run a script in which trackers are silenced, then print the notes for the report as JSON on the last line.

Arguments: the folder for what trackers keep, and the script's source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hotlap.runtime.imports import ImportWatch
from hotlap.runtime.silenced import WATCHED, Silencer

silencer = Silencer(Path(sys.argv[1]))
ImportWatch(WATCHED, silencer.on_import, silencer.on_import).start()
exec(compile(sys.argv[2], "script.py", "exec"), {"__name__": "__main__"})
print(json.dumps(silencer.notes))
