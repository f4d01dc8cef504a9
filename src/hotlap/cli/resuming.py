"""Continue an interrupted study: find it, see that this command made it, and run its own procedure again."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.cli import studies
from hotlap.cli.arguments import Parser
from hotlap.cli.named import named_folder
from hotlap.cli.trust import add_trust_option
from hotlap.cli.workload import workload_from
from hotlap.errors import UsageError
from hotlap.experiment.options import Options
from hotlap.records import StudyKind
from hotlap.study import JOURNAL, Need, command_of, read_header, resumes


def add_resume_option(parser: Parser) -> None:
    """Add ``--resume``, and ``--yes`` for a study that was not made here."""
    parser.add_argument("--resume", action="store_true", help="continue a study, by default the last one")
    add_trust_option(parser)


def resumed(
    choices: argparse.Namespace,
    target: list[str],
    root: Path,
    need: Need,
    engine: api.Engine,
    procedures: Mapping[StudyKind, api.Search],
    agrees: Callable[[Options], None] = lambda stored: None,
) -> int:
    """Continue the study that ``target`` names, or the last suitable one under ``root``; return the exit code.

    ``target`` may have the study's command again after its folder, where that holds secrets. Raises
    :class:`UsageError` for a study of a kind that ``procedures`` lacks, and where ``agrees`` raises it for the study's
    options.
    """
    path, command = _study_named(target, root)
    folder = named_folder(path, need)
    found = api.load_study(folder)
    if found.kind not in procedures:
        made_by = command_of(found)
        raise UsageError(
            f"The study {folder.name} was made by `hotlap {made_by}`.",
            remedy=f"Continue it with `hotlap {made_by} --resume {folder}`."
            if resumes(found)
            else f"Studies of `hotlap {made_by}` cannot be resumed: run that command again.",
        )
    agrees(msgspec.json.decode(read_header(folder / JOURNAL).options, type=Options))
    given = workload_from(command, command_of(found)) if command else None
    return studies.resumed_study(choices, folder, given, engine, procedures[found.kind])


def _study_named(words: list[str], root: Path) -> tuple[Path, list[str]]:
    """Return the study to resume, and the command that was given again, if any."""
    if not words:
        return root, []
    path = Path(words[0])
    if path.is_dir() and not (path / "__main__.py").exists():
        return path, words[1:]
    if len(words) > 1 or path.is_dir():
        return root, words
    raise UsageError(
        f"{words[0]!r} is not the folder of a study.",
        remedy="After --resume give a study's folder or nothing. The study stores its script and arguments; give "
        "the whole command again only if they contain secrets.",
    )
