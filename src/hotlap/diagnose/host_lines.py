"""Which lines of the script the host's time goes to: what reports, what writes, what runs in Python. Not a rule itself.

Wrapped calls are counted and timed one by one; sampled lines show all else. Both are about the same observed steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from hotlap.diagnose.operators import is_traced_file
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import between, exactly, observed_share, phase_share, sampled_share
from hotlap.diagnose.wording import count, name, percent, place
from hotlap.evidence import LoopCall, LoopCallKind, SampledLine
from hotlap.records import STEP_PHASES, CallSite, Estimate

REPORTING: dict[LoopCallKind, str] = {
    "print": "print",
    "logging": "logging",
    "tensorboard": "TensorBoard",
    "tracker": "an experiment tracker",
    "progress-bar": "a progress bar",
    "file-write": "writing a file",
}
"""Calls that report on training and are no part of it, in words."""

FEWEST_SAMPLES = 10
"""A line with fewer is left out: it may be there by chance."""

_WRITES = frozenset({".write", ".writelines", ".flush", ".writerow", ".writerows"})
_PHASES: Final = tuple(it for it in STEP_PHASES if it not in ("data_wait", "backward"))
"""Those in which the training thread itself runs Python: it waits for data, and for the backward pass."""

_TORCH = ("torch.", "operator")
_CONVERSIONS = frozenset({"torch.Tensor.tolist", "torch.tensor", "torch.as_tensor"})
"""Of torch, but no operators: they make Python's numbers, one by one."""

_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "neg", "remainder", "floor_divide", "index"})
"""Operators that a line may call without naming them."""

_NEARLY_ALL = 0.75


@dataclass(frozen=True, slots=True)
class HostLine:
    """One line of the script and its samples. ``model_seconds`` of its ``seconds`` were spent in the forward pass."""

    site: CallSite
    what: str
    samples: int
    seconds: float
    model_seconds: float

    def share(self, profile: Profile) -> Estimate:
        """Of the observed steps, with an interval for the chance of sampling."""
        return sampled_share(profile, self.seconds, self.samples)

    def in_words(self, profile: Profile) -> str:
        """``train.py:14: json.dumps, 31 % of the observed steps, by 186 samples``."""
        what = f"{name(self.what)}, " if self.what else ""
        met = count(self.samples, "sample")
        return f"{place(self.site)}: {what}{percent(self.share(profile).value)} of the observed steps, by {met}"


Place: TypeAlias = tuple[str, int]
"""A line of a file."""


def reporting_calls(profile: Profile) -> list[LoopCall]:
    """Calls in training steps that print, log, track, draw a bar or write a file; what took longest first."""
    calls = [it for it in profile.evidence.calls if it.kind in REPORTING and it.phase != "outside"]
    return sorted(calls, key=lambda it: -it.seconds)


def writing_lines(profile: Profile) -> list[HostLine]:
    """Lines that were met in a write of the interpreter's own, as of a file, and that are not counted otherwise."""
    counted = _counted_places(profile)
    found = _lines(it for it in _in_steps(profile) if not it.called and it.native in _WRITES)
    return [it for it in found if place_of(it.site) not in counted]


def reporting_places(profile: Profile) -> set[Place]:
    """Where all of :func:`reporting_calls` and :func:`writing_lines` are."""
    return _counted_places(profile) | {place_of(it.site) for it in writing_lines(profile)}


def place_of(site: CallSite) -> Place:
    """What tells one line from another."""
    return site.file, site.line


def python_lines(profile: Profile) -> list[HostLine]:
    """Lines that were met in Python, or in a library that is not torch; what reports or writes is left out."""
    return _lines(_in_python(profile))


def python_share(profile: Profile) -> Estimate:
    """Which part of the step is spent in Python and not asleep there, by its part of the samples of each phase.

    Watching slows down lines that make many calls, so that their part may be too large: the low end takes the other
    lines of a phase for as long as they were seen, and the high end is the whole phase.
    """
    steps, wall = profile.evidence.observed_steps, profile.account.wall
    rows = {id(it) for it in _in_python(profile) if 2 * it.asleep_seconds <= it.seconds}
    value = low = high = 0.0
    for phase in _PHASES:
        seen = [it for it in profile.evidence.sampled.lines if it.phase == phase]
        whole, own = (sum(it.seconds for it in lines) for lines in (seen, [it for it in seen if id(it) in rows]))
        if own <= 0 or steps <= 0 or wall <= 0:
            continue
        share = phase_share(profile, phase).value
        value += share * own / whole
        low += max(0.0, share - (whole - own) / steps / wall)
        high += share
    return between(value, min(low, value), high)


