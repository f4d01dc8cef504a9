"""``hotlap patch``: write a study's levers into the source, tested before it is shown."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from hotlap import api
from hotlap.api.patches import keep_patch, patch_of, refuse_disproved, with_proof, write_patch
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.cli.named import named_study
from hotlap.cli.options import add_comparison_options, add_isolation_options, add_limit_options, comparison_options_from
from hotlap.cli.plans import plan_of
from hotlap.cli.trust import add_trust_option, approval
from hotlap.cli.watching import watched
from hotlap.cli.workload import add_python_option, workload_from
from hotlap.records import Patch, Study
from hotlap.render import text
from hotlap.render.patch import patch_summary, patch_text
from hotlap.trial.interpreter import checked_interpreter

DONE, REFUSED = 0, 1

_DESCRIPTION = """\
Prints a unified diff that writes the kept levers of a study into the script's source, at the lines
that the study saw. First the patched copy is run against the script with the same levers installed
from outside: it must produce the same results and be as fast, or there is no diff. Your files are touched
by --write alone. What cannot be edited safely is left out, and the diff's header says why."""

_EXAMPLES = """\
examples:
  hotlap patch > faster.diff                   of the last study
  hotlap patch --write                         change the files, all or none; what is proved is not run again
  hotlap patch --check                         does it still apply?
  hotlap patch --no-proof .hotlap/20260131-142501-337

exit code: 0 for a patch; 1 when there is none: nothing can be written, it does not do what the
levers do, or files have changed since; 2 for bad usage; 130 after Ctrl-C."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap patch",
        _DESCRIPTION,
        _EXAMPLES,
        usage="hotlap patch [options] [STUDY] [-- SCRIPT and arguments, where they hold secrets]",
    )
    made.add_argument("study", nargs="?", type=Path, default=api.STUDIES, help="a study, or a folder of studies")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write the changes to the files, all or none")
    what.add_argument("--check", action="store_true", help="only check whether the patch still applies; runs nothing")
    group = made.add_argument_group("the proof")
    group.add_argument(
        "--no-proof", action="store_true", help="do not run the patched script; the diff is marked as unproven"
    )
    group.add_argument(
        "--again", action="store_true", help="prove it again (default: reuse the proof of the same diff)"
    )
    add_python_option(group, default="the study's")
    add_comparison_options(group)
    add_isolation_options(made)
    add_limit_options(made)
    add_trust_option(made)
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument("--show-output", action="store_true", help="show what the script prints in each trial")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    own, command = _split(words)
    choices = parser().parse_args(own)
    found = named_study(choices.study, "plan")
    patch = patch_of(found)
    if choices.check:
        return _checked(found, patch, as_json=choices.json)
    if not patch.files:
        screen.note(_why_nothing(found, patch), always=True)
        return REFUSED
    if not choices.no_proof:
        patch = _proved(choices, found, patch, command, engine)
    if choices.json and patch.proof is not None and patch.proof.refusal:
        _print_json(patch)
    refuse_disproved(patch)
    return _given(choices, found, patch)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split hotlap's own words from the script's command after ``--``."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def _checked(found: Study, patch: Patch, *, as_json: bool) -> int:
    if as_json:
        _print_json(patch)
    elif patch.files:
        screen.say(f"The patch applies: {', '.join(it.lever for it in patch.written)}.")
    else:
        screen.say(_why_nothing(found, patch))
    return DONE if patch.files else REFUSED


def _why_nothing(found: Study, patch: Patch) -> str:
    """Why there is no diff, and what to do instead."""
    if patch.written and not patch.left_out:
        return "The script already contains all of this; there is nothing to write."
    plan_path = plan_of(found)
    way = f"`hotlap run --plan {plan_path} {text.command(found.workload)}` trains with"
    if not plan_path:
        way = f"`{text.of_study('hotlap report --plan-out hotlap.toml', found.directory)}` writes the plan, and "
        way += f"`hotlap run {text.command(found.workload)}` trains with"
    reasons: dict[str, list[str]] = {}
    for it in patch.left_out:
        reasons.setdefault(it.reason, []).append(it.setting.lever)
    why = " ".join(f"{text.listed(levers)}: {text.sentence(reason)}" for reason, levers in reasons.items())
    which, them = ("No lever of this plan", "them") if len(patch.left_out) > 1 else ("This plan's lever", "it")
    can = "can" if len(patch.left_out) > 1 else "cannot"
    return f"{which} {can} be written into the source; {way} {them} and changes no file. Why: {why}"


# -- proof ----------------------------------------------------------------------------------------


def _proved(choices: argparse.Namespace, found: Study, patch: Patch, command: list[str], engine: api.Engine) -> Patch:
    return with_proof(
        found,
        patch,
        comparison_options_from(choices),
        engine.executor,
        partial(watched, choices, found),
        given=workload_from(command, "patch") if command else None,
        python=checked_interpreter(choices.python) if choices.python else "",
        approve=approval(choices),
        again=choices.again,
        on_note=screen.note,
    )


# -- output and writing ---------------------------------------------------------------------------


def _given(choices: argparse.Namespace, found: Study, patch: Patch) -> int:
    if choices.write:
        write_patch(found, patch)
    not_kept = keep_patch(found, patch)
    if not_kept:
        screen.note(not_kept)
    if choices.json:
        _print_json(patch)
    elif choices.write:
        screen.say(patch_summary(patch))
        for it in patch.files:
            screen.say(f"changed {it.path}")
    else:
        _print_diff(patch)
    return DONE


def _print_diff(patch: Patch) -> None:
    """Print the diff unchanged, with the files' own line ends."""
    content = patch_text(patch)
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(content)
    else:
        buffer.write(content.encode("utf-8", "surrogateescape"))


def _print_json(patch: Patch) -> None:
    screen.document("patch", patch, exact=True)
