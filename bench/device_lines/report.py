"""The table as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bench.device_lines.pieces import ranges

_HEADINGS = {
    "lever": "Levers, where one was installed",
    "rule": "Rules, where one made a finding",
    "evidence": "Collectors of evidence, where one gave a result",
    "phase": "Phases of the step clock, where time was attributed to it",
    "ceiling": "Ceilings, where a rate was measured",
}


class Row(msgspec.Struct, frozen=True):
    """One part of hotlap, and where it ran."""

    kind: str
    name: str
    cpu: bool
    simulated: bool
    hardware: bool = False

    @property
    def ran(self) -> bool:
        """Whether it ran anywhere."""
        return self.cpu or self.simulated or self.hardware


class File(msgspec.Struct, frozen=True):
    """The lines of one file that run only with an accelerator, and those that ran."""

    name: str
    lines: list[int]
    simulated: list[int]
    cpu: list[int]

    @property
    def missed(self) -> list[int]:
        """Those that no test ran."""
        return sorted(set(self.lines) - set(self.simulated) - set(self.cpu))


class Elsewhere(msgspec.Struct, frozen=True):
    """A function for devices that cannot be simulated here, why, and how many of its lines ran with stand-ins."""

    file: str
    name: str
    reason: str
    lines: int
    ran: int


def share(files: Sequence[File], *, simulated_alone: bool = False) -> float:
    """The part of all lines that ran: on the simulated device, or with stand-ins on the CPU as well."""
    ran = sum(len(it.simulated) if simulated_alone else len(it.lines) - len(it.missed) for it in files)
    return ran / max(1, sum(len(it.lines) for it in files))


def missing(files: Sequence[File]) -> str:
    """What no test ran, by file, most lines first."""
    found = sorted((it for it in files if it.missed), key=lambda it: -len(it.missed))
    return "".join(f"{len(it.missed):5} {it.name}: {ranges(it.missed)}\n" for it in found)


def markdown(
    rows: Sequence[Row], files: Sequence[File], elsewhere: Sequence[Elsewhere] = (), untold: Sequence[str] = ()
) -> str:
    """All of it; ``untold`` are the files of tests whose lines do not count, which makes the table incomplete."""
    return "\n".join([*_untold(untold), *_parts(rows), "", *_lines(files), "", *_elsewhere(elsewhere)])


def _untold(files: Sequence[str]) -> Iterator[str]:
    if files:
        yield f"**Incomplete**: {len(files)} files of tests failed or were not traced, and their lines do not count:"
        yield f"{', '.join(f'`{it}`' for it in files)}."
        yield ""


def _elsewhere(functions: Sequence[Elsewhere]) -> Iterator[str]:
    if functions:
        yield "## Lines for devices that cannot be simulated here"
        yield ""
        yield "They do not count above. Intel's have no lines of their own. With stand-ins ran:"
        yield from ("", "| function | lines | ran | stand-in |", "|---|---|---|---|")
        for it in functions:
            yield f"| `{it.file}`, `{it.name}` | {it.lines} | {it.ran} | {it.reason} |"


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    yield "From what tests ran, process by process and line by line. The tests of the rooms run on the CPU, many with"
    yield "profiles and stand-ins of devices. The simulated device, that of `tests/simulated`, proves logic and no"
    yield "speed; a rule also counts there if `make device-findings` has found with it. What ran on real hardware is"
    yield "taken from the results of `make bench-gpu` and `make bench-gpu-findings`."
    if not any(it.hardware for it in rows):
        yield "**There is no such result yet: nothing ever ran on real hardware**, and no figure is from one."
    for kind, heading in _HEADINGS.items():
        yield from ("", f"## {heading}", "", "| name | CPU | simulated device | real hardware |", "|---|---|---|---|")
        for it in rows:
            if it.kind == kind:
                marks = ("yes" if ran else "-" for ran in (it.cpu, it.simulated))
                yield f"| `{it.name}` | {' | '.join(marks)} | {'yes' if it.hardware else 'never'} |"


def _lines(files: Sequence[File]) -> Iterator[str]:
    count = sum(len(it.lines) for it in files)
    yield "## Lines that run only with an accelerator"
    yield ""
    alone, both = share(files, simulated_alone=True), share(files)
    yield f"There are {count}, by the definition in `bench/device_lines/branches.py`. Of these, tests on the simulated"
    yield f"device ran {alone:.1%}; with those that ran on the CPU, on stand-ins: {both:.1%}."
    yield from ("", "| file | lines | ran on the simulated device | ran nowhere |", "|---|---|---|---|")
    for it in files:
        missed = ranges(it.missed) or "-"
        yield f"| `{it.name}` | {len(it.lines)} | {len(it.simulated)} | {missed} |"
