"""Measure how long ``hotlap trace`` takes and how much memory it needs, on generated traces and on real ones.

Every figure is of a fresh process, start-up with compiled byte code included, and is the least of several runs: other
work on the machine only ever adds. Claims: time grows in proportion to the file; a trace of 1 GB fits in 4 GB of
memory; and on real traces it takes at least ten times less processor time than HolisticTraceAnalysis.

The last one is measured with ``--hta-python`` (or ``HTA_PYTHON``), an interpreter that has HTA installed. It is given
the same files in turn with us: loading, temporal breakdown, idle time breakdown and kernel breakdown, which is a part
of what ``hotlap trace`` shows. It gets generated traces only up to a certain size, since it needs much memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import command_line, table, write
from bench.trace.generate import write_trace

MEBIBYTE = 2**20
SIZES = (10, 50, 200)
LARGE = 1024
REAL_TRACES = Path(__file__).parents[3] / "shared" / "traces"
ALLOWED_LARGE_BYTES = 4 * 2**30
LEAST_TIMES_LESS = 10.0
LARGEST_FOR_HTA = 256 * MEBIBYTE

HTA = """
import os, sys
from hta.trace_analysis import TraceAnalysis
path = sys.argv[1]
analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
failed = []
for name in ("get_temporal_breakdown", "get_idle_time_breakdown", "get_gpu_kernel_breakdown"):
    try:
        getattr(analysis, name)(visualize=False)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}")
sys.exit("; ".join(failed) if failed else 0)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """One process from start to end. ``failed`` is what it could not do; empty if nothing."""

    cpu_seconds: float
    peak_bytes: int
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One file: what reading it costs us, and what it costs HTA where that was measured."""

    file: str
    file_bytes: int
    real: bool
    hotlap: Cost
    hta: Cost | None

    @property
    def times_less(self) -> float | None:
        return self.hta.cpu_seconds / self.hotlap.cpu_seconds if self.hta is not None else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="generated traces, in MiB")
    parser.add_argument("--large", action="store_true", help=f"also one of {LARGE} MiB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--traces", type=Path, default=REAL_TRACES, help="a folder of real traces")
    parser.add_argument(
        "--hta-python", default=os.environ.get("HTA_PYTHON"), help="an interpreter with HTA, to compare with"
    )
    arguments = parser.parse_args()
    sizes = [*arguments.sizes, *([LARGE] if arguments.large else [])]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PYTHONPYCACHEPREFIX=f"{folder}/bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        generated = [write_trace(Path(folder) / f"generated-{size}MiB.json", size * MEBIBYTE) for size in sizes]
        real = sorted(arguments.traces.glob("*.json.gz"))
        rows = [measured(file, file in real, arguments.repeats, arguments.hta_python) for file in [*generated, *real]]
    text = "\n\n".join([introduction(arguments.hta_python), as_table(rows), verdict(rows)])
    data = [asdict(it) for it in rows]
    write(arguments.out, title="Reading traces", command=command_line("bench.trace"), text=text, data=data)
    print(text)
    return 0 if holds(rows) else 1


def introduction(hta_python: str | None) -> str:
    """What was measured, and next to which HTA."""
    said = "Least of several fresh processes each, start-up included."
    if hta_python is None:
        return said
    asked = "from importlib.metadata import version; print(version('HolisticTraceAnalysis'))"
    version = subprocess.run([hta_python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    return f"{said} HolisticTraceAnalysis {version} took turns with it."


def measured(file: Path, real: bool, repeats: int, hta_python: str | None) -> Row:
    """What one file costs; once only where it is large."""
    size = file.stat().st_size
    commands = [[sys.executable, "-m", "hotlap", "trace", "--full", str(file)]]
    if hta_python is not None and size <= LARGEST_FOR_HTA:
        commands.append([hta_python, "-c", HTA, str(file)])
    costs = least_of_turns(commands, 1 if size > 500 * MEBIBYTE else repeats)
    return Row(file.name, size, real, costs[0], costs[1] if len(costs) > 1 else None)


def holds(rows: list[Row]) -> bool:
    """Whether the claims hold, as far as they were measured."""
    ratios = [it.times_less for it in rows if it.real and it.times_less is not None]
    read = all(not it.hotlap.failed and it.hotlap.peak_bytes < ALLOWED_LARGE_BYTES for it in rows)
    return read and all(it >= LEAST_TIMES_LESS for it in ratios)


def verdict(rows: list[Row]) -> str:
    """The claims with what was measured for them, a sentence each."""
    largest = max(rows, key=lambda it: it.file_bytes)
    generated = [it.hotlap.cpu_seconds / it.file_bytes * MEBIBYTE * 1000 for it in rows if not it.real]
    said = [
        f"The largest file ({largest.file}) took {largest.hotlap.cpu_seconds:.1f} s and "
        f"{largest.hotlap.peak_bytes / MEBIBYTE:.0f} MiB.",
    ]
    if len(generated) > 1:
        said.append(
            f"Generated traces took {min(generated):.1f} to {max(generated):.1f} ms per MiB, start-up included."
        )
    ratios = [it.times_less for it in rows if it.real and it.times_less is not None]
    if ratios:
        said.append(f"On the {len(ratios)} real traces HTA took {min(ratios):.1f} to {max(ratios):.1f} times as long.")
    return " ".join(said)


def as_table(rows: list[Row]) -> str:
    """Ours, and theirs where it was measured."""
    compared = any(it.hta for it in rows)
    header = ["file", "size on disk", "CPU time", "peak memory"]
    if compared:
        header += ["HTA CPU time", "HTA peak memory", "times less time", "times less memory", "what HTA could not do"]
    shown = []
    for it in rows:
        cells = [
            it.file,
            f"{it.file_bytes / MEBIBYTE:.1f} MiB",
            f"{it.hotlap.cpu_seconds:.3f} s",
            f"{it.hotlap.peak_bytes / MEBIBYTE:.0f} MiB",
        ]
        if it.hta is not None:
            cells += [
                f"{it.hta.cpu_seconds:.2f} s",
                f"{it.hta.peak_bytes / MEBIBYTE:.0f} MiB",
                f"{it.times_less:.1f}",
                f"{it.hta.peak_bytes / it.hotlap.peak_bytes:.1f}",
                it.hta.failed,
            ]
        elif compared:
            cells += ["not measured", "", "", "", ""]
        shown.append(cells)
    return table(header, shown)


def least_of_turns(commands: list[list[str]], repeats: int) -> list[Cost]:
    """The cheapest of several runs of each command. They take turns, behind one that warms the caches where there are
    several, so that changes of the machine affect all alike."""
    if repeats > 1:
        for command in commands:
            cost_of(command)
    turns = [[cost_of(command) for command in commands] for _ in range(repeats)]
    return [min(costs, key=lambda it: it.cpu_seconds) for costs in zip(*turns, strict=True)]


def cost_of(command: list[str]) -> Cost:
    """Run a command and ask the system what it used."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    complaint = child.stderr.read().strip().splitlines()
    child.stderr.close()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    failed = "" if child.returncode == 0 else (complaint or [f"exit code {child.returncode}"])[-1][:200]
    return Cost(cpu_seconds=used.ru_utime + used.ru_stime, peak_bytes=used.ru_maxrss * 1024, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
