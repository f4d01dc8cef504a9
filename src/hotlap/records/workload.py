"""What is run, and with which plan."""

from __future__ import annotations

import importlib
import os
from typing import Literal, TypeAlias

from hotlap.records.base import Record, Values


class Checkout(Record, frozen=True, kw_only=True):
    """A copy of the user's source tree, in which a workload runs in the place of the tree itself.

    ``original`` is the tree's topmost folder and ``copy`` the copy's. ``revision`` is the git commit that was
    copied; empty for the tree with its uncommitted changes. Folders of the original on Python's module search path are
    replaced by those of the copy, and ``python_path`` adds folders of the copy.
    """

    original: str
    copy: str
    revision: str = ""
    python_path: tuple[str, ...] = ()


class Workload(Record, frozen=True, kw_only=True):
    """The user's command: what python is told to run, and where.

    ``kind`` is ``script`` (``target`` is a path), ``module`` (``target`` is a dotted name, run as ``python -m`` does)
    or ``inference``: ``target`` names a function that returns a model (``module:make_model``) or, without a colon, the
    path of a saved one, ``arguments`` are those of ``hotlap infer``, and :mod:`hotlap.runtime.inference` calls the
    model. ``torchrun train.py`` is the module ``torch.distributed.run``. ``checkout`` is given where it runs in a copy
    of its source tree. ``interpreter_options`` are those of ``python`` itself, such as ``-u``. ``python_named``: the
    command line chose the interpreter, so that commands which repeat it must name it too.
    """

    kind: Literal["script", "module", "inference"]
    target: str
    arguments: tuple[str, ...] = ()
    directory: str
    python: str
    checkout: Checkout | None = None
    interpreter_options: tuple[str, ...] = ()
    python_named: bool = False


class Source(Record, frozen=True, kw_only=True):
    """The state of the user's source, if known.

    ``git_revision`` is the commit that was checked out (empty: no repository, or no git). ``git_modified`` says whether
    files that git tracks differed from it (None: not known). ``script_sha256`` is the script's own digest (empty: it
    was not found, or is very large).
    """

    git_revision: str = ""
    git_modified: bool | None = None
    script_sha256: str = ""


class Setting(Record, frozen=True, kw_only=True):
    """One lever with the values it is used with; ``values`` is sorted by key."""

    lever: str
    values: Values = ()


class Plan(Record, frozen=True, kw_only=True):
    """The levers that are switched on together, in the order in which they are installed."""

    settings: tuple[Setting, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the levers as a plan file, for ``hotlap run`` and :func:`hotlap.apply`.

        What the plan gave is not in it: ``plan_path`` of :func:`hotlap.tune` writes that too. Raises
        :class:`hotlap.errors.PlanError` when the file cannot be written.
        """
        importlib.import_module("hotlap.plan").save(self, path)


class Move(Record, frozen=True, kw_only=True):
    """What a search tries at once: settings of different levers that enter a plan together or not at all."""

    settings: tuple[Setting, ...] = ()


StepSource: TypeAlias = Literal["auto", "optimizer", "backward", "call"]
"""What ends a unit of work, which is called a step whatever it is: an optimizer's update, a backward, or a call of the
model of an inference target; ``auto`` is an update, or a backward where there is no optimizer."""
