"""One line at the bottom of the terminal, below what the script writes.

The lines above it become the terminal's scrolling region (DECSTBM, ECMA-48 and VT510), so that the script's output
scrolls there as before and is never written over. Nothing is written where standard error is no terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Self

from hotlap.measure.watch.series import RankSeries, middle
from hotlap.records import PHASES, STEP_PHASES, Alarm
from hotlap.render import text
from hotlap.wording import share

_ROWS = 10
_SHOWN_PHASES = 3
_FEWEST_LINES = 4
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[2K"


def status_of(ranks: Mapping[int, RankSeries], alarms: Sequence[Alarm]) -> str:
    """The last rows of the first rank: steps, their time, the largest phases, memory; alarms first."""
    if not ranks:
        return "hotlap: no training step yet"
    series = ranks[min(ranks)]
    last = list(series.recent)[-_ROWS:]
    parts = [f"hotlap: step {series.all_steps:,}", *(f"ALARM: {it.text}" for it in alarms)]
    step = middle(it.step_seconds for it in last)
    if step:
        parts.append(f"{text.duration(step)} per step")
        means = [(name, middle(it.phase_seconds(index) for it in last)) for index, name in enumerate(STEP_PHASES)]
        known = [(name, seconds) for name, seconds in means if seconds]
        largest = sorted(known, key=lambda it: -it[1])[:_SHOWN_PHASES]
        parts.append(", ".join(f"{PHASES[name].title} {share(seconds / step)}" for name, seconds in largest))
    memory = last[-1].device_bytes or last[-1].host_bytes if last else None
    if memory:
        parts.append(text.size(memory))
    return " | ".join(parts)


class StatusLine:
    """The line while it is entered; :meth:`show` sets its text."""

    def __init__(self) -> None:
        self._descriptor = _terminal()
        self._size = os.terminal_size((0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        if self._size.lines:
            self._write(f"{_SAVE}\x1b[r\x1b[{self._size.lines};1H{_CLEAR}{_RESTORE}")

    def show(self, words: str) -> None:
        """Write the text over the last line, in one call, so that nothing comes between its parts."""
        if self._descriptor is None:
            return
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:  # the terminal is gone
            self._descriptor = None
            return
        if size.lines < _FEWEST_LINES:
            return
        begin = ""
        if size != self._size:
            begin = f"\n{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}\x1b[1A"
            self._size = size
        line = text.one_line(words, limit=max(1, size.columns - 1))
        self._write(f"{begin}{_SAVE}\x1b[{size.lines};1H{_CLEAR}\x1b[7m{line}\x1b[0m{_RESTORE}")

    def _write(self, sequence: str) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, sequence.encode("utf-8", "replace"))
        except OSError:
            self._descriptor = None


def _terminal() -> int | None:
    """Standard error's descriptor, where it is a terminal that can be told to do so."""
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return None
    try:
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError):
        return None
    return descriptor if os.isatty(descriptor) else None
