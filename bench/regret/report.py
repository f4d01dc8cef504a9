"""The result as a Markdown text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.regret.contest import Found, Result, Terms
from bench.regret.grid import Choices, Grid, same
from bench.report import table
from hotlap.plan import describe
from hotlap.records import Estimate, Plan, Study

WANTED = 0.98
"""What found / best should be at least,"""

WANTED_AT_LEAST = 0.95
"""and its whole interval."""

HEATS_SHOWN = 16

SAME = "the same levers"


@dataclass(frozen=True, slots=True)
class Row:
    """One example: the searches by budget, the smallest first, the plans that they found, and the grid.

    ``left`` says what the same command still has to measure.
    """

    name: str
    arguments: tuple[str, ...]
    studies: tuple[Study, ...]
    choices: Choices
    grid: Grid
    result: Result | None
    trouble: str = ""
    left: str = ""


def unfinished(name: str, arguments: tuple[str, ...], studies: Sequence[Study], left: str) -> Row:
    """The row of an example of which only these searches are finished."""
    grid = Grid((), 0, f"not finished: {left} are left, for the same command again")
    return Row(name, arguments, tuple(map(without_columns, studies)), {}, grid, None, f"{left} are left", left)


def without_columns(study: Study) -> Study:
    """The study without its per-step columns, which are not needed here."""
    return msgspec.structs.replace(study, baseline=None)


def words(plan: Plan) -> str:
    """A plan in a line."""
    return ", ".join(describe(it) for it in plan.settings) or "nothing"


def interval(estimate: Estimate) -> str:
    """A ratio with its 95 % interval."""
    return f"{estimate.value:.3f} ({estimate.low:.3f}-{estimate.high:.3f})"


def verdict(found: Found) -> str:
    """The conclusion of the final about the promise."""
    ratio = found.ratio
    if not ratio.baseline_agrees:
        return "no claim: the best plan differed from its repeat"
    if ratio.speedup.low > WANTED_AT_LEAST and ratio.speedup.value >= WANTED:
        return "kept"
    return "missed" if ratio.speedup.high < WANTED else "undecided"


def markdown(rows: Sequence[Row], terms: Terms) -> str:
    """The report below its head."""
    head = (
        "example",
        "budget",
        "found plan",
        "its speedup",
        "best other plan",
        "its speedup",
        "found / best",
        "promise",
    )
    lines = [
        "The plans that `hotlap tune` found with several budgets, against the best other plan of a grid over the same",
        "levers. Every replicate runs its arms in turns, block by block; the ratio is of speeds (1.000: nothing was",
        f"left on the table), with its 95 % interval over {terms.final_replicates} fresh replicates, before which the",
        f"best plan had been chosen. The promise is a ratio of at least {WANTED}, with its whole interval above",
        f"{WANTED_AT_LEAST}. Where the best other plan has the same levers, in another order, the ratio shows what two",
        "equal plans differed by.",
        "",
        table(head, [cells for it in rows for cells in _cells(it)]),
    ]
    for row in rows:
        lines += ["", f"## {row.name}", "", *_details(row)]
    return "\n".join(lines)


def data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [_datum(it) for it in rows]


def _budget(study: Study) -> str:
    return f"{study.budget_seconds / 60:g} min" if study.budget_seconds else "none"


def _cells(row: Row) -> list[list[str]]:
    if row.result is None:
        cells = [[row.name, _budget(it), words(it.plan), "", "", "", "", row.trouble] for it in row.studies]
        return cells or [[row.name, "", "", "", "", "", "", row.trouble]]
    best, its_speedup = row.result.best, interval(row.result.best_speedup.speedup)
    finals = [(study, row.result.of(study.plan)) for study in row.studies]
    return [
        [
            *(row.name, _budget(study), words(study.plan), interval(found.speedup.speedup)),
            *(SAME if same(study.plan, best) else words(best), its_speedup),
            *(interval(found.ratio.speedup), verdict(found)),
        ]
        for study, found in finals
    ]


def _details(row: Row) -> list[str]:
    lines = [f"- `{' '.join((row.name, *row.arguments))}`"]
    lines += [f"- the search with {_budget(it)}: {it.status}, {it.spent_seconds:.0f} s" for it in row.studies]
    if not row.left:
        lines.append(f"- levers in the grid: {'; '.join(_lever(name, row.choices) for name in row.choices) or 'none'}")
    lines.append(f"- {row.grid.statement}")
    if row.result is None:
        return lines
    climbed = len(row.result.heats) + len(row.result.failed) - len(row.grid.plans)
    lines += [f"- {climbed} further plans, next to the best one so far, had heats as well."] if climbed > 0 else []
    lines += [f"- could not be run: {words(it)}" for it in row.result.failed]
    lines += [
        "",
        "Best in the heats (one replicate each, relative to the plan found with the largest budget):",
        "",
        table(["plan", "speed"], [[words(plan), f"{speed:.3f}"] for plan, speed in row.result.heats[:HEATS_SHOWN]]),
    ]
    return lines


def _lever(name: str, choices: Choices) -> str:
    return ", ".join(describe(it) for it in choices[name])


def _datum(row: Row) -> dict[str, Any]:
    result = row.result
    found: dict[str, Any] = {
        "example": row.name,
        "arguments": row.arguments,
        "grid": row.grid.statement,
        "grid_size": row.grid.size,
        "trouble": row.trouble,
        "left": row.left,
        "searches": [_search(it, result) for it in row.studies],
    }
    if result is None:
        return found
    return found | {
        "best": msgspec.to_builtins(result.best),
        "best_speedup": msgspec.to_builtins(result.best_speedup),
        "heats": [{"plan": msgspec.to_builtins(plan), "relative_speed": speed} for plan, speed in result.heats],
        "failed": [msgspec.to_builtins(it) for it in result.failed],
    }


def _search(study: Study, result: Result | None) -> dict[str, Any]:
    words: dict[str, Any] = {
        "budget_seconds": study.budget_seconds,
        "spent_seconds": study.spent_seconds,
        "status": study.status,
        "found": msgspec.to_builtins(study.plan),
    }
    if result is None:
        return words
    final = result.of(study.plan)
    return words | {
        "found_over_best": msgspec.to_builtins(final.ratio),
        "found_speedup": msgspec.to_builtins(final.speedup),
        "verdict": verdict(final),
    }
