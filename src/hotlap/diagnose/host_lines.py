"""Which lines of the script take the host's time: reporting, writing, or running Python. Not a rule itself.

Wrapped calls are counted and timed individually; sampled lines cover the rest. Both refer to the same observed steps.
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
"""Descriptions of the calls that report on training and are not part of it."""

FEWEST_SAMPLES = 10
"""A line with fewer samples is ignored: it may be noise."""

_WRITES = frozenset({".write", ".writelines", ".flush", ".writerow", ".writerows"})
_PHASES: Final = tuple(it for it in STEP_PHASES if it not in ("data_wait", "backward"))
"""The phases in which the training thread runs Python itself; it waits for data and for the backward pass."""

_TORCH = ("torch.", "operator")
_CONVERSIONS = frozenset({"torch.Tensor.tolist", "torch.tensor", "torch.as_tensor"})
"""Functions of torch that are not operators: they create Python numbers one at a time."""

_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "neg", "remainder", "floor_divide", "index"})
"""Operators that a line may call implicitly."""

_NEARLY_ALL = 0.75


@dataclass(frozen=True, slots=True)
class HostLine:
    """One line of the script and its samples.

    ``model_seconds`` of its ``seconds`` were spent in the forward pass.
    """

    site: CallSite
    what: str
    samples: int
    seconds: float
    model_seconds: float

    def share(self, profile: Profile) -> Estimate:
        """Return its share of the observed steps, with an interval for the error of sampling."""
        return sampled_share(profile, self.seconds, self.samples)

    def in_words(self, profile: Profile) -> str:
        """Return ``train.py:14: json.dumps, 31 % of the observed steps, by 186 samples``."""
        what = f"{name(self.what)}, " if self.what else ""
        met = count(self.samples, "sample")
        return f"{place(self.site)}: {what}{percent(self.share(profile).value)} of the observed steps, by {met}"


Place: TypeAlias = tuple[str, int]
"""A line of a file."""


def reporting_calls(profile: Profile) -> list[LoopCall]:
    """Return the calls in training steps that report or write a file; the longest first.

    They print, log, track, or draw a progress bar.
    """
    calls = [it for it in profile.evidence.calls if it.kind in REPORTING and it.phase != "outside"]
    return sorted(calls, key=lambda it: -it.seconds)


def writing_lines(profile: Profile) -> list[HostLine]:
    """Return lines that were sampled in the interpreter's own writes and are not counted otherwise."""
    counted = _counted_places(profile)
    found = _lines(it for it in _in_steps(profile) if not it.called and it.native in _WRITES)
    return [it for it in found if place_of(it.site) not in counted]


def reporting_places(profile: Profile) -> set[Place]:
    """Return the sites of all :func:`reporting_calls` and :func:`writing_lines`."""
    return _counted_places(profile) | {place_of(it.site) for it in writing_lines(profile)}


def place_of(site: CallSite) -> Place:
    """Return what identifies a line."""
    return site.file, site.line


def python_lines(profile: Profile) -> list[HostLine]:
    """Return lines sampled in Python or in a library other than torch, except reporting and writing."""
    return _lines(_in_python(profile))


def python_share(profile: Profile) -> Estimate:
    """Return the share of the step spent awake in Python, by its share of each phase's samples.

    Observation slows down lines that make many calls, so their share may be too large: the low end counts the other
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
    """Return the line that was sampled in this operator of torch most often.

    It is the one in the function ``around``, if that is known. None if no line was sampled often enough.
    """
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
    """Return the share of the observed steps in :func:`reporting_calls` and :func:`writing_lines`."""
    counted = exactly(observed_share(profile, sum(it.seconds for it in reporting_calls(profile))))
    sampled = [it.share(profile) for it in writing_lines(profile)]
    return between(
        counted.value + sum(it.value for it in sampled),
        counted.low + sum(it.low for it in sampled),
        counted.high + sum(it.high for it in sampled),
    )


def reporting_lines_share(profile: Profile, *, with_operators: bool = False) -> float:
    """Return the share of the observed steps spent at the lines that report or write.

    It includes what a line prepares for the calls (values it selects, text it formats) in Python and, optionally, in
    torch.
    """
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
    """Whether the line was sampled in a function or an operator of torch."""
    return any(it.startswith(_TORCH) for it in (line.called, line.innermost, line.native))


def _lines(sampled: Iterable[SampledLine]) -> list[HostLine]:
    """Return samples by line, the longest first, without lines that have too few of them."""
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
