"""How a child ended, judged by one frozen record of it. Pure functions."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from hotlap.errors import NOT_BOOTED
from hotlap.records import CONNECTION_LOST, Completed, Crashed, Ending, OutOfMemory, Report, Stopped, TimedOut
from hotlap.trial.output import error_text, raised_error, shown
from hotlap.trial.rank_endings import cause_on_ranks

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|MemoryError\b|out of memory|(?i:not enough memory)|can't allocate memory|Cannot allocate memory"
    r"|out of shared memory|C(?:UDNN|UBLAS)_STATUS_ALLOC_FAILED|Unable to allocate .*iB for an array"
)
_NO_ROOM_BESIDE_OTHERS = re.compile(
    r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR|NCCL error.*unhandled cuda error"
    r"|(?i:unable to find an engine to execute)|(?i:device\(?s?\)? (?:is|are|is/are) busy or unavailable)"
    r"|EADDRINUSE|(?i:address already in use)"
)
"""Messages of libraries whose handle or workspace did not fit on the device, and of a port that is taken, as by another
arm of a script with a fixed one; they can have other causes too."""

_KILLED_BY_SIGKILL = re.compile(r"signal: Killed|SIGKILL|exitcode: -9")


@dataclass(frozen=True, slots=True)
class Departure:
    """What is known when a child is gone.

    ``exit_status`` is the root process's (negative for a signal), None where we killed it. ``reports`` are those of
    the trainers that sent one. ``told_to_end`` says that we requested the end. ``kernel_kills`` counts the kernel's
    out-of-memory kills meanwhile. ``trouble`` is a problem that the controller saw. ``left_running`` says that the root
    process had ended by itself while others of the child continued. ``denied_path`` is what isolation kept it from
    writing. ``memory_guarded`` says why it was ended before this machine's memory ran out.
    """

    exit_status: int | None
    reports: tuple[Report, ...] = ()
    trainers: int = 0
    end_requested: bool = False
    timed_out: TimedOut | None = None
    kernel_kills: int = 0
    steps_done: int = 0
    output: str = ""
    trouble: str = ""
    left_running: bool = False
    denied_path: str = ""
    memory_guarded: str = ""


def ending_of(departure: Departure) -> Ending:
    """Decide how the child ended.

    A process that leaves with status 0 after having trained, but without a report (``os._exit``), counts as crashed:
    what it did is not known.
    """
    if departure.memory_guarded:
        return OutOfMemory(
            error=departure.memory_guarded, output_tail=shown(departure.output), steps_done=departure.steps_done
        )
    if departure.timed_out is not None:
        return TimedOut(
            limit_seconds=departure.timed_out.limit_seconds,
            during=departure.timed_out.during,
            output_tail=shown(departure.output),
            steps_done=departure.steps_done,
        )
    if _stopped_by_us(departure):
        return Stopped()
    code = _exit_code(departure)
    reported = bool(departure.reports) or departure.trainers == 0
    if _in_background(departure):
        reported = False
    if code == 0 and reported and not departure.trouble:
        return Completed()
    return _failure(departure, code)


def may_lack_room(ending: Ending) -> bool:
    """Whether a run may have failed only because others used the device or a port too, and may succeed alone."""
    if isinstance(ending, Crashed):
        return _NO_ROOM_BESIDE_OTHERS.search(ending.error) is not None
    return isinstance(ending, OutOfMemory)


def _stopped_by_us(departure: Departure) -> bool:
    """Whether all trainers ended when told to (a report without an exit code), or none had begun to train."""
    if departure.trainers == 0 and not departure.reports:
        return departure.end_requested and departure.exit_status is None
    at_our_word = all(report.exit_code is None for report in departure.reports)
    return at_our_word and len(departure.reports) >= max(1, departure.trainers)


def _in_background(departure: Departure) -> bool:
    """Whether the script's own process succeeded while another of its processes continued to train, or may have."""
    missing = len(departure.reports) < max(1, departure.trainers)
    return departure.left_running and departure.exit_status == 0 and missing