def line_of_operator(profile: Profile, operator: str, around: CallSite | None) -> CallSite | None:
    """The line that was met in this operator of torch most often: the one in the function ``around`` where that is
    known. None where no line was met in it often enough."""
    plain = operator.removeprefix("aten::").strip("_")
    lines = [it for it in _in_steps(profile) if around is None or _is_within(it.site, around)]
    named = _lines(it for it in lines if plain in {_last_name(name) for name in (it.native, it.called, it.innermost)})
    if named or plain not in _ARITHMETIC:
        return named[0].site if named else None
    unnamed = _lines(it for it in lines if it.native == "operator")
    seconds = sum(it.seconds for it in unnamed)
    return unnamed[0].site if unnamed and unnamed[0].seconds >= _NEARLY_ALL * seconds else None


def _is_within(site: CallSite | None, around: CallSite) -> bool:
    return site is not None and is_traced_file(site.file, around.file) and site.function == around.function


def _last_name(dotted: str) -> str:
    return dotted.rpartition(".")[2].strip("_")


def reporting_share(profile: Profile) -> Estimate:
    """What all of :func:`reporting_calls` and :func:`writing_lines` take of the observed steps."""
    counted = exactly(observed_share(profile, sum(it.seconds for it in reporting_calls(profile))))
    sampled = [it.share(profile) for it in writing_lines(profile)]
    return between(
        counted.value + sum(it.value for it in sampled),
        counted.low + sum(it.low for it in sampled),
        counted.high + sum(it.high for it in sampled),
    )


def reporting_lines_share(profile: Profile, *, with_operators: bool = False) -> float:
    """Which part of the observed steps was spent at the lines that report or write: the calls themselves, and what a
    line prepares for them (numbers it picks, texts it formats) in Python and, if asked for, in torch."""
    places = reporting_places(profile)
    met = (it for it in _in_steps(profile) if it.site is not None and place_of(it.site) in places)
    return observed_share(profile, sum(it.seconds for it in met if with_operators or not is_in_torch(it)))


def _in_steps(profile: Profile) -> Iterator[SampledLine]:
    return (it for it in profile.evidence.sampled.lines if it.phase in _PHASES and it.site and not it.collective)


def _counted_places(profile: Profile) -> set[Place]:
    return {place_of(it.site) for it in reporting_calls(profile) if it.site}


def _in_python(profile: Profile) -> list[SampledLine]:
    reporting = reporting_places(profile)
    found = [it for it in _in_steps(profile) if it.native in _CONVERSIONS or not is_in_torch(it)]
    return [it for it in found if it.site is not None and place_of(it.site) not in reporting]


def is_in_torch(line: SampledLine) -> bool:
    """Whether the line was met in a function or an operator of torch."""
    return any(it.startswith(_TORCH) for it in (line.called, line.innermost, line.native))


def _lines(sampled: Iterable[SampledLine]) -> list[HostLine]:
    """Samples by line, the longest first, without those that are too few to mean anything."""
    by_line: defaultdict[Place, list[SampledLine]] = defaultdict(list)
    for it in sampled:
        if it.site is not None:
            by_line[place_of(it.site)].append(it)
    lines = [_line(rows) for rows in by_line.values()]
    return sorted((it for it in lines if it.samples >= FEWEST_SAMPLES), key=lambda it: (-it.seconds, it.site.line))


def _line(rows: list[SampledLine]) -> HostLine:
    longest = max(rows, key=lambda it: it.seconds)
    assert longest.site is not None
    return HostLine(
        site=longest.site,
        what=longest.called or longest.native.removeprefix("."),
        samples=sum(it.samples for it in rows),
        seconds=sum(it.seconds for it in rows),
        model_seconds=sum(it.seconds for it in rows if it.phase == "forward"),
    )
