"""All errors that hotlap raises deliberately.

An error says what happened, where, and what to do next. The command line prints that without a traceback
(``--debug`` shows one); a library user catches :class:`HotlapError` or one of its subclasses.
"""

from __future__ import annotations

NOT_BOOTED = 117
"""The exit code of a user's process that ended because hotlap could not work in it."""


class HotlapError(Exception):
    """An error that the user can act on.

    ``what`` is one sentence on what happened, ``remedy`` what to do about it. ``where`` is the file, line or command,
    if that helps. ``exit_code`` is that of the command.
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
    """The command line or an argument is invalid."""


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


class ClusterError(HotlapError):
    """A cluster cannot be reached, or has no node for trials."""


class BudgetError(UsageError):
    """The time budget is too small for a lab or a check; ``needed_seconds`` would suffice."""

    def __init__(self, what: str, *, remedy: str, where: str = "", needed_seconds: float) -> None:
        super().__init__(what, remedy=remedy, where=where)
        self.needed_seconds = needed_seconds


class MissingPackageError(HotlapError):
    """The request needs a package of one of hotlap's extras that is not installed."""


class LeverError(HotlapError):
    """A lever file is broken, or two levers share a name."""


class PatchError(HotlapError):
    """There is no patch: nothing can be written into the source, the result differs from that of the levers, or the
    files have changed since."""

    exit_code = 1


class ArtefactError(HotlapError):
    """A model cannot be written in a deployable form, or its files do not return what the model returned."""

    exit_code = 1


class TraceError(HotlapError):
    """A file is not a readable trace, or a trace contains nothing to analyse."""


class LintError(HotlapError):
    """A lint rule's file or the lint configuration is broken, or there is nothing to check."""
