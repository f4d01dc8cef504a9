"""``python -m hotlap`` is the command ``hotlap``."""

import sys

from hotlap.cli.entry import run

sys.exit(run())
