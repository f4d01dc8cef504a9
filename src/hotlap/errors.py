"""Every error that hotlap raises on purpose.

An error is written for the person who reads it: what happened, where, and what to do next. The
command line prints exactly that and no traceback (``--debug`` shows one); a library user catches
:class:`HotlapError` or one of its children.
"""

from __future__ import annotations

NOT_BOOTED = 117
"""Exit code of a process of the user's that was ended because hotlap could not do its work in it."""


class HotlapError(Exception):
    """Something a person can act on.

    ``what`` says what happened, as one sentence. ``remedy`` says what to do about it. ``where`` is
    the file, line or command it happened in, where that helps. ``exit_code`` is the command line's.
    """

    exit_code = 2

    def __init__(self, what: str, *, remedy: str, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.where = where

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.what}{place} {self.remedy}"


class UsageError(HotlapError):
    """The command line or an argument makes no sense."""


class PlanError(HotlapError):
    """A plan cannot be read, or names a lever or a value that does not exist."""


class ScriptError(HotlapError):
    """The user's script cannot be started, failed, or has nothing to tune.

    Carries the script's own exit code, which becomes the command's.
    """

    exit_code = 1

    def __init__(self, what: str, *, remedy: str, where: str = "", exit_code: int = 1) -> None:
        super().__init__(what, remedy=remedy, where=where)
        self.exit_code = exit_code or 1


class StudyError(HotlapError):
    """A study cannot be written, read, locked or resumed."""


class BudgetError(UsageError):
    """The time budget is too small for what a lab or a check compares; ``needed_seconds`` would do."""

    def __init__(self, what: str, *, remedy: str, where: str = "", needed_seconds: float) -> None:
        super().__init__(what, remedy=remedy, where=where)
        self.needed_seconds = needed_seconds


class MissingPackageError(HotlapError):
    """What was asked for needs a package that is not installed: one of hotlap's extras."""


class LeverError(HotlapError):
    """A lever file is broken, or two levers share a name."""


class PatchError(HotlapError):
    """There is no patch: nothing can be written into the source, it does not do what the levers do, or the files have
    changed since."""

    exit_code = 1


class TraceError(HotlapError):
    """A file is no trace that can be read, or a trace holds nothing that can be analysed."""


class LintError(HotlapError):
    """A lint rule's file or the lint configuration is broken, or there is nothing to check."""
