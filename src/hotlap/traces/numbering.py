"""Number the recurring values of a trace: names, threads, call stacks, operators' inputs.

A trace names some thousand things. A malicious file may name millions, so the kept text is bounded.
"""

from __future__ import annotations

from hotlap.traces.dialects import is_useful_frame
from hotlap.traces.timeline import NONE, KernelConfiguration

LONGEST_NAME = 4096
LONGEST_TEXT = 16_384
MOST_TEXT = 2**28
"""How many characters of names or texts are kept of one kind."""

TOO_MANY_NAMES = "(more names than can be kept)"

_MOST_DEVICES = 2**10
_LONGEST_THREAD = 100
_FRAMES_REMEMBERED = 2**16
_MOST_CONFIGURATIONS = 2**18
_NOT_WRITTEN = KernelConfiguration(None, None, None, None, None)


class Names(dict[str, int]):
    """Gives every distinct name a number, in the order in which they come. Longer ones than sensible are cut."""

    def __init__(self) -> None:
        self._held = 0

    def __missing__(self, name: str) -> int:
        if len(name) > LONGEST_NAME:
            return self[name[:LONGEST_NAME]]
        if self._held > MOST_TEXT and name != TOO_MANY_NAMES:
            return self[TOO_MANY_NAMES]
        self._held += len(name)
        number = self[name] = len(self)
        return number


class Texts(dict[bytes, int]):
    """The same for texts as they are written in the file; :data:`NONE` for none, and for those that are too much."""

    def __init__(self) -> None:
        self._held = 0

    def __missing__(self, text: bytes) -> int:
        if not text or len(text) > LONGEST_TEXT or self._held > MOST_TEXT:
            return NONE
        self._held += len(text)
        number = self[text] = len(self)
        return number


class Configurations(dict[KernelConfiguration, int]):
    """The same for how kernels were launched; :data:`NONE` for what no profiler wrote, and for what is too much."""

    def __missing__(self, it: KernelConfiguration) -> int:
        if it == _NOT_WRITTEN or len(self) >= _MOST_CONFIGURATIONS:
            return NONE
        number = self[it] = len(self)
        return number


class UsefulFrames(dict[str, bool]):
    """The names of Python functions that are kept. Names that contain addresses are too many to cache."""

    def __missing__(self, name: str) -> bool:
        useful = is_useful_frame(name)
        if len(self) < _FRAMES_REMEMBERED:
            self[name] = useful
        return useful


class Devices:
    """The numbers of devices. Ranks that were merged into one file may each call theirs 0: then only the track
    distinguishes them, and each further one gets the next free number; ``split`` has its original one."""

    def __init__(self) -> None:
        self.split: dict[int, int] = {}
        self._numbers: dict[tuple[int, int | str], int] = {}
        self._taken: set[int] = set()

    def number(self, device: int, track: int | str) -> int:
        """The number of a device on a track."""
        known = self._numbers.get((device, track))
        if known is not None:
            return known
        number = device
        if len(self._numbers) < _MOST_DEVICES:
            if device in self._taken:
                number = next(it for it in range(len(self._taken) + 1) if it not in self._taken)
                self.split[number] = device
            self._numbers[device, track] = number
            self._taken.add(number)
        return number


class Threads(dict[tuple[str, str], int]):
    """The numbers of all processes' threads. Some versions write a thread's number as text."""

    def __init__(self) -> None:
        self._processes: dict[str, _ThreadsOfProcess] = {}

    def of_process(self, process: int | str) -> _ThreadsOfProcess:
        """The numbers of one process's threads."""
        name = str(process)[:_LONGEST_THREAD]
        known = self._processes.get(name)
        if known is None:
            known = self._processes[name] = _ThreadsOfProcess(name, self)
        return known


class _ThreadsOfProcess(dict[int | str, int]):
    def __init__(self, process: str, all_threads: Threads) -> None:
        self._process = process
        self._all = all_threads

    def __missing__(self, thread: int | str) -> int:
        name = str(thread)
        number = self._all.setdefault((self._process, name[:_LONGEST_THREAD]), len(self._all))
        if len(name) <= _LONGEST_THREAD:
            self[thread] = number
        return number
