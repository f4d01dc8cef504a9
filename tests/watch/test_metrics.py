"""The metrics of a watched run: valid OpenMetrics text, on loopback only."""

from __future__ import annotations

import http.client
import re
import socket

import pytest
from watched_rows import row, series_from

from hotlap.errors import UsageError
from hotlap.export.metrics_endpoint import HOST, MetricsEndpoint
from hotlap.export.openmetrics import ALARM_KINDS, CONTENT_TYPE, exposition
from hotlap.records import Alarm

SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?P<labels>\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\}) '
    r"(?P<value>-?\d+(?:\.\d+)?(?:e[+-]\d+)?)"
)
UNITS = ("seconds", "bytes", "hertz")


def families(text: str) -> dict[str, dict[str, str]]:
    """Each family with what its metadata says; every line is checked against the grammar."""
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    found: dict[str, dict[str, str]] = {}
    current = ""
    seen: set[str] = set()
    for line in text.splitlines()[:-1]:
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in found, "families are not interleaved"
            found[current] = {"TYPE": kind}
        elif line.startswith("# "):
            _, key, name, value = line.split(" ", 3)
            assert name == current and key in ("UNIT", "HELP") and key not in found[name]
            found[name][key] = value
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match["name"] == current + ("_total" if found[current]["TYPE"] == "counter" else "")
            key = match["name"] + match["labels"]
            assert key not in seen
            seen.add(key)
    return found


def made() -> str:
    rows = [row(it, loss_scale=65536.0, skipped=2, device_bytes=2**30) for it in range(1, 5)]
    series = series_from(rows, host_bytes=[2.0**31] * 4, clock_mhz=[1980.0] * 4)
    return exposition({1: series, 0: series}, [Alarm(kind="memory-creeps", text="it grows", at_seconds=1.0)])


def test_the_text_is_valid_and_units_are_in_names() -> None:
    text = made()
    found = families(text)
    for name, about in found.items():
        assert about["HELP"]
        unit = name.rpartition("_")[2]
        assert (about.get("UNIT") == unit) == (unit in UNITS)
    assert 'hotlap_steps_total{rank="0"} 400' in text and 'hotlap_skipped_steps_total{rank="0"} 8' in text
    assert 'hotlap_step_phase_seconds{rank="1",phase="data_wait"} 0.001' in text
    assert 'hotlap_clock_hertz{rank="0"} 1980000000.0' in text
    assert 'hotlap_alarm{alarm="memory-creeps"} 1.0' in text and 'hotlap_alarm{alarm="rank-slows"} 0.0' in text
    assert text.count("hotlap_alarm{") == len(ALARM_KINDS)


def test_prometheus_reads_it() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    names = {it.name for it in parser.text_string_to_metric_families(made())}
    assert {"hotlap_steps", "hotlap_step_seconds", "hotlap_host_memory_bytes"} <= names


def test_without_rows_only_alarms_are_there() -> None:
    assert set(families(exposition({}, []))) == {"hotlap_alarm"}


def get(port: int, path: str, host: str | None = None) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.headers["Content-Type"] or "", answer.read().decode()


def test_the_endpoint_serves_the_last_text_on_loopback() -> None:
    with MetricsEndpoint(0) as endpoint:
        port = int(endpoint.url.rpartition(":")[2].partition("/")[0])
        assert endpoint.url == f"http://127.0.0.1:{port}/metrics"
        assert get(port, "/metrics")[0] == 200
        endpoint.text = made()
        assert get(port, "/metrics") == (200, CONTENT_TYPE, made())
        assert get(port, "/metrics", "localhost:80")[0] == 200
        assert get(port, "/../study.json")[0] == 404
        assert get(port, "/metrics", "evil.example:80")[0] == 403
        addresses = {it[4][0] for it in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {HOST}
        for it in addresses:
            if not str(it).startswith("127."):
                with pytest.raises(OSError):
                    socket.create_connection((str(it), port), timeout=2).close()
    with pytest.raises(OSError):
        get(port, "/metrics")


def test_a_taken_port_is_one_sentence() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        with pytest.raises(UsageError, match=r"port .* cannot be used") as raised:
            MetricsEndpoint(other.getsockname()[1])
    assert "--metrics-port" in raised.value.remedy
