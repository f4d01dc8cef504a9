"""What was planted and is found: scripts with one known cause each, and scripts from which something was taken.

``tests/causes`` was written for the findings of a run, by others than the rules' examples: the line of each cause is
marked there. Causes that cannot be seen without running (a slow transform, a data set that fits into memory) are left
out. The second set takes our own workloads and examples and changes one thing by its text: a deliberate mistake, in
loops that no rule's author had before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lint_precision.corpus import OURS, ROOT
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.check import Unreadable, check

_MARK = re.compile(r"# planted: ([a-z, -]+)$")
_CAUSES = {
    "host-sync": "HL201",
    "logging-cost": "HL202",
    "anomaly-detection": "HL205",
    "memory-growth": "HL501",
    "empty-cache": "HL502",
    "worker-startup": "HL104",
    "no-workers": "HL101",
    "accelerator-in-dataset": "HL105",
    "blocking-copies": "HL102",
    "tensor-on-host": "HL603",
    "unfused-optimizer": "HL604",
}
"""The causes that a rule claims to see in the source, by the mark in ``tests/causes``."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One mistake: the rule that should see it, where it is, and whether it was seen. A ``marked`` one has a line, and
    counts as found at that line only."""

    code: str
    what: str
    file: str
    found: bool
    marked: bool


def planted() -> list[Planted]:
    """All of them, each looked for."""
    return [*_causes(), *_changes()]


def _codes_in(text: str) -> set[tuple[str, int]]:
    """The rules that find something in a text, with the lines. Raises :class:`Unreadable`."""
    _, hits = check(text, all_rules().values())
    return {(it.rule.code, getattr(it.violation.node, "lineno", 0)) for it in hits}


# -- marked causes --------------------------------------------------------------------------------


def _causes() -> Iterator[Planted]:
    for file in sorted((ROOT / "tests" / "causes").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        found: set[tuple[str, int]] | None = None
        for number, line in enumerate(text.splitlines(), start=1):
            marked = _MARK.search(line)
            for cause in marked.group(1).split(", ") if marked else ():
                code = _CAUSES.get(cause)
                if code is not None and code in all_rules():
                    found = _codes_in(text) if found is None else found
                    yield Planted(code, cause, _name(file), (code, number) in found, marked=True)


# -- changed scripts ------------------------------------------------------------------------------

Change = Callable[[str], str]


def _without(pattern: str, instead: str = "") -> Change:
    return lambda text: re.sub(pattern, instead, text, flags=re.MULTILINE)


def _after(pattern: str, added: str) -> Change:
    """Put a line behind each line that matches, as deeply indented."""
    return lambda text: re.sub(rf"^([ \t]*){pattern}$", rf"\g<0>\n\g<1>{added}", text, flags=re.MULTILINE)


def _before(pattern: str, added: str) -> Change:
    return lambda text: re.sub(rf"^([ \t]*)({pattern})$", rf"\g<1>{added}\n\g<1>\g<2>", text, flags=re.MULTILINE)


_STEP = r"(?:self\.)?optimi[sz]er\.step\(\)"
_CHANGES: Sequence[tuple[str, str, Change]] = (
    ("HL351", "model.eval() taken out", _without(r"^([ \t]*)(?:\w+\.)*\w+\.eval\(\)$", r"\1pass")),
    ("HL353", "model.train() taken out of the loop", _without(r"^([ \t]*)(?:\w+\.)*\w+\.train\(\)$", r"\1pass")),
    ("HL352", "no_grad taken out", _without(r"with torch\.(?:no_grad|inference_mode)\(\):", "if True:")),
    ("HL352", "the no_grad decorator taken out", _without(r"^[ \t]*@torch\.(?:no_grad|inference_mode)\(\)\n")),
    ("HL302", "zero_grad taken out", _without(r"^([ \t]*)(?:self\.)?optimizer\.zero_grad\(.*\)$", r"\1pass")),
    ("HL301", "zero_grad behind backward", _after(r"(?:loss|total_loss)\.backward\(\)", "optimizer.zero_grad()")),
    ("HL602", "gradients set to zero", _without(r"optimizer\.zero_grad\(\)", "optimizer.zero_grad(set_to_none=False)")),
    ("HL502", "empty_cache behind every step", _after(_STEP, "torch.cuda.empty_cache()")),
    ("HL401", "compiled in every step", _before(_STEP, "compiled = torch.compile(model)")),
)


def _changes() -> Iterator[Planted]:
    """Each change where it changes something, and where the rule was silent before."""
    for file in sorted(file for folder in OURS for file in (ROOT / folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "torch" not in text:
            continue
        before = {code for code, _ in _codes_in(text)}
        for code, what, change in _CHANGES:
            changed = change(text)
            if changed != text and code in all_rules() and code not in before and _applies(code, text):
                try:
                    found = {it for it, _ in _codes_in(changed)}
                    yield Planted(code, what, _name(file), code in found, marked=False)
                except Unreadable:
                    continue


def _applies(code: str, text: str) -> bool:
    """Whether the change is a mistake in this script: modes and gradients matter where it evaluates at all, and zeros
    where it may train on an accelerator."""
    if code in ("HL351", "HL352", "HL353"):
        return ".eval()" in text and "backward" in text
    if code == "HL602":
        return "cuda" in text or "device" in text
    return True


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()
