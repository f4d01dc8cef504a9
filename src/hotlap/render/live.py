"""Live progress of a search: a small screen on a terminal, plain lines elsewhere.

:func:`fold` turns progress into a state, :func:`draw` shows a state; both are pure. :class:`LiveView` connects them to
a console. It redraws at most once a second, since every redraw takes time from the machine that is being measured.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hotlap.records import Estimate, Outcome, Progress, Skipped, Workload
from hotlap.render import text
from hotlap.render.layout import Trimmed, indented
from hotlap.render.lever_table import COLOURS, MARKS, row, verdict_word
from hotlap.wording import replicates_words

_WIDEST = 100
_OUTCOMES_SHOWN = 12
_STAGES = {
    "machine": "looking at the machine",
    "baseline": "running the unmodified script",
    "ceilings": "measuring ceilings",
    "profile": "looking for causes",
    "screening": "screening",
    "trial": "trying",
    "parity": "comparing numbers",
    "ablation": "checking that each lever is still needed",
    "verification": "verifying the whole plan",
    "end": "finished",
}


@dataclass(frozen=True, slots=True)
class State:
    """All progress so far: the last one, and the outcomes in order of appearance."""

    latest: Progress | None = None
    best: Estimate | None = None
    outcomes: tuple[Outcome, ...] = ()


def fold(state: State, progress: Progress) -> State:
    """The state after one more progress; a new outcome of a lever replaces the old one."""
    outcomes = state.outcomes
    if progress.outcome is not None:
        lever = progress.outcome.lever
        outcomes = (*(it for it in outcomes if it.lever != lever), progress.outcome)
    return replace(state, latest=progress, best=progress.best or state.best, outcomes=outcomes)


def draw(workload: Workload | None, state: State, waited_seconds: float = 0.0) -> RenderableType:
    """The screen of a state, ``waited_seconds`` after its last progress."""
    latest = state.latest
    top = Text("hotlap", style="bold").append(f"  {text.command(workload)}" if workload else "", style="dim")
    if latest is None:
        return Group(top, Text("  starting"))
    time_left = progress_words(latest, waited_seconds)
    pieces: list[RenderableType] = [top, Text()]
    stage = Text(_STAGES[latest.stage], style="bold cyan").append(_after_stage(latest))
    pieces.append(_StageAndTime(stage, Text(time_left, style="dim")))
    pieces += [indented(it) for it in (_said(latest),) if it]
    pieces += [indented(it, style="dim") for it in _numbers(latest, state.best)]
    tried = [it for it in state.outcomes if not isinstance(it.verdict, Skipped)]
    skipped = len(state.outcomes) - len(tried)
    if tried or skipped:
        pieces.append(Text())
    pieces += [_OutcomeLine(it) for it in tried[-_OUTCOMES_SHOWN:]]
    if skipped:
        pieces.append(Text(f"  {text.count(skipped, 'lever')} not worth a trial here", style="dim"))
    return Trimmed(Constrain(Group(*pieces), _WIDEST))


def line(state: State) -> str:
    """The last progress as one line, for logs and pipes."""
    latest = state.latest
    if latest is None:
        return ""
    said = outcome_words(latest.outcome) if latest.outcome else _said(latest)
    numbers = "; ".join(_numbers(latest, state.best))
    stage = f"{_STAGES[latest.stage]}{'' if latest.outcome else _after_stage(latest)}{':' if said else ''}"
    launches = f", {_launches(latest)}" if latest.launches_planned else ""
    parts = [f"[{text.clock(latest.spent_seconds)}{launches}]", stage, said]
    return " ".join(part for part in (*parts, f"({numbers})" if numbers else "") if part)


def outcome_words(outcome: Outcome) -> str:
    """An outcome in one line: ``loader 1.42x 1.38 to 1.46 kept: reason``."""
    _, word = verdict_word(outcome)
    found = row(outcome)
    reason = f": {found.reason}" if found.reason else ""
    return f"{' '.join(filter(None, (found.lever, found.speedup)))} {word}{reason}"


def progress_words(latest: Progress, waited_seconds: float = 0.0) -> str:
    """The time and launches so far, and of how many; without a plan, the time and what is left of the budget."""
    spent = latest.spent_seconds + waited_seconds
    if not latest.launches_planned:
        return time_words(spent, latest.budget_seconds)
    if not latest.seconds_planned:
        return f"{text.clock(spent)}, {_launches(latest)}"
    whole = text.clock(latest.seconds_planned)
    of = f" of about {whole}" if spent <= latest.seconds_planned else f", about {whole} planned"
    return f"{text.clock(spent)}{of}, {_launches(latest)}"


def _launches(latest: Progress) -> str:
    """``12 of about 34 launches``, ``0 of 1 launch`` where no time is planned, ``36 launches, about 34 planned``."""
    about = "about " if latest.seconds_planned else ""
    planned = latest.launches_planned
    if latest.launches <= planned:
        return f"{latest.launches} of {about}{text.count(planned, 'launch', 'launches')}"
    return f"{text.count(latest.launches, 'launch', 'launches')}, {about}{planned:,} planned"


def time_words(spent_seconds: float, budget_seconds: float | None) -> str:
    """``2 min 10 s, 7 min 50 s left`` or, without a budget, the time spent."""
    spent = text.clock(spent_seconds)
    return f"{spent}, {text.clock(max(0.0, budget_seconds - spent_seconds))} left" if budget_seconds else spent


class LiveView:
    """Shows progress live; use it as a context manager and pass :meth:`update` to the search."""

    def __init__(
        self,
        console: Console,
        workload: Workload | None = None,
        *,
        interactive: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._workload = workload
        self._clock = monotonic
        self._state = State()
        self._updated_at = monotonic()
        self._last_line = ""
        self._passed_over = 0
        self._live: Live | None = None
        if interactive:
            self._live = Live(
                console=console,
                get_renderable=self._screen,
                refresh_per_second=1,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            try:
                self._live.start(refresh=True)
            except BaseException:  # propagates; the cursor is shown in any case
                self._stop(self._live)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is None:
            self._printed(self._print_passed_over)
        else:
            self._stop(self._live)
            latest = self._state.latest
            if error is None and latest is not None and latest.stage == "end":
                self._console.print(Text(f"hotlap: {latest.text}", style="dim"), soft_wrap=True)

    def _stop(self, live: Live) -> None:
        """End the drawing. A second Ctrl-C may come in the middle of it: the cursor is shown all the same."""
        try:
            live.stop()
        except BaseException:  # raised again; a terminal must not lose its cursor to a second Ctrl-C
            self._console.show_cursor(True)
            raise

    def update(self, progress: Progress) -> None:
        """Show one progress; on a terminal it is shown with the next redraw, elsewhere as a line at once."""
        self._state = fold(self._state, progress)
        self._updated_at = self._clock()
        if self._live is None:
            self._printed(self._print_line)

    def _printed(self, show: Callable[[], None]) -> None:
        try:
            show()
        except OSError as error:
            if error.errno != errno.EIO:  # the terminal was closed: the measurements continue
                raise

    def _screen(self) -> RenderableType:
        return draw(self._workload, self._state, self._clock() - self._updated_at)

    def _print_line(self) -> None:
        """Print the last progress; levers that were not worth a trial become one line when something else follows."""
        latest = self._state.latest
        if latest is not None and latest.outcome is not None and isinstance(latest.outcome.verdict, Skipped):
            self._passed_over += 1
            return
        self._print_passed_over()
        said = line(self._state)
        without_time = said.partition("]")[2]
        if without_time != self._last_line:
            self._console.print(Text(said), soft_wrap=True)
            self._last_line = without_time

    def _print_passed_over(self) -> None:
        count, self._passed_over = self._passed_over, 0
        if count and self._state.latest is not None:
            time_spent = text.clock(self._state.latest.spent_seconds)
            said = f"[{time_spent}] {text.count(count, 'lever')} not worth a trial here"
            self._console.print(Text(said), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _OutcomeLine:
    """A mark and the words; on one line, whatever the width."""

    outcome: Outcome

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        tone, word = verdict_word(self.outcome)
        found = row(self.outcome)
        shown = Text("  ", no_wrap=True, overflow="ellipsis")
        shown.append(MARKS[tone][options.ascii_only], style=COLOURS[tone]).append(f"  {found.lever:<20}")
        shown.append(f"{found.speedup:<21}").append(word, style=COLOURS[tone])
        yield shown.append(f"  {found.reason}", style="dim")


@dataclass(frozen=True, slots=True)
class _StageAndTime:
    """Side by side, or one below the other where that is too narrow."""

    stage: Text
    time: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.stage.cell_len + self.time.cell_len + 2 > options.max_width:
            yield from (self.stage, self.time)
            return
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_row(self.stage, self.time)
        yield grid


def _said(latest: Progress) -> str:
    """The progress text, without what is shown next to the stage already."""
    said = text.one_line(latest.text, limit=200).removeprefix(f"{latest.lever}: ")
    return said.removesuffix(_replicates(latest)).removesuffix(": ")


def _after_stage(latest: Progress) -> str:
    lever = f" {text.one_line(latest.lever)}" if latest.lever else ""
    replicates = _replicates(latest)
    return f"{lever}, {replicates}" if replicates else lever


def _replicates(latest: Progress) -> str:
    if not latest.replicates_planned:
        return ""
    return replicates_words(latest.replicates_done, latest.replicates_at_once, latest.replicates_planned)


def _numbers(latest: Progress, best: Estimate | None) -> list[str]:
    """One line each on speed and memory so far."""
    speeds: list[str] = []
    if latest.running is not None:
        speeds.append(f"so far {text.ratio(latest.running.value)}, {text.interval(latest.running)}")
    if best is not None:
        speeds.append(f"best plan {text.ratio(best.value)}, {text.interval(best)}")
    found = ["; ".join(speeds)] if speeds else []
    if latest.peak_bytes:
        change = text.change_of_size(latest.baseline_peak_bytes, latest.peak_bytes)
        found.append(f"memory {text.size(latest.peak_bytes)}{f' ({change})' if change else ''}")
    return found
