"""The profiler's window: the last steps of a launch, run under ``torch.profiler`` and written as a trace.

The last ones, because they are warm, and because what profiling leaves behind (slower calls, a larger process) then
comes after everything else that is observed. A launch whose time is over before its steps goes on until the window is
complete. One that ends before its time has no window; a script that profiles itself keeps its profiler, and has none
either.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hotlap.evidence import Window
from hotlap.records import Steps
from hotlap.runtime.call_sites import is_installed
from hotlap.runtime.interception import Interception
from hotlap.runtime.unit_clock import UnitClock

LEAST_WARM_UP_STEPS = 3
_LOG_LEVEL, _SILENT = "KINETO_LOG_LEVEL", "6"
_COMPRESSION = 1  # a trace shrinks tenfold even so, and the process waits for it

_State: TypeAlias = Literal["waiting", "prepared", "running", "over"]


class ProfilerWindow:
    """Starts and stops the profiler at the borders of steps, each of which it marks ``ProfilerStep#row``."""

    def __init__(
        self, interception: Interception, clock: UnitClock, steps: int, path_of_trace: Callable[[], Path]
    ) -> None:
        self._hooks = interception.hooks
        self._torch = interception.hooks.torch
        self._clock = clock
        self._steps = steps
        self._path_of_trace = path_of_trace
        self._state: _State = "waiting" if steps > 0 else "over"
        self._last_step = 0
        self._first = 0
        self._profiler: Any = None
        self._step: Any = None
        self._with_stack = False
        self._trace_path = ""
        self._constructing = False
        if steps > 0:
            self._watch_for_other_profilers(interception)
            os.register_at_fork(after_in_child=self._forked)

    @property
    def running(self) -> bool:
        """Whether the profiler is recording."""
        return self._state == "running"

    @property
    def is_to_come(self) -> bool:
        """Whether the window is not complete yet, and can become so within the launch."""
        if self._state == "waiting":
            return self._fits()
        return self._state != "over"

    def _fits(self) -> bool:
        return max(self._clock.steps_done, LEAST_WARM_UP_STEPS) + self._steps <= self._last_step

    # -- the borders of steps --------------------------------------------------------------------

    def is_due(self, last_step: int, time_is_over: bool) -> bool:
        """Whether the step that is about to begin is the window's first. One step ahead of it the profiler is
        prepared, since its first moments are slow."""
        self._last_step = last_step
        if self._state == "prepared":
            return True
        done = self._clock.steps_done
        if self._state != "waiting" or done < LEAST_WARM_UP_STEPS or not self._fits():
            return False
        ahead = last_step - self._steps - done
        if ahead > 1 and not time_is_over:
            return False
        return self._prepare() and (ahead <= 0 or time_is_over)

    def start(self) -> None:
        """Record from now on. The device has nothing left to do of earlier steps, which the host may be far ahead of:
        what it does between the first mark and the last is then what these steps launched."""
        self._clock.synchronise()
        try:
            self._profiler.start_trace()
        except RuntimeError as error:
            self._fail(error)
            return
        self._state = "running"
        self._first = self._clock.steps_done

    def step_begins(self) -> None:
        """Mark the beginning of a step, if the profiler is running."""
        if self._state == "running":
            self._step = self._torch.profiler.record_function(f"ProfilerStep#{self._clock.steps_done}")
            self._step.__enter__()

    def step_ended(self) -> None:
        """Mark the end of a step. The window's last one ends when the device is done; then the trace is written."""
        if self._state != "running":
            return
        is_last = self._clock.steps_done >= self._first + self._steps
        if is_last:
            self._clock.synchronise()
        self._close_step()
        if is_last:
            self._state = "over"
            self._export()

    def _close_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    # -- the profiler ----------------------------------------------------------------------------

    def _prepare(self) -> bool:
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self._clock.follows_device:
            kind = "XPU" if not self._torch.cuda.is_available() else "CUDA"
            activities.append(getattr(profiler.ProfilerActivity, kind))
        # Stacks are recorded through the interpreter's one profiling hook: who holds it keeps it.
        self._with_stack = sys.getprofile() is None
        self._constructing = True
        try:
            self._profiler = profiler.profile(activities=activities, record_shapes=True, with_stack=self._with_stack)
            with _silent_profiler():
                self._profiler.prepare_trace()
        except RuntimeError as error:
            self._fail(error)
            return False
        finally:
            self._constructing = False
        self._state = "prepared"
        return True

    def _export(self) -> None:
        path = self._path_of_trace()
        plain = path.with_suffix("")
        try:
            self._profiler.stop_trace()
            self._profiler.export_chrome_trace(str(plain))
            with plain.open("rb") as text, gzip.open(path, "wb", compresslevel=_COMPRESSION) as compressed:
                shutil.copyfileobj(text, compressed, 2**20)
            plain.unlink()
        except (RuntimeError, OSError) as error:
            self._fail(error)
        else:
            self._trace_path = str(path)
        finally:
            self._profiler = None

    def _fail(self, error: Exception) -> None:
        self._state = "over"
        self._profiler = None
        self._hooks.note(f"No steps could be profiled: {type(error).__name__}: {str(error)[:200]}")

    def give_up(self) -> None:
        """Stop for good; what was recorded of an incomplete window is dropped."""
        running, prepared = self._state == "running", self._state == "prepared"
        self._state = "over"
        if not running and not prepared:
            return
        self._close_step()
        with contextlib.suppress(RuntimeError):  # on another thread than the one that started it, and alone can end it
            if prepared:
                self._profiler.start_trace()
            self._profiler.stop_trace()
        self._profiler = None

    # -- other users of the profiler ---------------------------------------------------------------

    def _watch_for_other_profilers(self, interception: Interception) -> None:
        """torch has one profiler: leave it to the script, since ours would make the script's fail."""
        from torch.autograd import profiler

        for kind in (profiler.profile, profiler.emit_itt, profiler.emit_nvtx):
            interception.patches.replace(kind, "__init__", self._giving_way(kind.__init__))

    def _giving_way(self, construct: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(construct)
        def init(profiler: Any, *args: Any, **kwargs: Any) -> None:
            if not self._constructing and not self._trace_path:
                self.give_up()
                self._hooks.note("The script uses torch.profiler itself, so none of its steps were profiled.")
            construct(profiler, *args, **kwargs)

        return init

    def _forked(self) -> None:
        """A loader's worker that was forked within the window would record its calls without end."""
        if self._state == "running" and self._with_stack:
            sys.setprofile(None)

    # -- the result ------------------------------------------------------------------------------

    def result(self, steps: Steps) -> Window | None:
        """The window, if it was completed and written. ``steps`` is the whole account."""
        if not self._trace_path:
            return None
        return Window(
            first_step=self._first,
            steps=self._steps,
            wall_seconds=sum(steps.wall_seconds[self._first : self._first + self._steps]),
            trace_path=self._trace_path,
            with_stack=self._with_stack,
            libraries=_libraries(),
        )


def _libraries() -> tuple[str, ...]:
    """The packages and modules that were imported from folders of installed packages."""
    tops = ((name, getattr(module, "__dict__", {})) for name, module in list(sys.modules.items()) if "." not in name)
    files = ((name, names.get("__file__")) for name, names in tops)
    return tuple(sorted(name for name, file in files if isinstance(file, str) and is_installed(file)))


@contextlib.contextmanager
def _silent_profiler() -> Iterator[None]:
    """The profiler's library asks for its log level when it is first used; by itself it writes among the script's own
    output that it starts and stops."""
    unset = _LOG_LEVEL not in os.environ
    if unset:
        os.environ[_LOG_LEVEL] = _SILENT
    try:
        yield
    finally:
        if unset:
            del os.environ[_LOG_LEVEL]
