"""``hotlap diff``: what got slower between two traces or studies, and why."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.answers import add_full_options, show_answer
from hotlap.cli.arguments import Parser
from hotlap.cli.trace import read_all
from hotlap.compare import Side, difference, side_of_study, side_of_traces
from hotlap.diagnose import Profile
from hotlap.errors import StudyError, TraceError, UsageError
from hotlap.experiment.profiled_launch import ATTACHMENT
from hotlap.files import open_regular
from hotlap.records import Study
from hotlap.render.diff import diff_report, diff_summary
from hotlap.study import JOURNAL, attachment_of
from hotlap.traces import Breakdown, HostTime, OperatorRow, host_time, operators, read_trace

_DESCRIPTION = """\
Compares two runs: two traces of torch.profiler, two studies of `hotlap profile` or `hotlap tune`,
or one of each. Says whether a step became slower, which of its parts did, which kernels came, went
or are launched more often, and what else differs. Nothing is measured."""

_EXAMPLES = """\
examples:
  hotlap diff before.json.gz after.json.gz
  hotlap diff runs/monday runs/friday           folders of traces, for example one a rank
  hotlap diff .hotlap/profile/A .hotlap/profile/B
  hotlap diff --json before.json after.json     one JSON document; times are seconds"""

_KERNELS = 100_000
"""Rows of a kernel table: all of them, so that what is missing in one trace is known not to have run."""

_HEAD_BYTES = 4096


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap diff", _DESCRIPTION, _EXAMPLES, usage="hotlap diff [options] BEFORE AFTER")
    made.add_argument("before", type=Path, metavar="BEFORE", help="a trace, a folder of traces, or a study")
    made.add_argument("after", type=Path, metavar="AFTER", help="another one")
    add_full_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    before, after = _side(choices.before), _side(choices.after)
    if before.marks_steps != after.marks_steps:
        unmarked = before if after.marks_steps else after
        raise UsageError(
            "This trace has no step marks, so it cannot be compared with a trace that has.",
            where=unmarked.path,
            remedy="Record it again with a schedule and `profiler.step()` after each step, or compare two traces "
            "without marks.",
        )
    found = difference(before, after)
    if choices.json:
        screen.document("diff", found)
    else:
        sides = str(choices.before), str(choices.after)
        show_answer(choices, lambda: diff_summary(found, *sides), lambda: diff_report(found))
    return 0


def _side(path: Path) -> Side:
    if _is_study(path):
        return _study_side(path)
    return _traces_side(path)


# ---------------------------------------------------------------------------------------------
# Traces or studies
# ---------------------------------------------------------------------------------------------


def _is_study(path: Path) -> bool:
    """A study's folder, a folder of studies, or a study as one JSON document. Raises :class:`UsageError` for what
    cannot be read."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return any(any(path.glob(f"{above}{JOURNAL}")) for above in ("", "*/", "*/*/"))
        return stat.S_ISREG(mode) and (path.name == JOURNAL or _begins_as_study(path))
    except OSError as error:
        raise UsageError(
            f"This cannot be read: {error.strerror or error}.", where=str(path), remedy="Check the path."
        ) from None


def _begins_as_study(path: Path) -> bool:
    """Return whether a file begins like a study; a trace may be too large to parse."""
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES).lstrip()
    return head.startswith(b"{") and b'"format_version"' in head and b'"traceEvents"' not in head


# ---------------------------------------------------------------------------------------------
# Reading them
# ---------------------------------------------------------------------------------------------


def _study_side(path: Path) -> Side:
    study = api.load_study(path)
    if study.account_before is None or study.account_before.wall <= 0:
        raise StudyError(
            "This study ended before it measured where a step's time goes.",
            where=str(path),
            remedy="Compare a study that has a time account; `hotlap report` shows how far this one got.",
        )
    profile = _profile_of(study)
    return side_of_study(_shown(path, study), study, profile.breakdowns, profile.operators, profile.host_time)


def _profile_of(study: Study) -> Profile:
    """Read what the profiled launch recorded; None without one, or without its folder."""
    found = attachment_of(Path(study.directory), ATTACHMENT, Profile) if study.directory else None
    return found or Profile()


def _shown(path: Path, study: Study) -> str:
    """Return the study that was chosen from a folder of studies."""
    return study.directory if study.directory and path.is_dir() else str(path)


def _traces_side(path: Path) -> Side:
    """Read the traces of a folder; other files are left out, with a note."""
    try:
        breakdowns, skipped = read_all(path, kernels=_KERNELS)
    except TraceError as error:
        raise TraceError(
            f"This is neither a study nor a trace. {error.what}", where=error.where or str(path), remedy=error.remedy
        ) from error
    side = side_of_traces(str(path), breakdowns, *_host_side(breakdowns[0]))
    doubts = tuple(f"{name} was left out: {why}" for name, why in skipped)
    return msgspec.structs.replace(side, doubts=(*side.doubts, *doubts))


def _host_side(breakdown: Breakdown) -> tuple[tuple[OperatorRow, ...], HostTime | None]:
    """Read operators and host time again from a trace without a device."""
    if breakdown.devices:
        return (), None
    timeline = read_trace(breakdown.facts.path, with_inputs=True)
    return operators(timeline), host_time(timeline)
