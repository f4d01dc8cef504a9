"""Run a script while its connections are watched, then print the hosts as JSON on the last line.

Arguments: the run's folder, and the script's source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hotlap.runtime.connections import hosts, watch_connections

watch_connections(Path(sys.argv[1]))
exec(compile(sys.argv[2], "script.py", "exec"), {"__name__": "__main__"})
print(json.dumps(hosts()))
