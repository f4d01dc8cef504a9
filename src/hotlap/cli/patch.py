"""``hotlap patch``: the levers of a study as a change of the script's source, run and compared before it is shown."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.check.patched import prove_patch
from hotlap.check.records import Sides
from hotlap.cli import arguments, screen
from hotlap.cli.arguments import Parser
from hotlap.cli.named import named_study
from hotlap.cli.options import add_isolation_options, add_limit_options
from hotlap.cli.trust import add_trust_option, approval
from hotlap.cli.workload import workload_from
from hotlap.errors import PatchError, StudyError
from hotlap.files import read_bounded
from hotlap.levers.api import find, validate
from hotlap.machine.facts import machine_facts
from hotlap.machine.label import machine_label
from hotlap.records import Patch, PatchProof, Plan, ScriptFacts, Study, Workload
from hotlap.render.live import LiveView
from hotlap.render.patch import base_of, patch_summary, patch_text
from hotlap.study import PATCH, attach_to, attachment_of, made_here, opening_of
from hotlap.trial.executor import Executor
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.patched_copy import patched_copy
from hotlap.trial.source import script_of
from hotlap.tune.options import Options

DONE, REFUSED = 0, 1

_OTHER_WAY = "The plan works from outside: `hotlap run --plan hotlap.toml` with the script's command."

_DESCRIPTION = """\
Prints a unified diff that writes the kept levers of a study into the script's source, at the lines
that the study saw. First the patched copy is run against the script with the same levers installed
from outside: it must compute the same and be as fast, or there is no diff. Your files are touched
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
    what.add_argument("--write", action="store_true", help="change the files, all of them or none")
    what.add_argument("--check", action="store_true", help="only say whether the patch still applies; runs nothing")
    group = made.add_argument_group("the proof")
    group.add_argument("--no-proof", action="store_true", help="do not run the patched script; the diff says so")
    group.add_argument(
        "--again", action="store_true", help="prove it anew (default: a proof of the same diff is used again)"
    )
    group.add_argument(
        "--budget", type=arguments.seconds, metavar="TIME", help="take no longer: 90s, 10m (default: no limit)"
    )
    group.add_argument(
        "--delta", type=arguments.share, default=0.05, metavar="SHARE",
        help="the smallest slowdown that counts (default: 5%%)",
    )  # fmt: skip
    group.add_argument(
        "--parity-steps", type=partial(arguments.whole, 1), default=300, metavar="N",
        help="over how many steps losses are compared (default: 300)",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=partial(arguments.whole, 0), default=0, metavar="N", help="seed of the trials (default: 0)"
    )
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
    facts = _facts_of(found)
    # LibCST is imported from here on: only this command and lint's fixes need it.
    from hotlap.source.patch.code import changed_files

    changed = changed_files(facts)
    if changed:
        raise PatchError(
            f"{', '.join(changed)} changed since the study, whose lines may have moved.",
            remedy="`hotlap tune` makes a study of the present script.",
        )
    patch = _patch_of(found, facts)
    if choices.check:
        return _checked(patch, as_json=choices.json)
    if not patch.files:
        screen.note(_why_nothing(patch), always=True)
        return REFUSED
    if not choices.no_proof:
        given = workload_from(command, "patch") if command else None
        patch = _proved(choices, found, facts, patch, given, engine)
    if patch.proof is not None and patch.proof.refusal:
        if choices.json:
            _print_json(patch)
        raise PatchError(f"There is no patch. {patch.proof.refusal}", remedy=_OTHER_WAY)
    return _given(choices, found, facts, patch)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and behind ``--`` the script's command."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def _facts_of(found: Study) -> ScriptFacts:
    """What the study saw of the script. Raises :class:`StudyError` where that is not enough for a patch."""
    if not found.plan.settings:
        raise StudyError("The study kept no lever, so there is nothing to write.", remedy="Choose one that did.")
    if found.baseline is None or not found.baseline.facts.files:
        raise StudyError(
            "The study does not know at which lines the script makes its loaders, models and optimizers.",
            remedy="It was made by an earlier hotlap, or all of that happens in libraries: run `hotlap tune` again, or "
            "use the plan with `hotlap run`.",
        )
    return found.baseline.facts


def _patch_of(found: Study, facts: ScriptFacts) -> Patch:
    from hotlap.source.patch.make import make_patch

    for it in found.plan.settings:  # a study from elsewhere may hold any value, and values become code
        validate(it)
    wishes = [(it, find(it.lever).rewrite(facts, it)) for it in found.plan.settings]
    patch = make_patch(
        facts,
        wishes,
        script=script_of(found.workload),
        directory=Path(found.workload.directory).resolve(),
        arguments=found.workload.arguments,
    )
    return msgspec.structs.replace(patch, study=found.identifier)


def _checked(patch: Patch, *, as_json: bool) -> int:
    if as_json:
        _print_json(patch)
    elif patch.files:
        screen.say(f"The patch applies: {', '.join(it.lever for it in patch.written)}.")
    else:
        screen.say(_why_nothing(patch))
    return DONE if patch.files else REFUSED


def _why_nothing(patch: Patch) -> str:
    if patch.written and not patch.left_out:
        return "The script says all of this already; there is nothing to write."
    return " ".join(["Nothing can be written.", *(f"{it.setting.lever}: {it.reason}" for it in patch.left_out)])


# -- proof ----------------------------------------------------------------------------------------


