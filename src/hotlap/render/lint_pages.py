"""The page of one lint rule."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.render import text
from hotlap.render.layout import Trimmed
from hotlap.render.pages import docstring_page
from hotlap.source.lint.records import LintRule

_WIDEST = 100


def lint_rule_page(rule: LintRule) -> RenderableType:
    """One rule: its code, group and grade, and its page."""
    top = Text(f"{rule.code}  {rule.name}", style="bold").append(f"  {text.one_line(rule.title)}", "dim")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    table.add_row(Text("  group"), Text(rule.group))
    table.add_row(Text("  fix"), Text(rule.fix))
    if rule.measured:
        table.add_row(Text("  measured"), Text(rule.measured))
    return Trimmed(Constrain(Group(top, table, *docstring_page(rule.page, rule.title)), _WIDEST))
