"""``hotlap findings``: the known causes of slowness, how each is recognised and what to do about it."""

from __future__ import annotations

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.answers import add_no_pager, show_list
from hotlap.cli.arguments import Parser, nearest
from hotlap.diagnose.api import Rule, all_rules
from hotlap.errors import UsageError
from hotlap.render.rule_pages import RulePage, rule_list, rule_page

_DESCRIPTION = """\
Lists the causes of slowness that `hotlap profile` looks for, or shows the page of one: what it is,
why it is slow, how to see it, what to do, and when it is fine."""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap findings", _DESCRIPTION, usage="hotlap findings [options] [RULE]")
    made.add_argument("rule", nargs="?", help="show the page of this rule")
    made.add_json()
    add_no_pager(made)
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    known = all_rules()
    if choices.rule is None:
        pages = [_page_of(it) for it in known.values()]
        if choices.json:
            screen.document("findings", {"rules": pages})
        else:
            show_list(choices, screen.drawn(rule_list(pages)))
        return 0
    if choices.rule not in known:
        hint = nearest(choices.rule, known)
        raise UsageError(f"There is no rule named {choices.rule!r}.", remedy=f"{hint}`hotlap findings` lists them.")
    page = _page_of(known[choices.rule])
    if choices.json:
        screen.document("page", page)
    else:
        screen.show(rule_page(page))
    return 0


def _page_of(rule: Rule) -> RulePage:
    return RulePage(name=rule.name, title=rule.title, group=rule.group, levers=rule.levers, page=rule.page)
