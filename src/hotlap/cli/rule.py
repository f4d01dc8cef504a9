"""``hotlap rule``: the lint rules, and the page of one."""

from __future__ import annotations

from hotlap.cli import screen
from hotlap.cli.answers import add_no_pager, show_list
from hotlap.cli.arguments import Parser, nearest
from hotlap.errors import UsageError
from hotlap.render.lint import rule_lines
from hotlap.render.lint_pages import lint_rule_page
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.configuration import withdrawn
from hotlap.source.lint.run import rule_record

_DESCRIPTION = """\
Lists the patterns that `hotlap lint` looks for, or shows the page of one: what it finds, why it is
slow or wrong, what to write instead, and how safe its fix is."""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap rule", _DESCRIPTION, usage="hotlap rule [options] [CODE_OR_NAME]")
    made.add_argument("rule", nargs="?", metavar="CODE_OR_NAME", help="HL201, or item-in-hot-loop")
    made.add_json()
    add_no_pager(made)
    made.add_debug()
    return made


def main(words: list[str], engine: object = None) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    rules = all_rules()
    if choices.rule is None:
        records = [rule_record(it) for it in rules.values()]
        if choices.json:
            screen.document("rules", {"rules": records})
        else:
            show_list(choices, rule_lines(records, screen.paper()))
        return 0
    asked = choices.rule.strip()
    found = next((it for it in rules.values() if asked.upper() == it.code or asked.lower() == it.name), None)
    if found is None and withdrawn(asked):
        raise UsageError(f"The lint rule {asked!r} was withdrawn.", remedy=withdrawn(asked))
    if found is None:
        hint = nearest(asked, [*rules, *(it.name for it in rules.values())])
        raise UsageError(f"There is no lint rule {asked!r}.", remedy=f"{hint}`hotlap rule` lists them.")
    if choices.json:
        screen.document("page", rule_record(found))
    else:
        screen.show(lint_rule_page(rule_record(found)))
    return 0
