"""Set and remove arguments of a call and entries of a dictionary, in the layout of the others."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from hotlap.source.edits.refusals import CannotEdit

_NOTHING = cst.SimpleWhitespace("")


def index_of(call: cst.Call, name: str, position: int | None) -> int | None:
    """Find the argument that passes a parameter; None if none does.

    Raises :class:`CannotEdit` if ``*args`` or ``**kwargs`` hides it.
    """
    for number, argument in enumerate(call.args):
        if argument.keyword is not None and argument.keyword.value == name:
            return number
    starred = next((it.star for it in call.args if it.star), "")
    if starred == "**":
        raise CannotEdit("hidden-arguments", f"The call is given **{_code_of_star(call)}, which may hold {name}.")
    if position is not None:
        for number, argument in enumerate(call.args):
            if argument.star:
                raise CannotEdit(
                    "hidden-arguments", f"The call is given *{_code_of_star(call)}, which may hold {name}."
                )
            if argument.keyword is not None:
                break
            if number == position:
                return number
    return None


def without(call: cst.Call, index: int) -> cst.Call:
    """Remove an argument. Raises :class:`CannotEdit` if other positional arguments would shift."""
    argument = call.args[index]
    if argument.keyword is None and any(it.keyword is None for it in call.args[index + 1 :]):
        raise CannotEdit("positional", "The argument is passed by position, and others come after it.")
    return call.with_changes(args=_removed(call.args, index))


def with_argument(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """Add a keyword argument in the layout of the others."""
    args = [_with_parentheses(it) if len(call.args) == 1 else it for it in call.args]
    new = cst.Arg(
        keyword=cst.Name(name),
        value=value,
        equal=cst.AssignEqual(whitespace_before=_NOTHING, whitespace_after=_NOTHING),
    )
    at_end = len(args)
    while at_end and args[at_end - 1].star == "**":  # keywords come before unpacked arguments
        at_end -= 1
    if at_end < len(args):
        comma = args[at_end - 1].comma if at_end else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return call.with_changes(args=[*args[:at_end], new.with_changes(comma=comma), *args[at_end:]])
    if not args:
        return call.with_changes(args=[new.with_changes(whitespace_after_arg=_NOTHING)])
    return call.with_changes(args=_appended(args, new, call.whitespace_before_args))


def broken_before_last(call: cst.Call, count: int, column: int) -> cst.Call:
    """Move the last arguments to the next line, at a column relative to the statement's."""
    args = list(call.args)
    before = len(args) - count - 1
    comma = args[before].comma
    if before < 0 or not isinstance(comma, cst.Comma) or args[-1].star:
        return call
    newline = cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(" " * max(column, 4)))
    args[before] = args[before].with_changes(comma=comma.with_changes(whitespace_after=newline))
    return call.with_changes(args=args)


def with_value(argument: cst.Arg, value: cst.BaseExpression) -> cst.Arg:
    return argument.with_changes(value=value)


def entry_of(dictionary: cst.Dict, key: str) -> int | None:
    """Find the element with a key. Raises :class:`CannotEdit` if some key is not a plain string."""
    found: int | None = None
    for number, element in enumerate(dictionary.elements):
        if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
            raise CannotEdit("shape", f"The dictionary has keys that cannot be read, and may hold {key!r}.")
        if element.key.evaluated_value == key:
            found = number
    return found


def with_entry(dictionary: cst.Dict, key: str, value: cst.BaseExpression) -> cst.Dict:
    """Add an entry in the layout and quotes of the others."""
    elements = list(dictionary.elements)
    keys = [it.key for it in elements if isinstance(it, cst.DictElement) and isinstance(it.key, cst.SimpleString)]
    quote = keys[0].quote if keys and len(keys[0].quote) == 1 else '"'
    new = cst.DictElement(key=cst.SimpleString(f"{quote}{key}{quote}"), value=value)
    if not elements:
        return dictionary.with_changes(elements=[new])
    last = elements[-1]
    ends_with_comma = isinstance(last.comma, cst.Comma)
    closing = dictionary.rbrace.whitespace_before  # LibCST keeps what follows a last comma here too
    gap = _gap(elements, dictionary.lbrace.whitespace_after, closing)
    elements[-1] = last.with_changes(comma=cst.Comma(whitespace_after=gap))
    if ends_with_comma:
        new = new.with_changes(comma=cst.Comma())
    brace = dictionary.rbrace.with_changes(whitespace_before=_bare(closing))
    return dictionary.with_changes(elements=[*elements, new], rbrace=brace)


# -- layout ---------------------------------------------------------------------------------------


def _appended(args: list[cst.Arg], new: cst.Arg, before: cst.BaseParenthesizableWhitespace) -> list[cst.Arg]:
    """Append an argument. Text between the last one and the parenthesis stays before the parenthesis, except for a
    comment, which stays with its argument."""
    last = args[-1]
    if isinstance(last.comma, cst.Comma):
        closing = last.comma.whitespace_after
        old = last.with_changes(comma=last.comma.with_changes(whitespace_after=_gap(args, before, closing)))
        return [*args[:-1], old, new.with_changes(comma=cst.Comma(whitespace_after=_bare(closing)))]
    closing = last.whitespace_after_arg
    old = last.with_changes(
        comma=cst.Comma(whitespace_after=_gap(args, before, closing)), whitespace_after_arg=_NOTHING
    )
    return [*args[:-1], old, new.with_changes(whitespace_after_arg=_bare(closing))]


def _gap(
    items: Sequence[cst.Arg] | Sequence[cst.BaseDictElement],
    before: cst.BaseParenthesizableWhitespace,
    closing: cst.BaseParenthesizableWhitespace,
) -> cst.BaseParenthesizableWhitespace:
    """The separator before a new item: that of the last two items, or the one before the only item."""
    between = before
    if len(items) > 1:
        comma = items[-2].comma
        if isinstance(comma, cst.Comma):
            between = comma.whitespace_after
    if isinstance(closing, cst.ParenthesizedWhitespace) and closing.first_line.comment is not None:
        line = between.last_line if isinstance(between, cst.ParenthesizedWhitespace) else closing.last_line
        indent = between.indent if isinstance(between, cst.ParenthesizedWhitespace) else closing.indent
        return cst.ParenthesizedWhitespace(first_line=closing.first_line, indent=indent, last_line=line)
    if isinstance(between, cst.ParenthesizedWhitespace):
        return _bare(between)
    return cst.SimpleWhitespace(" ")


def _bare(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    """The same whitespace without its comments and blank lines."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = space.first_line.with_changes(comment=None, whitespace=_NOTHING)
    return space.with_changes(first_line=first, empty_lines=())


def _removed(args: Sequence[cst.Arg], index: int) -> list[cst.Arg]:
    rest = [*args[:index], *args[index + 1 :]]
    if rest and index == len(args) - 1:
        gone = args[index]
        rest[-1] = rest[-1].with_changes(comma=gone.comma, whitespace_after_arg=gone.whitespace_after_arg)
    return rest


def _with_parentheses(argument: cst.Arg) -> cst.Arg:
    """A generator that is a call's only argument needs parentheses once there is another."""
    value = argument.value
    if not isinstance(value, cst.GeneratorExp) or value.lpar:
        return argument
    return argument.with_changes(value=value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]))


def _code_of_star(call: cst.Call) -> str:
    starred = next(it for it in call.args if it.star)
    return cst.Module(body=()).code_for_node(starred.value)
