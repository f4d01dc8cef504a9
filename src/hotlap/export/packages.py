"""Import libraries that only an export needs, with an error that names what to install."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hotlap.errors import UsageError


def imported(module: str, *, extra: str) -> Any:
    """Import a module, only when its export was requested.

    Raises :class:`UsageError` that names the extra to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"This export needs a package that cannot be imported: {error}.",
            remedy=f'Install it with `pip install "hotlap[{extra}]"`.',
        ) from error


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process while the block runs, then restore them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, it in before.items():
            if it is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = it
