"""Which places a trial may write to: the user's files are protected, shared temporary places are not.

The nearest root above a path decides. The working directory and the home are protected, also inside the temporary
directory; the temporary directory, devices, the study and the caches that libraries keep are not, also inside the home.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotlap.files import home_directory
from hotlap.sandbox.boundary import Boundary
from hotlap.sandbox.caches import cache_folders

_DEVICES = ("/dev", "/proc", "/sys")


@dataclass(frozen=True)
class Places:
    """``roots`` says for some directories whether their content is protected; ``unnamed`` are those whose files
    reports leave out."""

    roots: Mapping[str, bool]
    caches: frozenset[str]
    unnamed: frozenset[str]

    def name_for(self, path: str) -> str | None:
        """How the report names a path that was written to without redirection: a cache by its folder, a file in the
        temporary directory, the study or a device not at all."""
        inside = path
        for parent in _upwards(path):
            if parent in self.caches:
                is_home_cache = parent.endswith("/.cache")
                return inside if is_home_cache else parent
            if parent in self.roots:
                return None if parent in self.unnamed else path
            inside = parent
        return path


def find_places(passthrough: Sequence[Path], environment: Mapping[str, str], protected: Sequence[Path] = ()) -> Places:
    """The places of this machine and user, all as canonical paths."""
    known = home_directory()
    home, working = _canonical(known) if known is not None else "", _canonical(Path.cwd())
    own = {working, *filter(None, [home]), *map(_canonical, protected)}
    caches = set(cache_folders(environment, home, own))
    unnamed = {_canonical(Path(_temporary_directory())), *_DEVICES} - own
    study = {_canonical(path) for path in passthrough}
    roots = {
        **dict.fromkeys(caches | unnamed, False),
        **dict.fromkeys(own, True),
        **dict.fromkeys(study, False),
    }
    return Places(roots, frozenset(caches), frozenset(unnamed | study))


def places_within(boundary: Boundary, overlay: str, protected: Sequence[Path] = ()) -> Places:
    """The places of a run that may change only what its boundary allows. ``protected`` are further folders of the
    user's. Nothing is looked for, neither in the environment nor on the disk."""
    own = {*boundary.protected, *map(_canonical, protected)}
    run = {*boundary.run, overlay}
    roots = {
        "/": True,
        **dict.fromkeys((*_DEVICES, *boundary.caches), False),
        **dict.fromkeys(own, True),
        **dict.fromkeys(run, False),
    }
    return Places(roots, frozenset(boundary.caches), frozenset(run.union(_DEVICES)))


def _temporary_directory() -> str:
    """As the script will find it, unless it sets TMPDIR first: what ``tempfile`` remembers is put back."""
    remembered = tempfile.tempdir
    found = tempfile.gettempdir()
    tempfile.tempdir = remembered
    return found


def _canonical(path: Path) -> str:
    return os.path.realpath(path.expanduser())


def _upwards(path: str) -> list[str]:
    return [path, *(str(parent) for parent in Path(path).parents)]
