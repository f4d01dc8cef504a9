"""``hotlap levers``: what each lever does, when it helps, and what proof it owes."""

from __future__ import annotations

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.answers import add_no_pager, show_list
from hotlap.cli.arguments import Parser, nearest
from hotlap.errors import UsageError
from hotlap.levers.api import Lever, Parameter, levers_of_any_work
from hotlap.render.lever_pages import LeverPage, lever_list, lever_page

_DESCRIPTION = (
    "Lists the levers, or shows the page of one: what it does, when it helps, what it costs, and the proof it requires."
)


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap levers", _DESCRIPTION, usage="hotlap levers [options] [NAME]")
    made.add_argument("name", nargs="?", help="show the page of this lever")
    made.add_json()
    add_no_pager(made)
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    known = levers_of_any_work()
    if choices.name is None:
        pages = [_page_of(it) for it in known.values()]
        if choices.json:
            screen.document("levers", {"levers": pages})
        else:
            show_list(choices, screen.drawn(lever_list(pages)))
        return 0
    if choices.name not in known:
        hint = nearest(choices.name, known)
        raise UsageError(f"There is no lever named {choices.name!r}.", remedy=f"{hint}`hotlap levers` lists them.")
    page = _page_of(known[choices.name])
    if choices.json:
        screen.document("page", page)
    else:
        screen.show(lever_page(page))
    return 0


def _page_of(lever: Lever) -> LeverPage:
    parameters = tuple((name, _range_of(it)) for name, it in lever.parameters.items())
    return LeverPage(
        name=lever.name,
        title=lever.title,
        proof=lever.proof,
        work=lever.work,
        addresses=lever.addresses,
        parameters=parameters,
        page=lever.page,
    )


def _range_of(parameter: Parameter) -> str:
    """``one of "a", "b"``, ``a whole number from 0 to 64``, ``true or false``."""
    if parameter.choices:
        return "one of " + ", ".join(f'"{it}"' if isinstance(it, str) else str(it) for it in parameter.choices)
    if parameter.kind is bool:
        return "true or false"
    kind = {int: "a whole number", float: "a number", str: "a text"}.get(parameter.kind, parameter.kind.__name__)
    least = f" from {parameter.minimum}" if parameter.minimum is not None else ""
    most = f" to {parameter.maximum}" if parameter.maximum is not None else ""
    return f"{kind}{least}{most}"
