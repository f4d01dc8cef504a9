"""The list of rules by group, and the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.render import text
from hotlap.render.layout import Trimmed
from hotlap.render.pages import docstring_page

_WIDEST = 100
GROUPS = {
    "data": "Data: reading, transforming and feeding batches",
    "host": "Host: what the Python process does while the device could work",
    "compute": "Compute: the operators themselves",
    "compile": "Compile: what torch.compile makes of the model",
    "memory": "Memory: what is stored, and what is wasted",
    "numbers": "Numbers: losses and gradients that are not what they should be",
    "distributed": "Distributed: processes that wait for each other",
    "run": "Run: what the script does outside of steps",
    "machine": "Machine: what slows every program down",
}


@dataclass(frozen=True, slots=True)
class RulePage:
    """The data of a rule for ``hotlap findings``: the docstring of its file, and the levers that address it."""

    name: str
    title: str
    group: str
    levers: tuple[str, ...]
    page: str


def rule_list(rules: Sequence[RulePage]) -> RenderableType:
    """Every rule in one line, under the heading of its group."""
    width = max((len(it.name) for it in rules), default=0)
    pieces: list[RenderableType] = []
    for group, heading in GROUPS.items():
        mine = [it for it in rules if it.group == group]
        if mine:
            pieces += [Text(heading, style="bold"), _table(mine, width), Text()]
    following = Text("hotlap findings RULE", style="bold cyan").append("  shows the page of one", style="default")
    return Trimmed(Constrain(Group(*pieces, following), _WIDEST))


def rule_page(rule: RulePage) -> RenderableType:
    """One rule: its group, the levers that address it, and its page."""
    top = Text(rule.name, style="bold").append(f"  {text.one_line(rule.title)}", "dim")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    table.add_row(Text("  group"), Text(rule.group))
    levers = text.listed([text.one_line(it) for it in rule.levers]) if rule.levers else "none: see what to do"
    table.add_row(Text("  levers that address it"), Text(levers))
    return Trimmed(Constrain(Group(top, table, *docstring_page(rule.page, rule.title)), _WIDEST))


def _table(rules: Sequence[RulePage], width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=width + 2)
    table.add_column(style="dim")
    for it in rules:
        table.add_row(Text(f"  {it.name}"), Text(text.one_line(it.title)))
    return table
