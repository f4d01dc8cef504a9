"""The model of an inference study as a folder that can be deployed: written, examined, put where it is wanted."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hotlap import files
from hotlap.api.patches import Watch
from hotlap.errors import UsageError
from hotlap.experiment.options import Options
from hotlap.levers.support.engines import CONTRACT, LOADER
from hotlap.procedures.artefact import write_artefact
from hotlap.records import ArtefactProof, Study, Workload
from hotlap.study import Approve, opening_of, refuse_foreign
from hotlap.trial.executor import MakeExecutor
from hotlap.trial.owned_folder import owned_folder

PROOF = "proof.json"
_OWN_FILES = (CONTRACT, LOADER, PROOF)


def deploy(
    found: Study,
    folder: Path,
    options: Options,
    make_executor: MakeExecutor,
    watch: Watch,
    *,
    force: bool = False,
    timed: bool = True,
    given: Workload | None = None,
    approve: Approve = refuse_foreign,
) -> ArtefactProof:
    """Write the study's recommended form of the model into ``folder``, with its loader, contract and proof.

    With ``force`` an earlier one there is replaced. ``given`` is the study's command, needed where its arguments hold
    secrets; ``approve`` is called before it is run. Raises :class:`HotlapError`; then ``folder`` is unchanged.
    """
    _refuse_occupied(folder, force=force)
    opening = opening_of(Path(found.directory), given, summary=True)
    approve(opening)
    with owned_folder("hotlap-artefact-") as directory, owned_folder("hotlap-artefact-") as written:
        executor = make_executor(directory, options.isolation)
        with watch() as on_progress:
            proof = write_artefact(found, opening.workload, options, executor, written, on_progress, timed=timed)
        (written / PROOF).write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=2) + b"\n")
        try:
            files.place_folder(written, folder.absolute())
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written: {error.strerror or error}.", remedy="Name another folder with --to."
            ) from error
    return proof


def _refuse_occupied(folder: Path, *, force: bool) -> None:
    """Raise :class:`UsageError` for what must not be replaced."""
    if folder.is_dir() and not folder.is_symlink():
        names = {it.name for it in folder.iterdir()}
        if not names:
            return
        if names.issuperset(_OWN_FILES):
            if force:
                return
            raise UsageError(f"{folder} already contains a model.", remedy="Replace it with --force.")
        raise UsageError(
            f"{folder} contains other files, and hotlap replaces only what it wrote.", remedy="Name a new folder."
        )
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} exists and is not a folder.", remedy="Name a new folder.")
