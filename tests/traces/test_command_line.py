"""``hotlap trace`` on unusual and damaged files: one sentence, and bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trace_writer import LEGACY, TraceWriter, kineto_text, training_trace

SOURCE = Path(__file__).parents[2] / "src"
MEMORY_BYTES = 700 * 2**20
EVIL = "\x1b[2J\x1b]0;title\x07[red]x[/red]\u202e\n<script>"


def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process with only the memory that a small trace needs."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "120", "PYTHONWARNINGS": "error", **variables}
    return subprocess.run(
        [sys.executable, "-m", "hotlap", "trace", "--full", *map(str, words)],
        env=environment, capture_output=True, text=True, timeout=120, preexec_fn=limited, check=False,
    )  # fmt: skip


def refused(path: Path) -> str:
    """Return the error for an unreadable file: one sentence on what happened, one on what to do."""
    done = run(path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    what, remedy = done.stderr.splitlines()
    assert what.startswith("hotlap: ")
    assert remedy.startswith("        ")
    return what


def answered(path: Path) -> str:
    """Return the page of a file that can be read."""
    done = run(path)
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


def event(**fields: Any) -> bytes:
    return json.dumps({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, **fields}).encode()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.json", b"", "The file is empty."),
        ("empty.json.gz", b"", "The file is empty."),
        ("hollow.json.gz", gzip.compress(b"", mtime=0), "blank"),
        ("words.json", b"no trace", "not JSON"),
        ("other.json", b'{"loss": [1, 2, 3]}', "JSON but no trace"),
        ("list.json", b'[{"loss": 1}]', "none of a kind that torch.profiler writes"),
        ("cut.json", b'{"schemaVersion": 1, "traceEv', "stops before its first event"),
        ("fake.json.gz", b"\x1f\x8b\x08\x00 and then nothing", "damaged"),
        ("zip.json.gz", b"PK\x03\x04....", "no gzip"),
        ("negative.json", b'{"traceEvents": [' + event(dur=-5) + b"]}", "1 have no sensible time"),
        ("absurd.json", b'{"traceEvents": [' + event(dur=1e300) + b"]}", "1 have no sensible time"),
        ("timeless.json", b'{"traceEvents": [' + event(ts="soon", dur=1) + b"]}", "1 have no sensible time"),
        ("deep.json", b'{"traceEvents": ' + b"[" * 100_000, "no events that can be read"),
        (f"{EVIL.replace('/', '')}.json", b"no trace", "not JSON"),
    ],
)
def test_unreadable_files(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    what = refused(path)
    assert says in what
    assert "\x1b" not in what
    assert "\u202e" not in what


def test_a_gzip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    filler = json.dumps({"ph": "i", "name": "x"}).encode() + b","
    with gzip.open(path, "wb", compresslevel=9) as out:
        out.write(b'{"traceEvents": [')
        for _ in range(100):
            out.write(filler * (2**20 // len(filler)))
    assert path.stat().st_size < 2**20
    assert "expands more than 200 times" in refused(path)


def test_folders_without_a_trace(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "nowhere")
    assert "holds no .json" in refused(tmp_path)
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    (tmp_path / "b.json").write_text("", encoding="utf-8")
    assert "None of the folder's 2 JSON files is a trace" in refused(tmp_path)


def test_a_truncated_trace_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = kineto_text(training_trace(steps=50).events)
    (tmp_path / "cut.json").write_bytes(text[: len(text) // 2])
    assert "The file stops before its end; read" in answered(tmp_path / "cut.json")
    packed = gzip.compress(text)
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    assert "The gzip data stops before its end; read" in answered(tmp_path / "cut.json.gz")


def test_no_accelerator_and_no_steps(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 10)
    page = answered(writer.write(tmp_path / "trace.json"))
    assert "no accelerator work" in page
    assert "The trace marks no steps" in page


def test_odd_durations_are_counted_and_left_out(tmp_path: Path) -> None:
    writer = training_trace(TraceWriter(categories=LEGACY))
    plain = answered(writer.write(tmp_path / "plain.json"))
    writer.device("kernel", "odd", 5, -3)
    writer.device("kernel", "odd", 5, 10**15)
    page = answered(writer.write(tmp_path / "odd.json"))
    assert "2 events have no time, or a negative or absurd duration, and are left out." in page
    assert page[page.index("Device 0") :] == plain[plain.index("Device 0") :]


def test_control_characters_in_names_are_removed(tmp_path: Path) -> None:
    writer = training_trace()
    writer.launch(EVIL, 5000, 5100, 900)
    writer.host("operator", EVIL, 4990, 50)
    writer.host("python", f"{EVIL}/train.py(3): main", 4000, 2000)
    writer.events.append({"ph": "X", "cat": EVIL, "name": EVIL, "pid": EVIL, "tid": EVIL, "ts": 1, "dur": 2})
    path = writer.write(tmp_path / "trace.json", deviceProperties=[{"id": 0, "name": EVIL}], traceName=EVIL)
    done = run(path, FORCE_COLOR="")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "[red]x[/red]" in done.stdout
    assert json.loads(run("--json", path).stdout)["traces"][0]["devices"][0]["name"] == EVIL


def test_a_mixed_folder_of_ranks(tmp_path: Path) -> None:
    for rank, compute in enumerate((500, 800)):
        writer = TraceWriter()
        for step in range(3):
            begin = step * 1000
            writer.step(step, begin, 1000)
            writer.launch("gemm", begin + 1, begin + 10, compute)
            writer.launch("ncclDevKernel_AllReduce", begin + 5, begin + 10 + compute, 980 - compute, stream=20)
        writer.write(tmp_path / f"rank{rank}.json.gz", distributedInfo={"rank": rank, "world_size": 2})
    (tmp_path / "config.json").write_text('{"lr": 1}', encoding="utf-8")
    (tmp_path / "half.json.gz").write_bytes(b"\x1f\x8b\x08")
    (tmp_path / f"{EVIL.replace('/', '')}.json").write_bytes(b"?")
    (tmp_path / "folder.json").mkdir()
    page = answered(tmp_path)
    assert "rank 1 is waited for: over 3 steps the others wait 30 % of the time for it" in page
    assert "config.json: The file is JSON but no trace" in page
    assert "\x1b" not in page
    document = json.loads(run("--json", tmp_path).stdout)
    assert document["ranks"]["waited_for"] == 1
    assert len(document["traces"]) == 2
    assert len(document["skipped"]) == 3


def test_a_terminal_with_only_ascii(tmp_path: Path) -> None:
    writer = training_trace()
    writer.launch("noyau \u6838\u5fc3", 5000, 5100, 900)
    done = run(writer.write(tmp_path / "trace.json"), PYTHONIOENCODING="ascii", FORCE_COLOR="1")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "noyau ??" in done.stdout


def test_a_reader_that_closes_the_pipe_early(tmp_path: Path) -> None:
    path = training_trace(steps=30).write(tmp_path / "trace.json")
    command = '"$0" -m hotlap trace --json "$1" | head -c 10; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, str(path)], env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode in (0, 141)
