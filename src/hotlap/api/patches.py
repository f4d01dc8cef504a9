"""The kept levers of a study as a source patch: made, proved by trials, stored with the study, written.

Each step raises :class:`hotlap.errors.HotlapError`; none of them prints.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import msgspec

from hotlap.errors import PatchError, StudyError
from hotlap.experiment.draft import OnProgress
from hotlap.experiment.options import Options
from hotlap.files import read_bounded
from hotlap.levers.api import find, validate
from hotlap.machine.facts import machine_facts
from hotlap.machine.label import machine_label
from hotlap.procedures.check.patched import prove_patch
from hotlap.records import Patch, PatchProof, Plan, ScriptFacts, Sides, Study, Workload
from hotlap.study import PATCH, Approve, Opening, attach_to, attachment_of, made_here, opening_of, refuse_foreign
from hotlap.trial.executor import MakeExecutor
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.patched_copy import patched_copy
from hotlap.trial.source import script_of

Watch: TypeAlias = Callable[[], AbstractContextManager[OnProgress]]
"""Opens a progress display for as long as trials run."""

_OTHER_WAY = "Use the plan without changing the source: `hotlap run --plan hotlap.toml` with the script's command."

# LibCST is imported inside these functions: only patches and lint's fixes need it.


def patch_of(found: Study) -> Patch:
    """Turn the levers that a study kept into edits of the files it ran, without a proof; run nothing.

    Raises :class:`StudyError` if the study kept no lever or lacks the lines, :class:`PatchError` if a file has changed
    since, and :class:`PlanError` for a setting that its lever does not accept.
    """
    from hotlap.source.patch.code import changed_files
    from hotlap.source.patch.make import make_patch

    facts = _facts_of(found)
    changed = changed_files(facts)
    if changed:
        raise PatchError(
            f"{', '.join(changed)} changed since the study, whose lines may have moved.",
            remedy="`hotlap tune` makes a study of the present script.",
        )
    for it in found.plan.settings:  # a study from elsewhere may hold any value, and values become code
        validate(it)
    changes = [(it, find(it.lever).rewrite(facts, it)) for it in found.plan.settings]
    patch = make_patch(
        facts,
        changes,
        script=script_of(found.workload),
        directory=Path(found.workload.directory).resolve(),
        arguments=found.workload.arguments,
    )
    return msgspec.structs.replace(patch, study=found.identifier)


def _facts_of(found: Study) -> ScriptFacts:
    """The facts observed of the script. Raises :class:`StudyError` if they do not suffice for a patch."""
    if found.workload.kind == "inference":
        raise StudyError(
            "The study is of functions that hotlap called, so that there is no script to change.",
            remedy="`hotlap export artefact` writes its form of the model as files.",
        )
    if not found.plan.settings:
        raise StudyError("The study kept no lever, so there is nothing to write.", remedy="Choose one that did.")
    if found.baseline is None or not found.baseline.facts.files:
        raise StudyError(
            "The study does not contain the lines at which the script creates its loaders, models and optimizers.",
            remedy="It was made by an earlier hotlap, or all of that happens in libraries: run `hotlap tune` again, or "
            "use the plan with `hotlap run`.",
        )
    return found.baseline.facts


# -- proof ----------------------------------------------------------------------------------------


def with_proof(
    found: Study,
    patch: Patch,
    options: Options,
    make_executor: MakeExecutor,
    watch: Watch,
    *,
    given: Workload | None = None,
    python: str = "",
    approve: Approve = refuse_foreign,
    again: bool = False,
    on_note: Callable[[str], object] = lambda sentence: None,
) -> Patch:
    """Prove a patch by trials, or return the stored proof of an earlier run unless ``again``.

    ``options.delta`` is the smallest slowdown that counts, ``options.parity_steps`` how many steps losses are compared.
    ``given`` is the study's command, needed where its arguments hold secrets, and ``python`` the interpreter (empty:
    the study's); ``approve`` is called before it is run. The proof may show that the patch is wrong
    (:func:`refuse_disproved`). Raises :class:`UsageError` for a command that is not approved, and
    :class:`HotlapError` if the original cannot be measured.
    """
    from hotlap.source.patch.make import encoded

    steps, remarks = _comparable_steps(_facts_of(found), patch, options.parity_steps)
    options = msgspec.structs.replace(options, parity_steps=steps)
    python = python or found.workload.python
    proof = None if again else _earlier_proof(found, patch, options, python)
    if proof is not None:
        on_note("This diff was proved before, by an earlier `hotlap patch` of the study; --again proves it again.")
    else:
        opening = _with_python(opening_of(Path(found.directory), given, summary=True), python)
        approve(opening)
        with owned_folder("hotlap-patch-") as folder:
            copy = patched_copy(opening.workload, encoded(patch), folder)
            sides = Sides(before=opening.workload, before_plan=Plan(settings=patch.written), now=copy)
            executor = make_executor(folder, options.isolation)
            of_calls = _facts_of(found).step_source == "call"
            replaced = {it.path for it in patch.files}
            with watch() as on_progress:
                proof = prove_patch(sides, replaced, options, executor, on_progress, of_calls=of_calls)
            proof = msgspec.structs.replace(proof, python=python)
    return msgspec.structs.replace(patch, proof=proof, remarks=(*patch.remarks, *remarks))


def refuse_disproved(patch: Patch) -> None:
    """Raise :class:`PatchError` for a patch whose proof failed."""
    if patch.proof is not None and patch.proof.refusal:
        raise PatchError(f"There is no patch. {patch.proof.refusal}", remedy=_OTHER_WAY)


def _with_python(opening: Opening, python: str) -> Opening:
    return msgspec.structs.replace(opening, workload=msgspec.structs.replace(opening.workload, python=python))


def _earlier_proof(found: Study, patch: Patch, options: Options, python: str) -> PatchProof | None:
    """The proof of an earlier run for the same diff on this machine, by this interpreter and with limits at least as
    strict."""
    kept = kept_patch(found, patch) if made_here(Path(found.directory)) else None
    proof = kept.proof if kept is not None else None
    if proof is None or proof.delta > options.delta or proof.steps < options.parity_steps:
        return None
    if (proof.python or found.workload.python) != python:
        return None
    return proof if proof.machine in ("", machine_label(machine_facts())) else None


def _comparable_steps(facts: ScriptFacts, patch: Patch, wanted: int) -> tuple[int, tuple[str, ...]]:
    """For how many steps both sides draw the same random numbers, and a note about it.

    Persistent workers draw no new seed in a second epoch. A lever makes that draw for them; a script that sets
    ``persistent_workers=True`` itself does not.
    """
    persists = any(key == "persistent_workers" and value for it in patch.written for key, value in it.values)
    lengths = [
        it.length for it in facts.training_loaders if it.length and not it.persistent_workers and not it.iterable
    ]
    if not persists or not lengths:
        return wanted, ()
    steps = max(1, int(min(lengths) / max(1.0, facts.backwards_per_step)))
    remark = (
        "From the second epoch on the script shuffles otherwise than before, from the same generator: workers that "
        "persist draw no new seed."
    )
    return min(wanted, steps), (remark,)


# -- what becomes of it ---------------------------------------------------------------------------


def kept_patch(found: Study, patch: Patch) -> Patch | None:
    """The patch that is stored with the study, if it is the same diff."""
    kept = attachment_of(Path(found.directory), PATCH, Patch)
    same = kept is not None and (kept.files, kept.written) == (patch.files, patch.written)
    return kept if same else None


def keep_patch(found: Study, patch: Patch) -> str:
    """Store a patch with its study, for reports and the next ``hotlap patch``.

    An unproved patch does not replace a stored one with the same diff. Returns why it could not be stored, or an empty
    string: that is no reason to fail.
    """
    if patch.proof is None and kept_patch(found, patch) is not None:
        return ""
    try:
        attach_to(Path(found.directory), PATCH, patch)
    except StudyError as error:
        return f"The patch is not stored with the study. {error.what}"
    except UnicodeEncodeError:  # a file that is no UTF-8, which JSON cannot hold
        return "The patch is not stored with the study: a file that it changes is not UTF-8."
    return ""


def write_patch(found: Study, patch: Patch) -> None:
    """Change the files, all of them or none. Raises :class:`StudyError` when one changed meanwhile or cannot be
    written."""
    from hotlap.source.edits.files import write_all
    from hotlap.source.patch.code import changed_files
    from hotlap.source.patch.make import encoded

    new = encoded(patch)
    if changed_files(_facts_of(found)) or any(not _is_as_read(it.path, it.sha256) for it in patch.files):
        raise StudyError("A file changed while the patch was made; nothing was written.", remedy="Run it again.")
    try:
        write_all(new)
    except OSError as error:
        raise StudyError(
            f"The patch cannot be written: {error.strerror or error}. No file was changed.",
            where=str(error.filename or patch.directory),
            remedy="Check that the files may be written, or apply the diff by hand.",
        ) from error


def _is_as_read(path: str, sha256: str) -> bool:
    from hotlap.source.edits.files import LARGEST_SOURCE_BYTES
    from hotlap.source.patch.code import digest_of

    try:
        return digest_of(read_bounded(Path(path), LARGEST_SOURCE_BYTES)) == sha256
    except OSError:
        return False
