"""A patch as a unified diff, with a header on its levers, those left out and why, and its proof."""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path, PurePath

from hotlap.plan import describe
from hotlap.records import Patch, PatchedFile
from hotlap.redact import redacted_text
from hotlap.render import text
from hotlap.render.presentable import shown

_WIDTH = 100
_CONTEXT_LINES = 3
_NO_NEWLINE = "\\ No newline at end of file\n"


def patch_text(patch: Patch) -> str:
    """The header and the diff. ``git apply`` and ``patch`` skip the header, whose lines begin with ``#``.

    Line ends are those of the files.
    """
    base = base_of(patch)
    diffs = "".join(line for it in patch.files for line in _diff(it, base))
    return "".join(f"{line}\n" for line in _header(patch, base)) + diffs


def patch_summary(patch: Patch) -> str:
    """The header alone, for files that were just written."""
    lines = _header(patch, base_of(patch))
    return "\n".join(line.removeprefix("# ").removeprefix("#") for line in lines)


def base_of(patch: Patch) -> str:
    """The folder that the paths of the diff start from."""
    inside = all(PurePath(it.path).is_relative_to(patch.directory) for it in patch.files)
    return patch.directory if inside else os.path.commonpath([patch.directory, *(it.path for it in patch.files)])


def _header(patch: Patch, base: str) -> list[str]:
    lines = [f"hotlap patch{f' of study {patch.study}' if patch.study else ''}"]
    lines += [f"  written   {describe(it)}" for it in patch.written]
    for left in patch.left_out:
        lines += _paragraph(f"  left out  {describe(left.setting)}: ", left.reason)
    if patch.left_out:
        lines += _paragraph("", "Levers that are left out still work with `hotlap run --plan hotlap.toml`.")
    for remark in patch.remarks:
        lines += _paragraph("", remark)
    if patch.proof is None:
        lines += _paragraph("", "UNPROVEN: the patched script was not run.")
    else:
        lines += _paragraph(
            "Proof, the patched copy against the same levers installed from outside: ", patch.proof.text
        )
    if patch.files:
        lines += _paragraph("", f"Paths start from {base}: apply it there with `git apply` or `patch -p1`.")
    return [f"# {shown(it)}" for it in lines]


def _paragraph(head: str, said: str) -> list[str]:
    clean = text.one_line(shown(redacted_text(said)), limit=2000)
    return textwrap.wrap(head + clean, _WIDTH, subsequent_indent="            " if head.startswith(" ") else "  ")


def _diff(file: PatchedFile, base: str) -> Iterator[str]:
    name = Path(file.path).relative_to(base).as_posix()
    before, after = _lines(file.before), _lines(file.after)
    found = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=_CONTEXT_LINES)
    for line in found:
        yield line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}"


def _lines(content: str) -> list[str]:
    """Split where ``patch`` and git do: at line feeds alone."""
    parts = content.split("\n")
    return [f"{it}\n" for it in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
