"""Measure how long ``hotlap trace`` takes and how much memory it needs, on generated traces and on real ones.

Every figure is of a fresh process, start-up with compiled byte code included, and is the least of several runs: other
work on the machine only ever adds. Claims: time grows in proportion to the file; a trace of 1 GB fits in 4 GB of
memory.

With ``--hta-python`` (an interpreter that has HolisticTraceAnalysis installed) the same files are given to HTA:
loading, temporal breakdown, idle time breakdown and kernel breakdown, which is what ``hotlap trace`` shows.
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
    """One process from start to end. ``failed`` is what it did not manage, empty for all."""

    cpu_seconds: float
    peak_bytes: int
    failed: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="generated traces, in MiB")
    parser.add_argument("--large", action="store_true", help=f"also one of {LARGE} MiB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--traces", type=Path, default=REAL_TRACES, help="a folder of real traces")
    parser.add_argument("--hta-python", help="an interpreter with HolisticTraceAnalysis, to compare with")
    arguments = parser.parse_args()
    sizes = [*arguments.sizes, *([LARGE] if arguments.large else [])]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PYTHONPYCACHEPREFIX=f"{folder}/bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        files = [write_trace(Path(folder) / f"generated-{size}MiB.json", size * MEBIBYTE) for size in sizes]
        files += sorted(arguments.traces.glob("*.json.gz"))
        for file in files:
            repeats = 1 if file.stat().st_size > 500 * MEBIBYTE else arguments.repeats
            ours = least([sys.executable, "-m", "hotlap", "trace", str(file)], repeats)
            theirs = least([arguments.hta_python, "-c", HTA, str(file)], repeats) if arguments.hta_python else None
            rows.append((file.name, file.stat().st_size, ours, theirs))
    data = [
        {"file": name, "file_bytes": size, "hotlap": asdict(ours), "hta": asdict(theirs) if theirs else None}
        for name, size, ours, theirs in rows
    ]
    text = "Least of several fresh processes each, start-up included.\n\n" + as_table(rows)
    write(arguments.out, title="Reading traces", command=command_line("bench.trace"), text=text, data=data)
    print(text)
    kept = all(not ours.failed and ours.peak_bytes < ALLOWED_LARGE_BYTES for _, _, ours, _ in rows)
    return 0 if kept else 1


def as_table(rows: list[tuple[str, int, Cost, Cost | None]]) -> str:
    """Ours, and theirs where it was measured."""
    shown = []
    for name, size, ours, theirs in rows:
        cells = [
            name,
            f"{size / MEBIBYTE:.1f} MiB",
            f"{ours.cpu_seconds:.2f} s",
            f"{ours.peak_bytes / MEBIBYTE:.0f} MiB",
        ]
        if theirs is not None:
            cells += [
                f"{theirs.cpu_seconds:.2f} s",
                f"{theirs.peak_bytes / MEBIBYTE:.0f} MiB",
                f"{theirs.cpu_seconds / ours.cpu_seconds:.1f}x",
                f"{theirs.peak_bytes / ours.peak_bytes:.1f}x",
                theirs.failed,
            ]
        shown.append(cells)
    header = ["file", "size on disk", "CPU time", "peak memory"]
    if any(theirs for *_, theirs in rows):
        header += ["HTA CPU time", "HTA peak memory", "less time", "less memory", "what HTA did not manage"]
    return table(header, shown)


def least(command: list[str], repeats: int) -> Cost:
    """The cheapest of several runs, behind one that warms the caches where there are several."""
    if repeats > 1:
        cost_of(command)
    return min((cost_of(command) for _ in range(repeats)), key=lambda it: it.cpu_seconds)


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