def _proved(
    choices: argparse.Namespace,
    found: Study,
    facts: ScriptFacts,
    patch: Patch,
    given: Workload | None,
    engine: api.Engine,
) -> Patch:
    from hotlap.source.patch.make import encoded

    steps, remark = _comparable_steps(facts, patch, choices.parity_steps)
    options = Options(
        budget_seconds=choices.budget,
        delta=choices.delta,
        seed=choices.seed,
        parity_steps=steps,
        rounds=choices.rounds,
        startup_limit_seconds=choices.startup_limit,
        block_limit_seconds=choices.block_limit,
        show_output=choices.show_output,
        network=choices.network,
        unprotected=choices.unprotected,
    )
    proof = None if choices.again else _kept_proof(found, patch, options)
    if proof is None:
        opening = opening_of(Path(found.directory), given, summary=True)
        approval(choices)(opening)
        with owned_folder("hotlap-patch-") as folder:
            copy = patched_copy(opening.workload, encoded(patch), folder)
            sides = Sides(before=opening.workload, before_plan=Plan(settings=patch.written), now=copy)
            proof = _prove(choices, found, patch, sides, options, engine.executor(folder, options.isolation))
    return msgspec.structs.replace(patch, proof=proof, remarks=(*patch.remarks, *remark))


def _kept_proof(found: Study, patch: Patch, options: Options) -> PatchProof | None:
    """What an earlier run proved of the very same diff on this machine, asking for as much or more."""
    kept = _kept(found, patch) if made_here(Path(found.directory)) else None
    proof = kept.proof if kept is not None else None
    if proof is None or proof.delta > options.delta or proof.steps < options.parity_steps:
        return None
    if proof.machine not in ("", machine_label(machine_facts())):
        return None
    screen.note("This diff was proved before, by an earlier `hotlap patch` of the study; --again proves it anew.")
    return proof


def _kept(found: Study, patch: Patch) -> Patch | None:
    """The patch that lies beside the study, where it is this very diff."""
    kept = attachment_of(Path(found.directory), PATCH, Patch)
    same = kept is not None and (kept.files, kept.written) == (patch.files, patch.written)
    return kept if same else None


def _prove(
    choices: argparse.Namespace, found: Study, patch: Patch, sides: Sides, options: Options, executor: Executor
) -> PatchProof:
    prove = partial(prove_patch, sides, {it.path for it in patch.files}, options, executor)
    if choices.quiet:
        return prove()
    console = screen.err()
    interactive = screen.redraws(console) and not choices.show_output
    with LiveView(console, found.workload, interactive=interactive) as view:
        return prove(view.update)


def _comparable_steps(facts: ScriptFacts, patch: Patch, wanted: int) -> tuple[int, tuple[str, ...]]:
    """Over how many steps both sides draw the same random numbers, and what to say of it.

    Workers that persist draw no new seed in a second epoch. From outside that draw is made for them; a script that says
    ``persistent_workers=True`` itself does without it.
    """
    persists = any(key == "persistent-workers" and value for it in patch.written for key, value in it.values)
    lengths = [it.length for it in facts.loaders if it.length and not it.persistent_workers and not it.iterable]
    if not persists or not lengths:
        return wanted, ()
    steps = max(1, int(min(lengths) / max(1.0, facts.backwards_per_step)))
    remark = (
        "From the second epoch on the script shuffles otherwise than before, from the same generator: workers that "
        "persist draw no new seed."
    )
    return min(wanted, steps), (remark,)


# -- what becomes of it ---------------------------------------------------------------------------


def _given(choices: argparse.Namespace, found: Study, facts: ScriptFacts, patch: Patch) -> int:
    if choices.write:
        _write(facts, patch)
    if not choices.no_proof or _kept(found, patch) is None:
        _keep(found, patch)
    if choices.json:
        _print_json(patch)
    elif choices.write:
        screen.say(patch_summary(patch))
        for it in patch.files:
            screen.say(f"changed {it.path}")
    else:
        _print_diff(patch)
    return DONE


def _keep(found: Study, patch: Patch) -> None:
    """Lay the patch beside the study, where a report finds it; a folder that cannot be written costs the report no more
    than that."""
    try:
        attach_to(Path(found.directory), PATCH, patch)
    except StudyError as error:
        screen.note(f"The patch is not kept with the study. {error.what}")
    except UnicodeEncodeError:  # a file that is no UTF-8, which JSON cannot hold
        screen.note("The patch is not kept with the study: a file that it changes is not UTF-8.")


def _write(facts: ScriptFacts, patch: Patch) -> None:
    """Change the files. Raises :class:`StudyError` when one changed meanwhile or cannot be written."""
    from hotlap.source.edits.files import write_all
    from hotlap.source.patch.code import changed_files
    from hotlap.source.patch.make import encoded

    new = encoded(patch)
    if changed_files(facts) or any(not _is_as_read(it.path, it.sha256) for it in patch.files):
        raise StudyError("A file changed while the patch was made; nothing was written.", remedy="Run it again.")
    try:
        write_all(new)
    except OSError as error:
        raise StudyError(
            f"The patch cannot be written: {error.strerror or error}. All files are as they were.",
            where=str(error.filename or base_of(patch)),
            remedy="Check that the files may be written, or apply the diff by hand.",
        ) from error


def _is_as_read(path: str, sha256: str) -> bool:
    from hotlap.source.edits.files import LARGEST_SOURCE_BYTES
    from hotlap.source.patch.code import digest_of

    try:
        return digest_of(read_bounded(Path(path), LARGEST_SOURCE_BYTES)) == sha256
    except OSError:
        return False


def _print_diff(patch: Patch) -> None:
    """As it is, with the line ends of the files, whatever the terminal's own are."""
    content = patch_text(patch)
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(content)
    else:
        buffer.write(content.encode("utf-8", "surrogateescape"))


def _print_json(patch: Patch) -> None:
    screen.document("patch", patch, exact=True)
