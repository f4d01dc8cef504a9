"""Removing folders that may hold folders without permissions, as overlayfs leaves them; links are never followed."""

from __future__ import annotations

import os
import stat


def remove(path: str) -> bool:
    """Remove a file or a whole folder as far as may be; whether nothing is left of it. Never raises ``OSError``."""
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(path)
            return True
        if status.st_mode & 0o700 != 0o700:
            os.chmod(path, 0o700)
        names = os.listdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    gone = [remove(os.path.join(path, name)) for name in names]
    try:
        os.rmdir(path)
    except OSError:
        return False
    return all(gone)
