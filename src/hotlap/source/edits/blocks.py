"""Insert statements of a block, remove them, and wrap them in a ``with``, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from hotlap.source.edits.insertions import unindented
from hotlap.source.edits.tree import Block, Statement


@dataclass(slots=True)
class BlockEdits:
    """The edits of one block's statements, keyed by their nodes in the original tree."""

    before: dict[Statement, list[cst.BaseStatement]] = field(default_factory=dict)
    after: dict[Statement, list[cst.BaseStatement]] = field(default_factory=dict)
    start: list[cst.BaseStatement] = field(default_factory=list)
    wraps: list[tuple[Statement, Statement, cst.With]] = field(default_factory=list)
    removed: set[Statement] = field(default_factory=set)
    unwrapped: set[Statement] = field(default_factory=set)

    def names(self, statement: Statement) -> bool:
        """Whether an edit names this statement itself."""
        ends = {it for first, last, _ in self.wraps for it in (first, last)}
        return statement in self.before or statement in self.after or statement in self.removed | self.unwrapped | ends


@dataclass(slots=True)
class _Slot:
    """One statement's place: the statements it covers, and its present content."""

    covers: list[Statement]
    lines: list[cst.BaseStatement]
    before: list[cst.BaseStatement]
    after: list[cst.BaseStatement]

    def all_lines(self) -> list[cst.BaseStatement]:
        return [*_below_blank_lines(self.before, self.lines), *self.after]


def edited_block(original: Block, updated: Block, edits: BlockEdits) -> Block:
    """Apply all edits to a block; ``updated`` is the original after edits inside its statements."""
    slots, homeless = _slots(original, updated, edits)
    for first, last, around in sorted(edits.wraps, key=lambda it: _length(slots, it[0], it[1])):
        slots = _wrapped(slots, first, last, around)
    body = [*edits.start, *(line for slot in slots for line in slot.all_lines())]
    if isinstance(updated, cst.Module):
        ends_line = updated.has_trailing_newline and bool(body)
        return updated.with_changes(body=body, footer=[*homeless, *updated.footer], has_trailing_newline=ends_line)
    if not body:
        body = [cst.SimpleStatementLine(body=[cst.Pass()])]
    if isinstance(updated, cst.SimpleStatementSuite):
        return cst.IndentedBlock(body=body)
    return updated.with_changes(body=body, footer=[*homeless, *updated.footer])


# -- statements one by one ------------------------------------------------------------------------


def _slots(original: Block, updated: Block, edits: BlockEdits) -> tuple[list[_Slot], list[cst.EmptyLine]]:
    """Remove and unwrap statements; also return comments above removed ones that have nothing below."""
    slots: list[_Slot] = []
    orphans: list[cst.EmptyLine] = []
    for covers, line in _lines(original, updated, edits):
        kept = [it for it in covers if it not in edits.removed]
        if not kept:
            orphans += [it for it in _leading(line) if it.comment is not None or not orphans]
            if not any(it.comment is not None for it in orphans):
                orphans = orphans[:1] if slots else []
            lines: list[cst.BaseStatement] = []
        else:
            lines = _unwrapped(line) if covers[0] in edits.unwrapped else [line]
            if orphans:
                lines[0] = _with_leading(lines[0], _joined(orphans, _leading(lines[0])))
                orphans = []
        before = [line for it in covers for line in edits.before.get(it, ())]
        after = [line for it in covers for line in edits.after.get(it, ())]
        slots.append(_Slot(covers, lines, before, after))
    return slots, [it for it in orphans if it.comment is not None]


def _lines(original: Block, updated: Block, edits: BlockEdits) -> list[tuple[list[Statement], cst.BaseStatement]]:
    """Pair each line with its original statements; split lines of several if an edit names one of them."""
    if isinstance(original, cst.SimpleStatementSuite):
        assert isinstance(updated, cst.SimpleStatementSuite)
        as_line = cst.SimpleStatementLine(body=updated.body, trailing_whitespace=_tail(updated))
        return _apart(list(original.body), as_line)
    assert not isinstance(updated, cst.SimpleStatementSuite)
    found: list[tuple[list[Statement], cst.BaseStatement]] = []
    for old, new in zip(original.body, updated.body, strict=True):
        if isinstance(old, cst.SimpleStatementLine):
            assert isinstance(new, cst.SimpleStatementLine)
            covers: list[Statement] = list(old.body)
            if len(covers) > 1 and any(map(edits.names, covers)):
                found += _apart(covers, new)
            else:
                found.append((covers, new))
        else:
            assert isinstance(old, cst.BaseCompoundStatement) and isinstance(new, cst.BaseStatement)
            found.append(([old], new))
    return found


