"""The time account of a step, before and after, as bars on one scale and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hotlap.records import PHASES, STEP_PHASES, PhaseAccount, RunAccount, StepPhase
from hotlap.render import text
from hotlap.render.bars import Part, StackedBar, Swatch
from hotlap.render.layout import paragraphs
from hotlap.render.run_account import run_sentences

# Okabe and Ito's colours ("Color Universal Design", 2008), which people with every common kind of colour vision
# can tell apart, with a pattern for each where there are no colours, and the like of it on light and on dark pages; by
# the place of a phase in the table.
_LOOKS = (
    ("#e69f00", "█", "light-dark(#b85a00, #f2a24e)"),
    ("#f0e442", "▞", "light-dark(#8a7200, #e8d651)"),
    ("#56b4e9", "▓", "light-dark(#3a8fd0, #74c4f7)"),
    ("#0072b2", "▒", "light-dark(#0a4a86, #3f8edb)"),
    ("#009e73", "░", "light-dark(#00785b, #2fc096)"),
    ("#cc79a7", "▚", "light-dark(#a04a7c, #e3a3c8)"),
)
_OTHER = ("#999999", "·", "light-dark(#737b83, #a4adb5)")


class ShownPhase(NamedTuple):
    """A phase as every medium shows it; ``variable`` is the CSS variable of a page that holds ``on_page``."""

    phase: StepPhase
    title: str
    letter: str
    colour: str
    pattern: str
    on_page: str

    @property
    def variable(self) -> str:
        return f"--{self.phase.replace('_', '-')}"


SHOWN_PHASES = tuple(
    ShownPhase(it, PHASES[it].title, PHASES[it].letter, *(_OTHER if it == "other" else _LOOKS[place]))
    for place, it in enumerate(STEP_PHASES)
)


def parts(account: PhaseAccount, factor: float = 1.0) -> tuple[Part, ...]:
    """The phases of an account as parts of a bar, in the order of a step."""
    return tuple(
        Part(amount=account.seconds_in(it.phase) * factor, colour=it.colour, pattern=it.pattern, plain=it.letter)
        for it in SHOWN_PHASES
    )


def time_account(
    before: PhaseAccount,
    after: PhaseAccount | None,
    after_name: str = "after",
    *,
    doubt: str = "",
    run: RunAccount | None = None,
) -> RenderableType:
    """Bars and table of one or two accounts.

    ``after_name`` names the second one, ``doubt`` what disturbed them, and ``run`` the rest of the run. Both are shown
    for the samples of one step of the unmodified script, so that their lengths are comparable even if a step now holds
    more samples.
    """
    factor = samples_factor(before, after)
    accounts = [("before" if after else "unmodified", before, 1.0)]
    if after:
        accounts.append((after_name, after, factor))
    pieces: list[RenderableType] = [_bars(accounts), Text(), _table(accounts)]
    remarks = account_remarks(before, after, factor, doubt=doubt, run=run)
    if remarks:
        pieces += paragraphs(remarks)
    return Group(*pieces)


def bottleneck(account: PhaseAccount) -> tuple[str, float]:
    """The longest phase of a step, and its share."""
    if account.wall <= 0:
        return "", 0.0
    largest = max(SHOWN_PHASES, key=lambda it: account.seconds_in(it.phase))
    return largest.title, account.seconds_in(largest.phase) / account.wall


def _bars(accounts: list[tuple[str, PhaseAccount, float]]) -> Table:
    full = max(_whole(account) * factor for _, account, factor in accounts)
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    for name, account, factor in accounts:
        bar = StackedBar(parts=parts(account, factor), full=full)
        grid.add_row(Text(f"  {name}"), bar, Text(text.duration(account.wall * factor), style="bold"))
    return grid


def _table(accounts: list[tuple[str, PhaseAccount, float]]) -> Table:
    unit, scale, decimals = text.duration_unit(max(account.wall * factor for _, account, factor in accounts))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, min_width=14)
    for _ in accounts:
        table.add_column(justify="right", no_wrap=True, min_width=8)
        table.add_column(justify="right", no_wrap=True, min_width=5)
    headings = [Text(cell, style="dim") for name, _, _ in accounts for cell in (name, "share")]
    table.add_row("", Text(f"mean {unit} per step", style="dim"), *headings)

    def cells(seconds: Sequence[float], style: str = "") -> list[Text]:
        shown: list[Text] = []
        for amount, (_, account, factor) in zip(seconds, accounts, strict=True):
            part = amount / (account.wall * factor) if account.wall > 0 else 0.0
            shown.append(Text(f"{amount * scale:.{decimals}f}", style=style))
            shown.append(Text(f"{part * 100:.0f} %", style=style or "dim"))
        return shown

    for part, it in zip(parts(accounts[0][1]), SHOWN_PHASES, strict=True):
        amounts = [account.seconds_in(it.phase) * factor for _, account, factor in accounts]
        table.add_row(Padding(Swatch(part), (0, 0, 0, 2)), Text(it.title), *cells(amounts))
    wholes = [account.wall * factor for _, account, factor in accounts]
    table.add_row("", Text("whole step", style="bold"), *cells(wholes, "bold"))
    return table


def account_remarks(
    before: PhaseAccount,
    after: PhaseAccount | None,
    factor: float,
    *,
    doubt: str = "",
    run: RunAccount | None = None,
) -> list[str]:
    """Return remarks: disturbances, steps of another size, and time outside of steps."""
    remarks = [it for it in (doubt, samples_remark(before)) if it]
    if factor != 1.0 and after:
        remarks.append(
            f"A step now holds {after.samples_per_step:g} samples instead of {before.samples_per_step:g}; "
            "both are shown for the samples of one step before."
        )
    if run is not None:
        remarks += run_sentences(run)
    elif before.outside > 0.005 * before.wall:
        remarks.append(
            f"Outside of steps (evaluation, checkpoints and the like): {text.duration(before.outside)} per step on top."
        )
    return remarks


def rate_of(account: PhaseAccount) -> tuple[str, float]:
    """Return a named rate: samples or tokens per second of all trainers; steps if samples are a guess."""
    if account.samples_are_guessed:
        return "calls per second" if account.is_of_calls else "steps per second", 1 / account.wall
    counted = "tokens" if account.samples_from == "tokens" else "samples"
    return f"{counted} per second", account.samples_of_all / account.wall


def samples_remark(account: PhaseAccount) -> str:
    """Describe how many samples a step has and how they were counted; empty if not recorded."""
    number = account.samples_per_step
    # The mean of steps of which the last in an epoch is shorter is no whole number.
    held = f"{number:g}" if number == round(number) else f"{number:.1f}"
    held += " sample" if number == 1 else " samples"
    if account.trainers > 1:
        held += f" in each of {account.trainers} processes"
    match account.samples_from:
        case "loader":
            return f"A step holds {held}, by the batch size of its DataLoader."
        case "batch":
            return f"A step holds {held}, by the first dimension of what its DataLoader delivers."
        case "tokens":
            return f"A call of generate() adds {number:.4g} tokens on average; rates and times are those of tokens."
        case "inputs":
            return (
                f"How many samples a step holds is a guess: {held}, by the first dimension of the model's input, which "
                "need not be the batch. Rates and prices of samples are left out."
            )
        case "none":
            return "How many samples a step holds is unknown, so rates and prices of samples are left out."
    return ""


def samples_factor(before: PhaseAccount, after: PhaseAccount | None) -> float:
    """Return the factor that scales the second account to the samples of the first."""
    if after is None or after.samples_per_step <= 0:
        return 1.0
    factor = before.samples_per_step / after.samples_per_step
    return 1.0 if abs(factor - 1.0) < 0.02 else factor


def _whole(account: PhaseAccount) -> float:
    return max(account.wall, sum(part.amount for part in parts(account)))
