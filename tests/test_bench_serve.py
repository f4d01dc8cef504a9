"""The load generator against servers that answer as a test wants, and the table of the benchmark."""

from __future__ import annotations

import http.server
import itertools
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.pieces import piece
from bench.serve.__main__ import Chosen, Point, Turn, text_of
from bench.serve.load import drive, percentile, poisson_times
from bench.serve.server import ServerFailed, members, serving
from hypothesis import given
from hypothesis import strategies as st

from hotlap.records import Estimate


@contextmanager
def answering(**behaviour: Any) -> Iterator[int]:
    """A server that doubles the numbers of a request, one request after the other."""
    turn = threading.Lock()
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with turn:
                seen.append(asked)
                if len(seen) == 1:
                    time.sleep(behaviour.get("first_takes", 0.0))
            if asked["x"] == behaviour.get("drops"):
                self.close_connection = True
                return
            body = json.dumps({"y": [2 * it for it in asked["x"]]}).encode()
            self.send_response(500 if asked["x"] == behaviour.get("refuses") else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_request_gets_its_own_answer() -> None:
    requests = [{"x": [number]} for number in range(3)]
    with answering() as port:
        answers = drive(port, requests, [0.0, 0.0, 0.01, 0.02], keep_outputs=True)
    assert [it.outputs for it in answers] == [{"y": [0]}, {"y": [2]}, {"y": [4]}, {"y": [0]}]
    assert all(not it.failure and it.latency_seconds >= it.late_seconds >= 0 for it in answers)


def test_a_stalled_server_delays_every_request_that_was_due() -> None:
    """A client that waits for each answer before it asks again would see a single slow one."""
    with answering(first_takes=0.5) as port:
        answers = drive(port, [{"x": [1]}], [0.0, 0.1, 0.2])
    assert [it.latency_seconds > least for it, least in zip(answers, (0.45, 0.35, 0.25), strict=True)] == [True] * 3


def test_a_failure_is_one_and_the_others_go_on() -> None:
    with answering(drops=[1], refuses=[2]) as port:
        dropped, refused, answered = drive(
            port, [{"x": [1]}, {"x": [2]}, {"x": [3]}], [0.0, 0.0, 0.0], keep_outputs=True
        )
    assert "IncompleteRead" in dropped.failure and math.isnan(dropped.latency_seconds)
    assert refused.failure.startswith("status 500") and refused.outputs is None
    assert answered.outputs == {"y": [6]}


def test_nobody_listens(tmp_path: Path) -> None:
    with answering() as port:
        pass
    (answer,) = drive(port, [{"x": [1]}], [0.0])
    assert answer.failure and math.isnan(answer.latency_seconds)
    with (
        pytest.raises(ServerFailed, match=r"exit code [12]"),
        serving(tmp_path, tmp_path / "log"),
    ):
        pass


@given(rate=st.floats(5.0, 200.0), seed=st.integers(0, 10**6))
def test_arrivals_are_a_poisson_process(rate: float, seed: int) -> None:
    times = poisson_times(rate, 400 / rate, seed)
    assert times == sorted(times) and all(0 < it < 400 / rate for it in times)
    assert times == poisson_times(rate, 400 / rate, seed)
    assert abs(len(times) - 400) < 6 * math.sqrt(400)


def test_times_between_arrivals_are_exponential() -> None:
    times = poisson_times(50.0, 400.0, 3)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    for share in (0.1, 0.5, 0.9, 0.99):
        expected = -math.log(1 - share) / 50.0
        assert percentile(gaps, share) == pytest.approx(expected, rel=0.1)


def test_the_table_compares_both_at_the_same_rates() -> None:
    def turn(arm: str, seconds: float) -> Turn:
        points = tuple(
            Point(rate=rate, latencies_seconds=(seconds,) * 300, failures=int(rate == 80), late_seconds=0.001)
            for rate in (10.0, 80.0)
        )
        return Turn(arm=arm, points=points)

    chosen = Chosen(form="openvino (precision int8)", speedup=Estimate(value=3, low=2.9, high=3.1), alone_seconds=0.025)
    turns = [turn("unmodified", 0.020), turn("exported", 0.005), turn("exported", 0.005), turn("unmodified", 0.030)]
    text = text_of("minilm", chosen, turns, 8, 1)
    assert "Exported: openvino (precision int8), 3.00x (2.90 to 3.10) by its study." in text
    rows = [it for it in text.splitlines() if it.startswith(("| 10.0", "| 80.0"))]
    assert "20.0, 30.0" in rows[0] and "5.0 (5.0 to 5.0)" in rows[0] and rows[1].count("| 2 |") == 2
    assert "(40.0 per second)" in text and "1.0 ms late" in text


def test_a_piece_is_measured_once(tmp_path: Path) -> None:
    measured = []

    def measure() -> Point:
        measured.append(1)
        return Point(rate=1.0, latencies_seconds=(0.5,), failures=0, late_seconds=0.0)

    first = piece(tmp_path / "new", "point", Point, measure)
    assert piece(tmp_path / "new", "point", Point, measure) == first and len(measured) == 1
    assert piece(None, "point", Point, measure) == first and len(measured) == 2
    assert [it.name for it in (tmp_path / "new").iterdir()] == ["point.json"]


def test_processes_of_a_session_are_found() -> None:
    import os
    import subprocess
    import sys

    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        assert [it.pid for it in members(process.pid)] == [process.pid]
        assert os.getpid() not in [it.pid for it in members(process.pid)]
    finally:
        process.communicate(b"\n")
    assert members(process.pid) == []
