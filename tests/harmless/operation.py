"""One row of the table: something that a training script may do to files."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import Literal, TypeAlias

Group: TypeAlias = Literal["plain", "libraries", "torch"]
InNamespaces: TypeAlias = Literal["same", "denied", "differs"]
InFence: TypeAlias = Literal["same", "denied", "differs", "gap"]
InNone: TypeAlias = Literal["same", "differs", "harms"]


@dataclass(frozen=True, slots=True)
class Operation:
    """Python source, run in a folder of its own that holds a small project, and its expected result in a trial.

    ``code`` is the body of a function that returns what the script observed, as plain data without paths or times; the
    functions of ``inside.py`` are at hand. ``setup`` is shell, run in the row's folder before the launch.

    ``namespaces``: the same result as without hotlap (``same``), an error (``denied``) or another result
    (``differs``). ``fence``: also a change of what the kernel cannot deny (``gap``). ``none``: the same result, another
    one or an error (``differs``), or a change of the user's files (``harms``).

    Rows of one ``group`` share a launch. Those of ``plain`` run in a fork each, which is killed after
    ``longest_seconds``.
    """

    name: str
    code: str
    needs: tuple[str, ...] = ()
    fence: InFence = "same"
    none: InNone = "same"
    namespaces: InNamespaces = "same"
    setup: str = ""
    group: Group = "plain"
    topic: str = ""
    longest_seconds: float = 30.0

    def missing(self) -> str | None:
        """The first package or program that it needs and that is not installed here; None if all are."""
        for need in self.needs:
            if shutil.which(need) is None and importlib.util.find_spec(need) is None:
                return need
        return None


def native(
    name: str,
    code: str,
    *,
    needs: tuple[str, ...] = (),
    fence: InFence = "denied",
    none: InNone = "harms",
    namespaces: InNamespaces = "same",
    setup: str = "",
    group: Group = "plain",
) -> Operation:
    """A row that writes without Python's functions, so that only the kernel can redirect or deny it."""
    return Operation(name, code, needs, fence, none, namespaces, setup, group)


def for_others(differs: InNamespaces) -> InNamespaces:
    """The result of a row in namespaces that are not an administrator's, whose layers alone keep the names of a
    linked file together and rename folders that were there before (docs/isolation.md)."""
    return "same" if os.geteuid() == 0 else differs


def library(package: str, name: str, code: str, fence: InFence = "same", none: InNone = "same") -> Operation:
    """A row that needs a package with native code, run in the launch of all of these."""
    return Operation(name, code, needs=(package,), fence=fence, none=none, group="libraries")
