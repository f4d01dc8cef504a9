"""Libraries that only an export needs, and what to say where one is absent."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hotlap.errors import UsageError


def imported(module: str, *, extra: str) -> Any:
    """The module; nothing is imported before a person asked for this export.

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
    """These variables while the block runs, in this process and nowhere else; then what was there before."""
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
