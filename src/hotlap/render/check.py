"""A check's answer on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.records import Against, Check, CheckVerdict
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.brief import Brief, Next, Row
from hotlap.render.comparison import how_measured
from hotlap.render.layout import Trimmed, paragraphs
from hotlap.render.presentable import presentable

WORDS: dict[CheckVerdict, str] = {"passed": "Passed", "failed": "Failed", "inconclusive": "Inconclusive"}
STYLES: dict[CheckVerdict, str] = {"passed": "bold green", "failed": "bold red", "inconclusive": "bold yellow"}

_WIDEST = 110
_KEPT = "Kept for `hotlap history` in"
_TONES: dict[CheckVerdict, Tone] = {"passed": "good", "failed": "bad", "inconclusive": "neutral"}


def check_report(found: Check) -> RenderableType:
    """The page of one check."""
    found = presentable(found, found.workload.directory)
    pieces: list[RenderableType] = [
        Text("hotlap check  ", style="dim")
        .append(text.command(found.workload), style="default")
        .append(f"  {text.clock(found.spent_seconds)}", style="dim"),
        Text(),
        Text(f"{WORDS[found.verdict]}.", style=STYLES[found.verdict]),
        _parts(found),
        Text(),
        *paragraphs(details(found)),
    ]
    return Trimmed(Constrain(Group(*pieces), _WIDEST))


def check_summary(found: Check) -> Brief:
    """The check on one screen."""
    found = presentable(found, found.workload.directory)
    parts = tuple(
        Row(name.capitalize(), (said if verdict is None else f"{WORDS[verdict]}. {said}",), most=4, least=2)
        for name, verdict, said in verdicts(found)
    )
    warnings = tuple(text.sentence(it) for it in found.warnings)
    rest = [it for it in details(found) if it not in warnings and not it.startswith(_KEPT)]
    commands = [Next(f"hotlap check --full {text.command(found.workload)}", "again, with the whole report")]
    if found.directory:
        commands = [
            Next("hotlap history", "earlier checks of this project"),
            Next(text.of_study("hotlap report --full", found.directory), "the whole report"),
        ]
    return Brief(
        top=f"hotlap check  {text.command(found.workload)}  {text.clock(found.spent_seconds)}",
        tone=_TONES[found.verdict],
        sentence=f"{WORDS[found.verdict]}.",
        rows=(
            *parts,
            Row("Trust", tuple(rest), most=6, least=3),
            Row("Warnings" if len(warnings) > 1 else "Warning", warnings, is_list=True, style="yellow"),
        ),
        commands=tuple(commands),
    )


def details(found: Check) -> list[str]:
    """Describe the basis of the answer: the sides, method, memory, machine and warnings."""
    lines = [against_words(found.against)]
    if found.speed.comparison is not None:
        lines.append(how_measured(found.speed.comparison))
    if found.cost is not None:
        lines.append(_expected(found))
    memory = text.change_of_size(found.before_peak_bytes, found.now_peak_bytes)
    if memory and memory != "same":
        lines.append(f"Peak memory: {memory}.")
    where = ", ".join(
        filter(None, (text.one_line(found.machine), found.torch_version and f"torch {found.torch_version}"))
    )
    if where:
        lines.append(f"Measured on {text.one_line(where)}.")
    lines += [text.sentence(it) for it in found.warnings]
    if found.directory:
        lines.append(f"{_KEPT} {text.one_line(found.directory)}")
    return lines


def _expected(found: Check) -> str:
    """Compare the expected duration with the actual one."""
    assert found.cost is not None
    least, most = text.clock(found.cost.least_seconds), text.clock(found.cost.most_seconds)
    budget = f", of a budget of {text.clock(found.budget_seconds)}" if found.budget_seconds is not None else ""
    return f"It took {text.clock(found.spent_seconds)}{budget}; {least} to {most} were expected."


def against_words(against: Against) -> str:
    """Name the two sides."""
    name = text.one_line(against.name)
    if against.kind == "plan":
        return f"Compared: the script with and without the plan of {name}."
    under = f"both under the plan {text.one_line(against.plan_name)}" if against.plan_name else "both without a plan"
    return f"Compared: the current script and its version at {name} ({against.commit[:12]}), {under}."


def verdicts(found: Check) -> Iterator[tuple[str, CheckVerdict | None, str]]:
    """Each part of the check: its name, verdict (None: left out) and sentences."""
    yield "speed", found.speed.verdict, text.one_line(found.speed.text, limit=2000)
    if found.numbers is not None:
        yield "numbers", found.numbers.verdict, text.one_line(found.numbers.text, limit=2000)
    elif found.speed.comparison is not None:
        yield "numbers", None, "Not compared (--speed-only)."
    else:
        yield "numbers", None, "Not compared, because the speed could not be compared."


def _parts(found: Check) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, verdict, said in verdicts(found):
        word = Text("left out", style="dim") if verdict is None else Text(verdict, style=STYLES[verdict])
        table.add_row(Text(f"  {name}"), word, Text(said))
    return table
