"""Queue edits of one tree: each is checked when it is added, so that applying them cannot fail."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import libcst as cst

from hotlap.source.edits import arguments, insertions
from hotlap.source.edits.blocks import BlockEdits
from hotlap.source.edits.kinds import (
    Code,
    Edit,
    InsertAfter,
    InsertAtTop,
    InsertBefore,
    RemoveKeyword,
    RemoveStatement,
    ReplaceExpression,
    SetEntry,
    SetKeyword,
    Unwrap,
    WrapExpression,
    WrapStatements,
)
from hotlap.source.edits.names import Names, NewImport
from hotlap.source.edits.refusals import CannotEdit
from hotlap.source.edits.tree import Block, Range, Statement, Tree


@dataclass(slots=True)
class State:
    """All queued edits, keyed by the node of the original tree."""

    values: dict[tuple[cst.CSTNode, int], cst.BaseExpression] = field(default_factory=dict)
    """New values of arguments and entries, by their index."""
    removed: dict[cst.Call, list[int]] = field(default_factory=dict)
    added: dict[cst.CSTNode, dict[str, cst.BaseExpression]] = field(default_factory=dict)
    replaced: dict[cst.BaseExpression, cst.BaseExpression] = field(default_factory=dict)
    wrapped: dict[cst.BaseExpression, list[cst.BaseExpression]] = field(default_factory=dict)
    blocks: dict[Block, BlockEdits] = field(default_factory=dict)
    imports: dict[str, NewImport] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    """The names that new imports bind, with their full names."""
    top: list[cst.BaseStatement] = field(default_factory=list)
    exclusive: list[Range] = field(default_factory=list)
    """Places whose old text is removed, so that nothing may be edited in them."""
    touched: list[Range] = field(default_factory=list)


class Queue:
    """Accept edits one by one. Raises :class:`CannotEdit` for an impossible edit, which leaves no trace."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self.state = State()

    def mark(self) -> State:
        """The state to restore with :meth:`reset`."""
        return _copied(self.state)

    def reset(self, mark: State) -> None:
        self.state = mark

    def add(self, edit: Edit) -> None:
        """Check and keep one edit. Raises :class:`CannotEdit`."""
        match edit:
            case SetKeyword():
                self._set_keyword(edit)
            case RemoveKeyword():
                self._remove_keyword(edit)
            case SetEntry():
                self._set_entry(edit)
            case ReplaceExpression():
                self._replace(edit)
            case WrapExpression():
                self._wrap(edit)
            case WrapStatements():
                self._wrap_statements(edit)
            case Unwrap():
                self._unwrap(edit)
            case InsertBefore() | InsertAfter():
                self._insert(edit)
            case InsertAtTop():
                self._insert_at_top(edit)
            case RemoveStatement():
                self._remove_statement(edit)

    # -- arguments and entries --------------------------------------------------------------------

    def _set_keyword(self, edit: SetKeyword) -> None:
        call = self._tree.call(edit.call)
        index = arguments.index_of(call, edit.name, edit.position)
        if index is None and edit.only_if_present:
            return
        value = self._expression(edit.value, call)
        if index is not None:
            self._set_value(call, index, call.args[index].value, value, edit.name)
        else:
            self._add(call, edit.name, value)

    def _remove_keyword(self, edit: RemoveKeyword) -> None:
        call = self._tree.call(edit.call)
        index = arguments.index_of(call, edit.name, edit.position)
        if index is None:
            if edit.name in self.state.added.get(call, ()):
                raise _conflict(edit.name)
            return
        arguments.without(call, index)  # raises if that would shift others
        if any(it > index for it in self.state.removed.get(call, ())) and call.args[index].keyword is None:
            raise CannotEdit("positional", "Several arguments that are passed by position would go.")
        self._claim(self._tree.range_of(call.args[index].value))
        self.state.removed.setdefault(call, []).append(index)

    def _set_entry(self, edit: SetEntry) -> None:
        dictionary = self._tree.expression(edit.dictionary)
        if not isinstance(dictionary, cst.Dict):
            raise CannotEdit("not-found", f"Line {edit.dictionary.line} holds no dictionary there.")
        index = arguments.entry_of(dictionary, edit.key)
        value = self._expression(edit.value, dictionary)
        if index is not None:
            self._set_value(dictionary, index, dictionary.elements[index].value, value, edit.key)
        else:
            self._add(dictionary, edit.key, value)

    def _set_value(
        self, holder: cst.CSTNode, index: int, old: cst.BaseExpression, new: cst.BaseExpression, name: str
    ) -> None:
        queued = self.state.values.get((holder, index))
        if queued is not None:
            if insertions.same_code(queued, new):
                return
            raise _conflict(name)
        if insertions.same_code(old, new):
            return
        self._claim(self._tree.range_of(old))
        self.state.values[(holder, index)] = insertions.in_place_of(new, old, cst.Arg(value=old))

    def _add(self, holder: cst.CSTNode, name: str, value: cst.BaseExpression) -> None:
        self._touch(self._tree.range_of(holder))
        added = self.state.added.setdefault(holder, {})
        if name in added and not insertions.same_code(added[name], value):
            raise _conflict(name)
        added[name] = insertions.in_place_of(value, cst.Name(name), cst.Arg(value=value))

    # -- expressions ------------------------------------------------------------------------------

    def _replace(self, edit: ReplaceExpression) -> None:
        old = self._tree.expression(edit.at)
        new = self._expression(edit.code, old)
        queued = self.state.replaced.get(old)
        if queued is not None and insertions.same_code(queued, new):
            return
        if queued is None and insertions.same_code(old, new):
            return
        self._claim(self._tree.range_of(old))
        self.state.replaced[old] = insertions.in_place_of(new, old, self._tree.parent(old))

    def _wrap(self, edit: WrapExpression) -> None:
        old = self._tree.expression(edit.at)
        template = self._expression(edit.code, old)
        if insertions.holes(template) != 1:
            raise CannotEdit("shape", f"The code must hold the old expression once: {edit.code.text}")
        self._touch(self._tree.range_of(old))
        self.state.wrapped.setdefault(old, []).append(template)

    # -- statements -------------------------------------------------------------------------------

    def _wrap_statements(self, edit: WrapStatements) -> None:
        first, last = self._tree.statement(edit.first), self._tree.statement(edit.last)
        block = self._tree.block_of(first)
        start, end = self._tree.range_of(first)[0], self._tree.range_of(last)[1]
        if self._tree.block_of(last) is not block or start > end:
            raise CannotEdit("shape", "The statements are not consecutive in one block.")
        around = insertions.with_statement(edit.context, self._tree.module, self._resolver(first))
        self._check_names(edit.context, first)
        edits = self._block(block)
        for other_first, other_last, _ in edits.wraps:
            other = (self._tree.range_of(other_first)[0], self._tree.range_of(other_last)[1])
            if start < other[0] < end < other[1] or other[0] < start < other[1] < end:
                raise CannotEdit("conflict", "Another edit moves some of these statements into another block.")
        self._must_be_movable(first)
        self._touch((start, end))
        edits.wraps.append((first, last, around))

    def _unwrap(self, edit: Unwrap) -> None:
        statement = self._tree.statement(edit.statement)
        if not isinstance(statement, (cst.With, cst.If)) or (isinstance(statement, cst.If) and statement.orelse):
            raise CannotEdit("shape", f"Line {edit.statement.line} has no block that can be unwrapped.")
        self._touch(self._tree.range_of(statement))
        self._block(self._tree.block_of(statement)).unwrapped.add(statement)

    def _insert(self, edit: InsertBefore | InsertAfter) -> None:
        statement = self._tree.statement(edit.statement)
        if isinstance(edit, InsertBefore):
            self._must_be_movable(statement)
        self._check_names(edit.code, statement)
        lines = insertions.statements(edit.code, self._tree.module, self._resolver(statement))
        self._touch(self._tree.range_of(statement)[:1] * 2)
        edits = self._block(self._tree.block_of(statement))
        place = edits.before if isinstance(edit, InsertBefore) else edits.after
        place.setdefault(statement, []).extend(lines)

    def _remove_statement(self, edit: RemoveStatement) -> None:
        statement = self._tree.statement(edit.statement)
        block = self._block(self._tree.block_of(statement))
        if statement in block.removed:
            return
        self._claim(self._tree.range_of(statement))
        block.removed.add(statement)

    def _insert_at_top(self, edit: InsertAtTop) -> None:
        lines = insertions.statements(edit.code, self._tree.module, self._resolver(None))
        self._check_names(edit.code, None)
        present = [*self._tree.module.body, *self.state.top]
        self.state.top += [line for line in lines if not any(_same_line(line, it) for it in present)]

    # -- names, and who may touch what ------------------------------------------------------------

    def _expression(self, code: Code, at: cst.CSTNode) -> cst.BaseExpression:
        # Names in an import form a module's path, whose first part need not be bound.
        if not isinstance(self._tree.parent(at), (cst.ImportFrom, cst.ImportAlias)):
            self._check_names(code, at)
        return insertions.expression(code, self._tree.module, self._resolver(at))

    def _resolver(self, at: cst.CSTNode | None) -> insertions.Resolve:
        def resolve(name: str) -> cst.BaseExpression:
            text, new = self._names.reach(name, at, self.state.bound)
            if new is not None:
                self.state.imports.setdefault(new.text, new)
                words = new.text.split()
                self.state.bound[words[-1]] = words[1] if words[0] == "import" else f"{words[1]}.{words[-1]}"
            return cst.parse_expression(text)

        return resolve

    def _check_names(self, code: Code, at: cst.CSTNode | None) -> None:
        try:
            names = insertions.free_names(code)
        except SyntaxError:
            raise CannotEdit("shape", f"This is not valid Python: {code.text}") from None
        unknown = sorted(it for it in names if not self._names.is_known(it, at))
        if unknown:
            raise CannotEdit("unknown-name", f"The name {unknown[0]} does not exist there.")

    def _must_be_movable(self, statement: Statement) -> None:
        if self._names.top.must_stay_first(statement):
            raise CannotEdit("shape", "Nothing may come before a docstring or an import from __future__.")

    def _block(self, block: Block) -> BlockEdits:
        return self.state.blocks.setdefault(block, BlockEdits())

    def _touch(self, place: Range) -> None:
        if any(_holds(it, place) for it in self.state.exclusive):
            raise CannotEdit("conflict", "Another edit removes this code.")
        self.state.touched.append(place)

    def _claim(self, place: Range) -> None:
        self._touch(place)
        if any(_holds(place, it) for it in self.state.touched[:-1]):
            raise CannotEdit("conflict", "Another edit changes part of this code.")
        self.state.exclusive.append(place)