def _apart(
    covers: Sequence[Statement], line: cst.SimpleStatementLine
) -> list[tuple[list[Statement], cst.BaseStatement]]:
    found: list[tuple[list[Statement], cst.BaseStatement]] = []
    for number, (old, new) in enumerate(zip(covers, line.body, strict=True)):
        alone = cst.SimpleStatementLine(
            body=[new.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)],
            leading_lines=line.leading_lines if number == 0 else (),
            trailing_whitespace=line.trailing_whitespace if number == len(covers) - 1 else cst.TrailingWhitespace(),
        )
        found.append(([old], alone))
    return found


def _tail(suite: cst.SimpleStatementSuite) -> cst.TrailingWhitespace:
    return suite.trailing_whitespace


def _unwrapped(line: cst.BaseStatement) -> list[cst.BaseStatement]:
    assert isinstance(line, (cst.With, cst.If))
    body = line.body
    if isinstance(body, cst.IndentedBlock):
        lines = [it for it in body.body if isinstance(it, cst.BaseStatement)]
    else:
        assert isinstance(body, cst.SimpleStatementSuite)
        lines = [cst.SimpleStatementLine(body=body.body, trailing_whitespace=body.trailing_whitespace)]
    lines[0] = _with_leading(lines[0], [*line.leading_lines, *_leading(lines[0])])
    return lines


# -- runs of statements in a `with` ---------------------------------------------------------------


def _length(slots: Sequence[_Slot], first: Statement, last: Statement) -> int:
    return _index(slots, last) - _index(slots, first)


def _index(slots: Sequence[_Slot], statement: Statement) -> int:
    return next(number for number, slot in enumerate(slots) if statement in slot.covers)


def _wrapped(slots: list[_Slot], first: Statement, last: Statement, around: cst.With) -> list[_Slot]:
    start, end = _index(slots, first), _index(slots, last)
    run = slots[start : end + 1]
    before, after = run[0].before, run[-1].after
    run[0].before, run[-1].after = [], []
    body = [line for slot in run for line in slot.all_lines()]
    leading: Sequence[cst.EmptyLine] = _leading(body[0]) if body else ()
    if body:
        body[0] = _with_leading(body[0], ())
    block = cst.IndentedBlock(body=body or [cst.SimpleStatementLine(body=[cst.Pass()])])
    whole = around.with_changes(body=block, leading_lines=leading)
    covers = [it for slot in run for it in slot.covers]
    return [*slots[:start], _Slot(covers, [whole], before, after), *slots[end + 1 :]]


# -- lines above a statement ----------------------------------------------------------------------


def _leading(line: cst.BaseStatement) -> list[cst.EmptyLine]:
    return list(getattr(line, "leading_lines", ()))


def _with_leading(line: cst.BaseStatement, leading: Sequence[cst.EmptyLine]) -> cst.BaseStatement:
    return line.with_changes(leading_lines=tuple(leading))


def _joined(orphans: Sequence[cst.EmptyLine], own: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Join the lines above a removed statement and the next one, without duplicate blank lines."""
    if orphans and orphans[-1].comment is None and own and own[0].comment is None:
        orphans = orphans[:-1]
    return [*orphans, *own]


def _below_blank_lines(new: Sequence[cst.BaseStatement], lines: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Insert lines above others: below their blank lines, and above their comments."""
    if not new or not lines:
        return [*new, *lines]
    leading = _leading(lines[0])
    above = unindented(leading)
    first = _with_leading(new[0], [*above, *_leading(new[0])])
    rest = _with_leading(lines[0], leading[len(above) :])
    return [first, *new[1:], rest, *lines[1:]]
