"""Write the HTML report from the study's folder. Nothing is measured."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from hotlap import study as studies
from hotlap.cli.arguments import Parser
from hotlap.cli.source_lines import source_lines
from hotlap.diagnose.profile import Profile
from hotlap.errors import HotlapError, StudyError, TraceError, UsageError
from hotlap.experiment.options import BatchChoices, EstimateChoices, Options
from hotlap.files import open_regular, replace
from hotlap.objective import option_words
from hotlap.records import Costs, Patch, Study
from hotlap.render import text
from hotlap.render.html.page import GENERATOR, page
from hotlap.render.material import Material
from hotlap.render.patch import patch_text
from hotlap.render.presentable import presentable
from hotlap.traces import read_trace
from hotlap.traces.lanes import Lanes, lanes_of, lanes_of_both
from hotlap.traces.timeline import Timeline

_LARGEST_TRACE_BYTES = 256 * 2**20
_HEAD_BYTES = 4096


def write_page(study: Study, path: Path, costs: Costs | None, plan_path: str) -> None:
    """Write the report atomically over an existing one. ``plan_path`` is that of the study's plan, or empty.

    Raises :class:`HotlapError`.
    """
    made = page(_material(study, costs, plan_path))
    try:
        replace(path, made.encode("utf-8"))
    except OSError as error:
        raise HotlapError(
            f"The report {path} cannot be written: {error.strerror or error}.",
            remedy="Give another path: `hotlap report --html PATH`.",
        ) from error


def write_report(study: Study, path: str | os.PathLike[str]) -> None:
    """Write the report for a program, which knows no prices. Raises :class:`HotlapError`, also for a foreign file."""
    check_place(Path(path))
    write_page(study, Path(path), None, "")


def check_place(path: Path) -> None:
    """Refuse to overwrite anything but a report of hotlap.

    Raises :class:`UsageError` if the path is anything else.
    """
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, but --html takes the file to write.",
            remedy="Name the study first: `hotlap report STUDY --html`.",
        )
    if not path.exists():
        return
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise UsageError(
            f"{path} exists and cannot be read: {error.strerror or error}.", remedy="Give another file."
        ) from error
    if head and f'name="generator" content="{GENERATOR}"'.encode() not in head:
        raise UsageError(
            f"{path} exists and is not a report of hotlap, so it was not overwritten.",
            remedy="Give another file, or move that one away.",
        )


def _material(study: Study, costs: Costs | None, plan_path: str) -> Material:
    directory = Path(study.directory)
    options = _options(directory)
    patch = studies.attachment_of(directory, studies.PATCH, Patch)
    profile = studies.attachment_of(directory, studies.PROFILE, Profile)
    lanes, plan_lanes = _lanes(study)
    return Material(
        study=study,
        profile=profile,
        source_lines=source_lines(study, profile),
        lanes=lanes,
        plan_profile=_plan_profile(study, directory),
        plan_lanes=plan_lanes,
        command=_command(presentable(study, study.workload.directory), options),
        seed=options.seed if options is not None else None,
        patch=patch_text(patch) if patch is not None else "",
        costs=costs,
        plan_path=plan_path,
    )


def _options(directory: Path) -> Options | None:
    """Read the study's options; None if its journal is missing or incompatible."""
    try:
        header = studies.read_header(directory / studies.JOURNAL)
        return msgspec.json.decode(header.options, type=Options)
    except (StudyError, msgspec.MsgspecError):
        return None


def _plan_profile(study: Study, directory: Path) -> Profile | None:
    """Return what was seen with the plan of the study; None if there is nothing, or only of another plan."""
    found = studies.attachment_of(directory, studies.PLAN_PROFILE, Profile) if study.plan_profiled_steps else None
    return found if found is not None and found.plan == study.plan else None


def _lanes(study: Study) -> tuple[Lanes | None, Lanes | None]:
    """Read the profiled steps without and with the plan; None for a trace that is missing or unreadable."""
    before, after = _timeline(study.trace_path), _timeline(study.plan_trace_path)
    if before is not None and after is not None:
        return lanes_of_both(before, after)
    return (lanes_of(before) if before is not None else None), None


def _timeline(trace_path: str) -> Timeline | None:
    if not trace_path:
        return None
    try:
        open_regular(Path(trace_path), _LARGEST_TRACE_BYTES).close()
        return read_trace(trace_path)
    except (TraceError, OSError):
        return None


def _command(study: Study, options: Options | None) -> str:
    """Return the command that made the study, as one would type it again."""
    command = studies.command_of(study)
    parser: Parser = importlib.import_module(f"hotlap.cli.{command}").parser()
    changed = _as_typed(study, options, parser) if options is not None else ()
    words = [
        "hotlap",
        command,
        *(word for option in changed if option[0].partition("=")[0] in parser.flags for word in option),
    ]
    return f"{shlex.join(words)} {text.command(study.workload)}"


def _as_typed(study: Study, options: Options, parser: Parser) -> Iterator[Sequence[str]]:
    """Return the options with which the study was begun: as they were typed, where that is known."""
    if not study.repeated_options:
        yield from _changed(options, parser)
        return
    if options.quick:
        yield ("--quick",)
    if options.budget_seconds is not None:
        yield "--budget", f"{options.budget_seconds:g}s"
    yield from (typed for _, typed in parser.options_in(study.repeated_options))


def _changed(options: Options, parser: Parser) -> Iterator[Sequence[str]]:
    """Return the options that differ from the command's defaults, with their values."""
    usual = parser.get_default
    if options.budget_seconds is not None:
        yield "--budget", f"{options.budget_seconds:g}s"
    if options.seed != usual("seed"):
        yield "--seed", str(options.seed)
    goal = option_words(options.objective)
    if goal:
        yield goal
    for flag, names in (("--only", options.only), ("--skip", options.skip), ("--allow", options.allow)):
        if names:
            yield flag, ",".join(names)
    if options.sample_cache_bytes:
        yield "--sample-cache", f"{options.sample_cache_bytes}B"
    if options.quality != Options().quality:
        yield "--quality", f"{options.quality:g}"
    if options.accept_unverified:
        yield ("--accept-unverified",)
    if options.delta != usual("delta"):
        yield "--delta", f"{options.delta:g}"
    if options.parity_steps != usual("parity_steps"):
        yield "--parity-steps", str(options.parity_steps)
    if options.rounds is not None:
        yield "--rounds", str(options.rounds)
    if options.memory_steps != Options().memory_steps:
        yield "--steps", str(options.memory_steps)
    if options.estimate is not None:
        yield from _of_estimate(options.estimate)
    if options.batch_sizes:
        yield ("--batch-sizes",)
    yield from _of_batch(options.batch)


def _of_batch(choices: BatchChoices) -> Iterator[Sequence[str]]:
    usual = BatchChoices()
    if choices.flag:
        yield (f"--batch-flag={choices.flag}",)
    if choices.headroom != usual.headroom:
        yield "--headroom", f"{choices.headroom:g}"
    if choices.most is not None:
        yield "--max-batch-size", str(choices.most)
    if choices.model_alone:
        yield ("--model-alone",)


def _of_estimate(choices: EstimateChoices) -> Iterator[Sequence[str]]:
    yield ("--estimate",)
    for it in choices.batch_sizes:
        yield "--batch-size", str(it)
    if choices.device_memory_bytes:
        yield "--device-memory", f"{choices.device_memory_bytes}B"
    if choices.ranks > 1:
        yield "--ranks", str(choices.ranks)
    if choices.flag:
        yield (f"--batch-flag={choices.flag}",)
