"""Turn the levers' changes into patched files: each lever as a whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hotlap.records import (
    AttentionArgument,
    CallRegion,
    CopiesWithoutWaiting,
    DataParallelArguments,
    DataParallelStatement,
    ForwardRegion,
    LeftOut,
    LoaderArguments,
    ModelInputs,
    ModelStatement,
    NoSourceForm,
    OptimizerArguments,
    Patch,
    PatchedFile,
    ScaledLoss,
    ScriptFacts,
    Setting,
    SourceChange,
    TopStatement,
)
from hotlap.source.edits.apply import apply_changes
from hotlap.source.edits.files import read_source
from hotlap.source.edits.kinds import Edit
from hotlap.source.edits.refusals import CannotEdit
from hotlap.source.patch import (
    attention,
    call_regions,
    copies,
    data_parallel,
    loaders,
    models,
    optimizers,
    regions,
    scaling,
    top,
)
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, digest_of

WantedChanges = Sequence[tuple[Setting, tuple[SourceChange, ...]]]


def make_patch(
    facts: ScriptFacts, changes: WantedChanges, *, script: Path | None, directory: Path, arguments: Sequence[str] = ()
) -> Patch:
    """Apply the settings' changes to the files' text; write nothing.

    ``facts`` were observed in a run of the script (with exact call sites), ``script`` is its file and ``arguments`` are
    its arguments. A lever with an unsafe edit is left out as a whole, with the reason.
    """
    sources = Sources(facts, script, arguments)
    planned: dict[Setting, Edits] = {}
    left_out: dict[Setting, str] = {}
    for setting, wanted in changes:
        try:
            planned[setting] = [it for change in wanted for it in _edits(sources, change)]
        except NotPossible as error:
            left_out[setting] = error.reason
    texts = _applied(sources, planned, left_out)
    return Patch(
        directory=str(directory),
        written=tuple(setting for setting, _ in changes if setting in planned),
        left_out=tuple(LeftOut(setting=it, reason=left_out[it]) for it, _ in changes if it in left_out),
        files=tuple(_file(sources.code(path), after) for path, after in texts.items()),
        remarks=tuple(dict.fromkeys(sources.remarks)),
    )


def _edits(sources: Sources, change: SourceChange) -> Edits:
    match change:
        case LoaderArguments():
            return loaders.edits_for(sources, change)
        case OptimizerArguments():
            return optimizers.edits_for(sources, change)
        case ModelStatement():
            return models.statement_edits(sources, change)
        case ModelInputs():
            return models.input_edits(sources, change)
        case ForwardRegion():
            return regions.edits_for(sources, change)
        case CallRegion():
            return call_regions.edits_for(sources, change)
        case ScaledLoss():
            return scaling.edits_for(sources, change)
        case CopiesWithoutWaiting():
            return copies.edits_for(sources)
        case AttentionArgument():
            return attention.edits_for(sources, change)
        case DataParallelArguments():
            return data_parallel.argument_edits(sources, change)
        case DataParallelStatement():
            return data_parallel.statement_edits(sources, change)
        case TopStatement():
            return top.edits_for(sources, change)
        case NoSourceForm():
            raise NotPossible(change.reason)


def _applied(sources: Sources, planned: dict[Setting, Edits], left_out: dict[Setting, str]) -> Mapping[Path, str]:
    """Compute the new text of each changed file.

    If an edit of a lever is refused in one file, all files are computed again without that lever."""
    while True:
        texts: dict[Path, str] = {}
        refused: dict[Setting, str] = {}
        for path in sorted({it for edits in planned.values() for it, _ in edits}):
            found, reasons = _of_file(sources.code(path), path, planned)
            refused |= reasons
            if found != sources.code(path).source.text:
                texts[path] = found
        if not refused:
            return texts
        for setting, reason in refused.items():
            del planned[setting]
            left_out[setting] = reason


def _of_file(code: Code, path: Path, planned: Mapping[Setting, Edits]) -> tuple[str, dict[Setting, str]]:
    settings = list(planned)
    changes: list[tuple[Edit, ...]] = [
        tuple(edit for it, edit in planned[setting] if it == path) for setting in settings
    ]
    try:
        result = apply_changes(code.source.text, changes)
        code.source.encoded(result.text)
    except CannotEdit as error:
        return code.source.text, {
            setting: error.reason for setting, change in zip(settings, changes, strict=True) if change
        }
    return result.text, {settings[it.index]: f"{path.name}: {it.reason}" for it in result.refused}


def _file(code: Code, after: str) -> PatchedFile:
    return PatchedFile(path=str(code.path), before=code.source.text, after=after, sha256=digest_of(code.source.data))


def encoded(patch: Patch) -> dict[Path, bytes]:
    """The new bytes of each file of the patch. Raises :class:`OSError` if one can no longer be read."""
    return {Path(it.path): read_source(Path(it.path)).encoded(it.after) for it in patch.files}
