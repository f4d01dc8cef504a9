"""Time by module and source line: frozen records, times in integer nanoseconds. Names are untrusted text."""

from __future__ import annotations

from hotlap.records import Record


class DirectedTime(Record, frozen=True, kw_only=True):
    """Time by direction. ``self`` leaves out what ran in inner modules or called functions; backward is that of the
    operators whose forward ran here."""

    forward_self_nanoseconds: int = 0
    forward_nanoseconds: int = 0
    backward_self_nanoseconds: int = 0
    backward_nanoseconds: int = 0

    @property
    def self_nanoseconds(self) -> int:
        return self.forward_self_nanoseconds + self.backward_self_nanoseconds

    @property
    def nanoseconds(self) -> int:
        return self.forward_nanoseconds + self.backward_nanoseconds


class CodeWork(Record, frozen=True, kw_only=True):
    """The time attributed to some code: ``device`` sums the time of the kernels, copies and memsets that it launched,
    ``host`` the own time of its operators (Python is not in it)."""

    device: DirectedTime = DirectedTime()
    host: DirectedTime = DirectedTime()


class ModuleRow(CodeWork, frozen=True, kw_only=True):
    """All instances of a module's class at one place of the model, or one of them. ``path`` are the classes from the
    outermost module on, or the instances, as ``Linear_3``: the profiler numbers those of each class in the order in
    which it sees them. ``instances`` is their number, ``calls`` how often their forward ran."""

    path: tuple[str, ...]
    instances: int
    calls: int


class LineRow(CodeWork, frozen=True, kw_only=True):
    """One function or line of the user's code, as ``file(line): function``."""

    place: str


class CodeTime(Record, frozen=True, kw_only=True):
    """Device and host time by module and by source line, within the steps where the trace marks any.

    ``modules`` are in the order of a tree, the costliest of siblings first; ``lines`` by their own time.
    ``outside_modules`` and ``outside_lines`` are the time outside of any module or any line of the user's code.
    ``unmapped_backward`` is backward whose forward operator the trace does not name, for instance the accumulation of
    gradients; it counts where it ran, which on a thread of the backward pass is outside. ``exact_lines``: the lines are
    those that were executed, not the first ones of functions. The rows are the costliest of ``distinct_modules`` and
    ``distinct_lines``. ``window_nanoseconds`` is how long the steps took, or the whole trace;
    ``device_window_nanoseconds`` the same for all devices together.
    """

    window_nanoseconds: int
    device_window_nanoseconds: int = 0
    modules: tuple[ModuleRow, ...] = ()
    lines: tuple[LineRow, ...] = ()
    outside_modules: CodeWork = CodeWork()
    outside_lines: CodeWork = CodeWork()
    unmapped_backward: CodeWork = CodeWork()
    exact_lines: bool = False
    distinct_modules: int = 0
    distinct_lines: int = 0
