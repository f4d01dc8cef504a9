"""Run a study from the command line: progress, plan file, report, exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.answers import show_answer
from hotlap.cli.costs import costs_of
from hotlap.cli.trust import approval, only
from hotlap.errors import ScriptError, StudyError
from hotlap.experiment.options import Options
from hotlap.records import Completed, Crashed, Study, Workload
from hotlap.render import text
from hotlap.render.json import study_json
from hotlap.render.live import LiveView
from hotlap.render.summary import summary
from hotlap.render.terminal import report
from hotlap.study import opening_of

INTERRUPTED = 130
NO_PROOF = 4
_LAST_LINES = 15


def new_study(
    choices: argparse.Namespace,
    workload: Workload,
    options: Options,
    root: Path,
    engine: api.Engine,
    search: api.Search,
) -> int:
    """Run a new study and return its exit code.

    Raises :class:`hotlap.errors.HotlapError`.
    """
    begin = partial(api.begin, workload, options, root=root, executor=engine.executor, search=search)
    return _carry_out(choices, workload, begin)


def resumed_study(
    choices: argparse.Namespace, path: Path, given: Workload | None, engine: api.Engine, search: api.Search
) -> int:
    """Resume an interrupted study by the procedure that made it, and return its exit code.

    ``given`` is its command again, if that contains secrets. Raises :class:`hotlap.errors.HotlapError`.
    """
    path = path.absolute()
    opening = opening_of(path, given)
    approval(choices)(opening)  # before the live display could cover the question
    go_on = partial(api.go_on, path, approve=only(opening), given=given, executor=engine.executor, search=search)
    return _carry_out(choices, given, go_on)


def exit_code(found: Study) -> int:
    """0 for an answer, gain or not; the script's own code where it failed; 130 after Ctrl-C; 4 where the budget allowed
    only a quick look, and none was asked for."""
    if found.status == "interrupted":
        return INTERRUPTED
    if found.status == "quick-look" and not found.quick:
        return NO_PROOF
    if found.status != "script-failed":
        return 0
    ending = found.baseline.ending if found.baseline is not None else None
    code = ending.exit_code if isinstance(ending, (Crashed, Completed)) else 1
    return 128 - code if code < 0 else code or 1


def _carry_out(choices: argparse.Namespace, workload: Workload | None, study: Callable[..., Study]) -> int:
    console = screen.err()
    opened: list[Path] = []
    try:
        if choices.quiet:
            found = study(on_progress=lambda progress: None, on_opened=opened.append)
        else:
            with LiveView(console, workload, interactive=screen.redraws(console) and not choices.show_output) as view:
                found = study(on_progress=view.update, on_opened=opened.append)
    except ScriptError:
        if opened:
            _show_failure(api.load_study(opened[0]), choices)
        raise
    try:
        written = _write_plan(found, choices.plan_out)
    except StudyError:
        _show(found, choices, plan_path="")
        raise
    _show(found, choices, plan_path=written)
    return exit_code(found)


def _show(found: Study, choices: argparse.Namespace, *, plan_path: str) -> None:
    costs = costs_of(found, choices)
    if choices.json:
        screen.say(study_json(found, costs))
    else:
        show_answer(
            choices,
            lambda: summary(found, plan_path=plan_path, costs=costs),
            lambda: report(found, plan_path=plan_path, costs=costs),
        )


def _show_failure(found: Study, choices: argparse.Namespace) -> None:
    """Print the study as JSON with ``--json``, else the end of the script's output."""
    if choices.json:
        screen.say(study_json(found))
        return
    ending = found.baseline.ending if found.baseline is not None else None
    output = text.last_lines(getattr(ending, "output_tail", ""), _LAST_LINES)
    if output and not choices.show_output:
        screen.quote(output)


def _write_plan(found: Study, path: Path | None) -> str:
    """Write the plan if there is one; return its path, or None."""
    if path is None or not found.plan.settings:
        return ""
    api.write_plan(found, path)
    return str(path)
