"""The list of levers, and the page of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.records import Proof
from hotlap.render import text
from hotlap.render.layout import Trimmed, indented
from hotlap.render.pages import docstring_page

_WIDEST = 100
_PROOFS: dict[Proof, tuple[str, str]] = {
    "exact": (
        "exact",
        "losses (of inference, outputs) must be identical to the last bit, or differ no more than two runs of the "
        "unmodified script do",
    ),
    "rounding": ("rounding", "the same computation in another rounding: gates G0 to G3 (or G5) must find nothing"),
    "behaviour": ("behaviour", "changes what is learned: tried only when allowed by name, with --allow"),
}


@dataclass(frozen=True, slots=True)
class LeverPage:
    """The data of a lever for ``hotlap levers``.

    ``page`` is the docstring of its file, ``parameters`` are names and ranges, ``work`` is what it makes faster.
    """

    name: str
    title: str
    proof: Proof
    work: tuple[str, ...]
    addresses: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    page: str


def lever_list(levers: Sequence[LeverPage]) -> RenderableType:
    """One line for each lever, and the meaning of the kinds of proof."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    table.add_row(*(Text(name, style="dim") for name in ("lever", "proof", "for", "what it does")))
    for it in levers:
        table.add_row(Text(it.name), Text(it.proof), Text(_works(it)), Text(text.one_line(it.title)))
    used = [kind for kind in _PROOFS if any(it.proof == kind for it in levers)]
    proofs = [indented(Text(f"{_PROOFS[kind][0]}: ").append(_PROOFS[kind][1], style="dim"), 0) for kind in used]
    following = Text("hotlap levers NAME", style="bold cyan").append("  shows the page of one", style="default")
    return Trimmed(Constrain(Group(table, Text(), *proofs, Text(), following), _WIDEST))


def _works(lever: LeverPage) -> str:
    return "both" if len(lever.work) > 1 else text.one_line(lever.work[0])


def lever_page(lever: LeverPage) -> RenderableType:
    """One lever: its proof, its values, and its page."""
    pieces: list[RenderableType] = [Text(lever.name, style="bold").append(f"  {text.one_line(lever.title)}", "dim")]
    kind, meaning = _PROOFS[lever.proof]
    facts = [("proof", f"{kind}: {meaning}"), ("for", " and ".join(map(text.one_line, lever.work)))]
    if lever.addresses:
        facts.append(("answers", ", ".join(map(text.one_line, lever.addresses))))
    facts += [(name, f"value in a plan: {kind_of_value}") for name, kind_of_value in lever.parameters]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for name, fact in facts:
        table.add_row(Text(f"  {name}"), Text(fact))
    pieces += [table, *docstring_page(lever.page, lever.title)]
    return Trimmed(Constrain(Group(*pieces), _WIDEST))