def _holds(outer: Range, inner: Range) -> bool:
    """Whether one place is within the other; a point of insertion only if it is between its ends."""
    if inner[0] == inner[1]:
        return outer[0] < inner[0] < outer[1]
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _conflict(name: str) -> CannotEdit:
    return CannotEdit("conflict", f"Another edit gives {name} another value.")


def _same_line(one: cst.CSTNode, other: cst.CSTNode) -> bool:
    if not isinstance(one, cst.SimpleStatementLine) or not isinstance(other, cst.SimpleStatementLine):
        return False
    plain = [it.with_changes(leading_lines=(), trailing_whitespace=cst.TrailingWhitespace()) for it in (one, other)]
    return insertions.same_code(plain[0], plain[1])


def _copied(state: State) -> State:
    """Copy the queue. Nodes are shared: they are immutable."""
    return State(
        values=dict(state.values),
        removed={key: list(it) for key, it in state.removed.items()},
        added={key: dict(it) for key, it in state.added.items()},
        replaced=dict(state.replaced),
        wrapped={key: list(it) for key, it in state.wrapped.items()},
        blocks={key: _copied_block(it) for key, it in state.blocks.items()},
        imports=dict(state.imports),
        bound=dict(state.bound),
        top=list(state.top),
        exclusive=list(state.exclusive),
        touched=list(state.touched),
    )


def _copied_block(edits: BlockEdits) -> BlockEdits:
    result = copy.copy(edits)
    result.before = {key: list(it) for key, it in edits.before.items()}
    result.after = {key: list(it) for key, it in edits.after.items()}
    result.start = list(edits.start)
    result.wraps = list(edits.wraps)
    result.removed = set(edits.removed)
    result.unwrapped = set(edits.unwrapped)
    return result
