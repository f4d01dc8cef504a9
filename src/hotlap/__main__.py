"""``python -m hotlap`` is the command ``hotlap``."""

import sys

from hotlap.cli.main import main

sys.exit(main())
