"""Apply edits: from a text and changes to the new text and the changes left out."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from hotlap.errors import UsageError

try:
    import libcst as cst
except ImportError as error:
    raise UsageError(
        "Editing source needs LibCST, which is not installed.", remedy='Run: pip install "hotlap[source]"'
    ) from error

from hotlap.source.edits import arguments, insertions
from hotlap.source.edits.blocks import BlockEdits, edited_block
from hotlap.source.edits.kinds import Change
from hotlap.source.edits.names import Names, import_order, is_plain_import
from hotlap.source.edits.queue import Queue, State
from hotlap.source.edits.refusals import Applied, CannotEdit, Refused
from hotlap.source.edits.tree import Block, Statement, Tree

_LONGEST_LINE = 100
_BLANK_LINE = cst.EmptyLine(indent=False)


def apply_changes(text: str, changes: Sequence[Change], *, given: Mapping[str, str] | None = None) -> Applied:
    """Apply all changes that are safe, each as a whole, and return why others were left out.

    The text may be a file or a part that parses by itself, such as a notebook cell; ``given`` then names what earlier
    parts have imported (``{"torch": "torch", "F": "torch.nn.functional"}``). Everything that no edit touches stays
    unchanged, including whitespace. Raises :class:`CannotEdit` when the text is not valid Python.
    """
    tree = Tree(text)
    queue = Queue(tree, Names(tree, given or {}))
    refused: list[Refused] = []
    for index, change in enumerate(changes):
        mark = queue.mark()
        try:
            for edit in change:
                queue.add(edit)
        except CannotEdit as error:
            queue.reset(mark)
            refused.append(Refused(index, error.kind, error.reason))
    return Applied(_written(tree, queue.state), tuple(refused))


def _written(tree: Tree, state: State) -> str:
    _place_at_top(tree, state)
    new = tree.module.visit(_Applying(tree, state)).code
    problem = _problem(new)
    if problem and not _problem(tree.text):
        raise CannotEdit("shape", f"The edited file would not be valid Python: {problem}.")
    return new


def _problem(text: str) -> str:
    """Return why Python rejects a file's or notebook cell's text; empty if it accepts it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text, "<edited>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return f"{error.msg}, line {error.lineno}"
    return ""


def _place_at_top(tree: Tree, state: State) -> None:
    """Turn new imports, and code that goes below the imports, into statements next to their anchors."""
    if not state.imports and not state.top:
        return
    top = Names(tree, {}).top
    edits = state.blocks.setdefault(tree.module, BlockEdits())
    at_start = not top.lines
    for new in sorted(state.imports.values(), key=lambda it: import_order(it.text)):
        line = cst.parse_statement(new.text)
        assert isinstance(line, cst.SimpleStatementLine)
        if new.anchor is None:
            edits.start.append(line)
        elif new.before:
            edits.before.setdefault(new.anchor, []).append(line)
        else:
            apart = not is_plain_import(new.anchor) and not edits.after.get(new.anchor)
            spaced = line.with_changes(leading_lines=[_BLANK_LINE]) if apart else line
            _first_after(edits, new.anchor, spaced)
    anchor = top.after_imports()
    for number, new_line in enumerate(state.top):
        apart = number == 0 and not (at_start and not edits.start)
        below = new_line.with_changes(leading_lines=[_BLANK_LINE]) if apart else new_line
        if anchor is None:
            edits.start.append(below)
        else:
            edits.after.setdefault(anchor, []).append(below)


def _first_after(edits: BlockEdits, anchor: Statement, line: cst.BaseStatement) -> None:
    """Insert an import after those inserted earlier, and above everything else."""
    after = edits.after.setdefault(anchor, [])
    position = sum(1 for it in after if _is_import(it))
    after.insert(position, line)


def _is_import(line: cst.BaseStatement) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], (cst.Import, cst.ImportFrom))


class _Applying(cst.CSTTransformer):
    """Rewrite the tree from its leaves up, so that outer edits keep the results of inner ones."""

    def __init__(self, tree: Tree, state: State) -> None:
        super().__init__()
        self._tree = tree
        self._state = state

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        if isinstance(original_node, cst.Call):
            assert isinstance(updated_node, cst.Call)
            updated_node = self._call(original_node, updated_node)
        elif isinstance(original_node, cst.Dict):
            assert isinstance(updated_node, cst.Dict)
            updated_node = self._dictionary(original_node, updated_node)
        if isinstance(original_node, cst.BaseExpression):
            assert isinstance(updated_node, cst.BaseExpression)
            return self._expression(original_node, updated_node)
        if isinstance(original_node, (cst.Module, cst.IndentedBlock, cst.SimpleStatementSuite)):
            return self._block(original_node, updated_node)
        return updated_node

    def _call(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        args = list(updated.args)
        for index in range(len(args)):
            value = self._state.values.get((original, index))
            if value is not None:
                args[index] = arguments.with_value(args[index], value)
        updated = updated.with_changes(args=args)
        for index in sorted(self._state.removed.get(original, ()), reverse=True):
            updated = arguments.without(updated, index)
        added = self._state.added.get(original, {})
        for name, value in added.items():
            updated = arguments.with_argument(updated, name, value)
        return self._broken(original, updated, len(added)) if added else updated

    def _broken(self, original: cst.Call, updated: cst.Call, added: int) -> cst.Call:
        """Move new arguments to their own line if they made the call's line too long."""
        line, column = self._tree.line_at(original)
        old, new = (self._tree.module.code_for_node(it) for it in (original, updated))
        if len(line) - len(old) + len(new) <= _LONGEST_LINE or "\n" in new or not original.args:
            return updated
        indent = len(line) - len(line.lstrip(" "))
        first = column + new.index(self._tree.module.code_for_node(updated.args[0].value))
        return arguments.broken_before_last(updated, added, first - indent)

    def _dictionary(self, original: cst.Dict, updated: cst.Dict) -> cst.Dict:
        elements = list(updated.elements)
        for index, element in enumerate(elements):
            value = self._state.values.get((original, index))
            if value is not None:
                elements[index] = element.with_changes(value=value)
        updated = updated.with_changes(elements=elements)
        for key, value in self._state.added.get(original, {}).items():
            updated = arguments.with_entry(updated, key, value)
        return updated

    def _expression(self, original: cst.BaseExpression, updated: cst.BaseExpression) -> cst.BaseExpression:
        new = self._state.replaced.get(original, updated)
        around = self._tree.parent(original)
        for template in self._state.wrapped.get(original, ()):
            new = insertions.in_place_of(insertions.filled(template, new), cst.Name("_"), around)
        return new

    def _block(self, original: Block, updated: cst.CSTNode) -> cst.CSTNode:
        edits = self._state.blocks.get(original)
        if edits is None:
            return updated
        assert isinstance(updated, (cst.Module, cst.IndentedBlock, cst.SimpleStatementSuite))
        return edited_block(original, updated, edits)