def _exit_code(departure: Departure) -> int:
    """The root's own exit status where it is a failure, else what the trainers reported: they cannot know a
    failure that comes after their report, and the root may have had to be killed after theirs."""
    if departure.exit_status:
        return departure.exit_status
    reported = [report.exit_code for report in departure.reports if report.exit_code is not None]
    if any(reported):
        return next(code for code in reported if code)
    complete = len(reported) >= max(1, departure.trainers)
    return 0 if departure.exit_status == 0 or complete else -signal.SIGKILL


def _failure(departure: Departure, code: int) -> Ending:
    tail = shown(departure.output)
    error = departure.trouble or cause_on_ranks(departure.output) or _error(departure, code)
    written = error_text(departure.output)
    if code != 0 and _OUT_OF_MEMORY.search(_from_error_on(departure.output, written)):
        return OutOfMemory(error=written, output_tail=tail, steps_done=departure.steps_done)
    if departure.kernel_kills > 0 and (code == -signal.SIGKILL or _KILLED_BY_SIGKILL.search(departure.output)):
        error = "The kernel ended the process because memory ran out."
        return OutOfMemory(error=error, output_tail=tail, steps_done=departure.steps_done)
    return Crashed(
        exit_code=code,
        error=error,
        output_tail=tail,
        steps_done=departure.steps_done,
        denied_path="" if departure.trouble else departure.denied_path,
        killed_from_outside=not departure.trouble and _killed_from_outside(departure, written),
    )


def _killed_from_outside(departure: Departure, written: str) -> bool:
    """Whether the root, or one of its processes by which it failed, was ended by a SIGKILL. Where we sent it ourselves
    there is no exit status."""
    if departure.exit_status == -signal.SIGKILL:
        return True
    return (
        bool(departure.exit_status) and _KILLED_BY_SIGKILL.search(_from_error_on(departure.output, written)) is not None
    )


def _error(departure: Departure, code: int) -> str:
    if departure.exit_status is None:
        if departure.trainers > 1:
            return raised_error(departure.output) or "One of the script's processes left while others waited for it."
        return raised_error(departure.output) or (
            "The process closed its connection to hotlap and went on: it was replaced by another program, or closed "
            "descriptors that are not its own."
        )
    if departure.exit_status == CONNECTION_LOST and len(departure.reports) < departure.trainers:
        return "The script closed hotlap's connection, with all descriptors (os.closerange), so the trial was ended."
    if _in_background(departure):
        return "Its process ended while another that it had started went on in the background, where hotlap ended it."
    if departure.exit_status == NOT_BOOTED and not error_text(departure.output):
        return (
            "hotlap could not start in the process, and why could not be written down: the disk that holds the study "
            "may be full."
        )
    if code == 0:
        return "The process called os._exit, or was replaced by another program, without a report."
    if code == -signal.SIGKILL:
        return (
            "The process was killed from outside (SIGKILL): not by hotlap, and the kernel reported no lack of memory."
        )
    if code < 0:
        return f"The process was ended by signal {signal_name(-code)}."
    plain = f"The process ended with exit code {code}"
    written = error_text(departure.output)
    if departure.steps_done and written and not raised_error(departure.output):
        return f"{plain}. Its last line was: {written}"  # which may name a step
    return written or f"{plain} and wrote nothing."


def _from_error_on(output: str, error: str) -> str:
    """The error's line and what follows: a message may continue, and earlier errors may have been handled."""
    return output[output.rfind(error) :] if error else ""


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; the number itself where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def kernel_memory_kills() -> int:
    """How many processes the kernel has killed so far because memory ran out: in our control group where it counts
    them, else on the machine. 0 where the system does not report it."""
    for path, key in _kill_counters():
        try:
            rows = path.read_text(encoding="ascii").split("\n")
        except (OSError, UnicodeDecodeError):
            continue
        for name, _, count in (row.partition(" ") for row in rows):
            if name == key and count.strip().isdigit():
                return int(count)
    return 0


def _kill_counters() -> list[tuple[Path, str]]:
    counters = []
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        groups = []
    for group in groups:
        hierarchy, _, rest = group.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":
            counters.append((Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events", "oom_kill"))
        elif "memory" in controllers.split(","):
            counters.append((Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.oom_control", "oom_kill"))
    return [*counters, (Path("/proc/vmstat"), "oom_kill")]
