"""Damaged files: errors are one sentence, readable events are read, and the rest is counted."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_writer import LEGACY, TraceWriter, kineto_text, training_trace, write_text

from hotlap.errors import TraceError
from hotlap.traces import Timeline, analyse, read_trace, trace_files
from hotlap.traces.document import MOST_EVENT_BYTES

PLACE = "@@@"


def read_bytes(folder: Path, text: bytes, name: str = "trace.json") -> Timeline:
    path = folder / name
    path.write_bytes(text)
    return read_trace(path)


def assert_one_sentence(error: TraceError) -> None:
    assert error.what.endswith(".")
    assert "\n" not in error.what
    assert error.remedy
    assert error.where


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (b"", "a.json", "empty"),
        (b"", "a.json.gz", "empty"),
        (b"  \n\n", "a.json", "blank"),
        (b"hello", "a.json", "not JSON"),
        (b"\x00\x01\x02", "a.json", "not JSON"),
        (b"PK\x03\x04rest of a zip", "a.json.gz", "no gzip"),
        (b"\x1f\x8bnot really", "a.json.gz", "damaged"),
        (b"PK\x03\x04rest of a zip", "a.json.xz", "no xz"),
        (b"PK\x03\x04rest of a zip", "a.json.zst", "no zstd"),
        (b"\xfd7zXZ\x00not really", "a.json.xz", "damaged"),
        (lzma.compress(b"{}"), "a.json.xz", "no traceEvents"),
        (b"\x1f\x8b", "a.json.gz", "stops before its end"),
        (b"{}", "a.json", "no traceEvents"),
        (b'{"a": [1, 2, {"b": "traceEvents"}]}', "a.json", "no traceEvents"),
        (b'{"traceEvents": {}}', "a.json", "no traceEvents"),
        (b'{"traceEvents": []}', "a.json", "holds no events"),
        (b"[]", "a.json", "holds no events"),
        (b"[1, 2, 3]", "a.json", "no events that can be read"),
        (b'[{"name": "x", "value": 3}]', "a.json", "none of a kind that torch.profiler writes"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -1}]}', "a.json", "no sensible"),
        (b'{"traceEvents"', "a.json", "stops before"),
        (gzip.compress(b"{}", mtime=0), "a.json.gz", "no traceEvents"),
        (gzip.compress(b"plain text", mtime=0), "a.json.gz", "not JSON"),
    ],
)
def test_files_that_are_no_traces_are_refused_in_one_sentence(
    text: bytes, name: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=says) as caught:
        read_bytes(tmp_path, text, name)
    assert_one_sentence(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        trace_files(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="holds no"):
        trace_files(tmp_path)
    with pytest.raises(TraceError, match="cannot be opened"):
        read_trace(tmp_path / "nowhere.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(TraceError, match="regular file"):
        trace_files(tmp_path / "pipe.json")


@pytest.mark.parametrize("categories", [None, LEGACY])
def test_truncated_at_every_byte(categories: dict[str, str] | None, tmp_path: Path) -> None:
    writer = training_trace(TraceWriter(categories=categories) if categories else None, steps=1, kernels=2)
    text = kineto_text(writer.events, deviceProperties=[{"id": 0, "name": "a GPU"}])
    whole = len(text.rstrip())
    counts: list[int] = []
    for length in range(len(text)):
        try:
            line = read_bytes(tmp_path, text[:length])
        except TraceError as error:
            assert not counts, "once an event can be read, a longer file cannot be refused"
            if length:
                assert_one_sentence(error)
            continue
        seen = line.coverage
        assert (seen.repaired_events, seen.unreadable_events, seen.invalid_events) == (0, 0, 0)
        assert bool(seen.ended_early) == (length < whole)
        assert seen.bytes_read <= length
        counts.append(seen.events)
        if seen.ended_early:
            assert any(f"read {seen.events} events" in it for it in analyse(line).notes)
    assert counts == sorted(counts)
    assert set(counts) == set(range(1, len(writer.events) + 1))


def test_truncated_gzip(tmp_path: Path) -> None:
    text = gzip.compress(kineto_text(training_trace(steps=60).events))
    whole = read_bytes(tmp_path, text, "whole.json.gz").coverage.events
    line = read_bytes(tmp_path, text[: len(text) // 2], "half.json.gz")
    assert line.coverage.ended_early == "the gzip data stops before its end"
    assert 0 < line.coverage.events < whole
    damaged = text[: len(text) // 2] + b"\xff" * 64 + text[len(text) // 2 + 64 :]
    line = read_bytes(tmp_path, damaged, "damaged.json.gz")
    assert "damaged" in line.coverage.ended_early
    assert 0 < line.coverage.events < whole


def test_gzip_in_several_members_and_with_padding(tmp_path: Path) -> None:
    text = kineto_text(training_trace().events)
    parts = gzip.compress(text[:1000]) + gzip.compress(text[1000:]) + b"\0" * 512
    line = read_bytes(tmp_path, parts, "trace.json.gz")
    assert line.coverage.ended_early == ""
    assert line.coverage.events == len(training_trace().events)


def test_an_unpacked_file_that_kept_its_name(tmp_path: Path) -> None:
    line = read_bytes(tmp_path, kineto_text(training_trace().events), "trace.json.gz")
    assert line.coverage.ended_early == ""
    assert len(line.device) == 18
    assert any("not compressed" in it for it in analyse(line).notes)


@pytest.mark.parametrize(
    "name",
    [
        b"bad \xff\xfe bytes",
        b"half a character \xe2\x82",
        b"control \x00\x01\x1b[31m characters",
        b"a raw\nnewline\tand tab",
        b"C:\\Users\\name\\x.py",
        b"\\ud800 half a pair",
        b"\\u12",
        b'arg }, { \\"ph\\": 1 x',
    ],
)
def test_names_that_are_no_json(name: bytes, tmp_path: Path) -> None:
    writer = training_trace()
    writer.device("kernel", PLACE, 900, 10, correlation=writer.correlation)
    total = len(writer.events)
    line = read_bytes(tmp_path, kineto_text(writer.events).replace(PLACE.encode(), name))
    seen = line.coverage
    assert (seen.events, seen.unreadable_events, seen.ended_early) == (total, 0, "")
    assert seen.repaired_events == (0 if name.endswith(b" x") else 1)
    assert len(line.device) == 19


@pytest.mark.parametrize("number", [b"inf", b"-inf", b"nan", b"NaN", b"Infinity", b"-nan(ind)"])
def test_numbers_that_are_no_json(number: bytes, tmp_path: Path) -> None:
    writer = training_trace()
    for event in writer.events:
        event["args"]["memory bandwidth (GB/s)"] = PLACE
    text = kineto_text(writer.events).replace(f'"{PLACE}"'.encode(), number)
    seen = read_bytes(tmp_path, text).coverage
    assert (seen.events, seen.repaired_events, seen.unreadable_events) == (len(writer.events),) * 2 + (0,)


def test_only_the_broken_event_is_lost(tmp_path: Path) -> None:
    writer = training_trace(steps=30)
    for broken in (b'"name": "a "quoted" name"', b'"name": ', b'"name" "x"'):
        name = b'"name": "ampere_sgemm_0"'
        head, _, tail = kineto_text(writer.events).rpartition(name)
        seen = read_bytes(tmp_path, head + broken + tail).coverage
        assert (seen.events, seen.unreadable_events) == (len(writer.events), 1)
        assert seen.ended_early == ""


def test_many_broken_events_among_good_ones(tmp_path: Path) -> None:
    writer = training_trace(steps=50)
    parts = kineto_text(writer.events).split(b'"name": "ampere_sgemm_0"')
    text = b'"name": "a "b" c"'.join(parts)
    seen = read_bytes(tmp_path, text).coverage
    assert seen.unreadable_events == len(parts) - 1
    assert seen.events == len(writer.events)


@pytest.mark.parametrize(
    ("times", "invalid"),
    [
        ('"ts": 5, "dur": -1', 1),
        ('"ts": 5', 1),
        ('"ts": 5, "dur": 1e17', 1),
        ('"ts": 1e300, "dur": 5', 1),
        ('"ts": 123456789012345678901234567890, "dur": 5', 1),
        ('"ts": 1e999999999, "dur": 5', 1),
        ('"ts": null, "dur": 5', 1),
        ('"ts": "soon", "dur": 5', 1),
        ('"ts": 5, "dur": 0', 0),
        ('"ts": 5.0, "dur": 1e1', 0),
    ],
)
def test_impossible_times_are_counted_and_left_out(times: str, invalid: int, tmp_path: Path) -> None:
    text = kineto_text(training_trace().events)
    odd = '"traceEvents": [{"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, ' + times + "},"
    line = read_bytes(tmp_path, text.replace(b'"traceEvents": [', odd.encode()))
    assert line.coverage.invalid_events + line.coverage.unreadable_events == invalid
    assert len(line.device) == 19 - invalid
    if invalid:
        window = analyse(line).devices[0].time.window_nanoseconds
        assert window == analyse(read_bytes(tmp_path, text)).devices[0].time.window_nanoseconds


def test_fields_of_unusual_types(tmp_path: Path) -> None:
    writer = training_trace()
    for event in writer.events:
        args = event["args"]
        if "correlation" in args:
            args["correlation"] = str(args["correlation"])
        if "stream" in args:
            args["stream"] = float(args["stream"])
        args["bytes"] = None
    line = read_bytes(tmp_path, kineto_text(writer.events))
    assert line.coverage.linked_events == 18
    assert set(line.device.stream) == {7}


def test_identifiers_of_any_size(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.correlation = 2**64 - 10
    writer.launch("k", 0, 10, 5, stream=2**63 + 1)
    writer.correlation = 2**70
    writer.launch("k", 20, 30, 5)
    line = read_bytes(tmp_path, kineto_text(writer.events))
    assert line.coverage.linked_events == 2


def zstd_packed(text: bytes) -> bytes:
    packed: bytes = pytest.importorskip("backports.zstd").compress(text)
    return packed


def why_it_ended(folder: Path, packed: bytes, name: str) -> str:
    try:
        return read_bytes(folder, packed, name).coverage.ended_early
    except TraceError as error:
        assert_one_sentence(error)
        return error.what


@pytest.mark.parametrize(
    ("ending", "kind", "pack"),
    [(".xz", "xz", lzma.compress), (".zst", "zstd", zstd_packed), (".gz", "gzip", gzip.compress)],
)
def test_packed_traces_are_read_whole_in_parts_and_damaged(
    ending: str, kind: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    written = training_trace(steps=200).events
    text, name = kineto_text(written), f"trace.json{ending}"
    packed = pack(text)
    whole = read_bytes(tmp_path, packed, name).coverage
    assert (whole.events, whole.ended_early, whole.bytes_read) == (len(written), "", len(text))
    in_parts = pack(text[:5000]) + pack(text[5000:])
    assert read_bytes(tmp_path, in_parts, name).coverage.events == len(written)
    assert read_bytes(tmp_path, packed, "no ending").coverage.events == len(written)
    cut = read_bytes(tmp_path, packed[: 2 * len(packed) // 3], name).coverage
    assert 0 < cut.events < len(written)
    assert cut.ended_early == f"the {kind} data stops before its end"
    middle = len(packed) // 2
    damaged = packed[:middle] + b"\xff" * 100 + packed[middle + 100 :]
    assert f"the {kind} data is damaged" in why_it_ended(tmp_path, damaged, name)


def test_zstd_without_a_package_that_unpacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotlap.traces.unpacking._ZSTD_MODULES", ("no_such_module",))
    with pytest.raises(TraceError, match="packed with zstd") as caught:
        read_bytes(tmp_path, b"\x28\xb5\x2f\xfd and more", "trace.json.zst")
    assert_one_sentence(caught.value)
    assert "hotlap[zstd]" in caught.value.remedy


@pytest.mark.parametrize(("kind", "opened"), [("gzip", gzip.open), ("xz", lzma.open)])
def test_a_decompression_bomb_is_refused_in_bounded_memory(
    kind: str, opened: Callable[..., BinaryIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotlap.traces.source.EXPANSION_CHECKED_FROM", 4 * 2**20)
    event = json.dumps({"ph": "i"}).encode()
    blanks, name, events = b" " * 2**20, b'"' + b"a" * 2**20, (event + b",") * (2**20 // len(event))
    for body in (blanks, name, events):
        path = tmp_path / "packed"
        with opened(path, "wb") as out:
            out.write(b'{"traceEvents": [')
            for _ in range(19):
                out.write(body)
        tracemalloc.start()
        try:
            with pytest.raises(TraceError, match=f"{kind} file expands more than 200 times") as caught:
                read_trace(path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert_one_sentence(caught.value)
        assert peak < 3 * MOST_EVENT_BYTES


def test_a_plain_file_of_one_oversized_event(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    with path.open("wb") as out:
        out.write(b'{"traceEvents": [{"ph": "X", "name": "')
        for _ in range(18):
            out.write(b"a" * 2**20)
    with pytest.raises(TraceError, match="longer than 16 MiB"):
        read_trace(path)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 12))
def test_random_damage_raises_no_unexpected_error(
    seed: int, changes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    source = random.Random(seed)
    text = bytearray(kineto_text(training_trace(steps=2, kernels=3).events))
    for _ in range(changes):
        place = source.randrange(len(text))
        if source.random() < 0.3:
            del text[place : place + source.randrange(40)]
        else:
            text[place] = source.randrange(256)
    try:
        line = read_bytes(folder, bytes(text))
    except TraceError as error:
        assert_one_sentence(error)
        return
    seen = line.coverage
    assert seen.events == (
        seen.device_events + seen.host_events + seen.other_events + seen.invalid_events + seen.unreadable_events
    )
    analyse(line)


def test_memory_does_not_grow_with_the_file_but_with_its_events(tmp_path: Path) -> None:
    writer = training_trace(steps=400)
    for event in writer.events:
        event["args"]["Unknown call stacks"] = "x" * 4000
    path = write_text(tmp_path / "trace.json.gz", kineto_text(writer.events))
    tracemalloc.start()
    try:
        line = read_trace(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert line.coverage.bytes_read > 25 * 2**20
    assert peak < 10 * 2**20


def test_extreme_nesting_loses_only_its_event(tmp_path: Path) -> None:
    nested = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    text = kineto_text(training_trace().events)
    line = read_bytes(tmp_path, text.replace(b'"traceEvents": [', b'"traceEvents": [' + nested + b","))
    assert line.coverage.unreadable_events == 1
    assert len(line.device) == 18
    head = text.replace(b'"schemaVersion": 1', b'"schemaVersion": ' + b"[" * 50_000 + b"]" * 50_000)
    assert len(read_bytes(tmp_path, head).device) == 18
    with pytest.raises(TraceError, match="no events that can be read"):
        read_bytes(tmp_path, b'{"traceEvents": [' + b"[" * 50_000)


def test_elements_that_are_no_events_are_counted(tmp_path: Path) -> None:
    text = kineto_text(training_trace().events)
    odd = b'"traceEvents": [{}, {"ph": "?"}, {"cat": "kernel"}, {"ph": 5, "name": []},'
    line = read_bytes(tmp_path, text.replace(b'"traceEvents": [', odd))
    assert line.coverage.other_events == 4
    assert line.coverage.events == len(training_trace().events) + 4
