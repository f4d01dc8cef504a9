"""Collectives by size: the fit and its errors, real ones between two processes, and what ``hotlap doctor`` shows."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hotlap import records
from hotlap.cli import doctor as command
from hotlap.errors import HotlapError, UsageError
from hotlap.experiment.collective_rates import collectives_request
from hotlap.machine.collectives import SIZES, fitted, rate_of
from hotlap.machine.exchanges import PART_BYTES
from hotlap.records import (
    Accelerator,
    CollectiveRate,
    CollectiveRates,
    CollectivesRequest,
    Machine,
    OptimizerFacts,
    ScriptFacts,
    TrainedParts,
)
from hotlap.render.doctor import doctor
from hotlap.trial.collectives import measured_collectives


@given(latency=st.floats(1e-6, 1e-3), rate=st.floats(1e6, 1e11))
def test_a_line_without_noise_is_found(latency: float, rate: float) -> None:
    line = fitted([(size, latency + size / rate) for size in SIZES])
    assert line.largest_error < 1e-6
    for size in SIZES:
        assert line.latency + size * line.seconds_per_byte == pytest.approx(latency + size / rate, rel=1e-6)


def test_errors_grow_with_the_noise() -> None:
    def line(noise: float) -> float:
        points = [(size, (1e-4 + size / 1e9) * (1 + noise * (-1) ** at)) for at, size in enumerate(SIZES)]
        found = fitted(points)
        assert found.largest_error == pytest.approx(noise, abs=noise)
        return found.slope_error / found.seconds_per_byte

    assert 0 < line(0.01) < line(0.1)


@pytest.mark.parametrize("points", [[(1, 5.0), (2, 3.0), (4, 1.0)], [(1, 0.1), (100, 20.0), (200, 50.0)]])
def test_nothing_is_faster_than_no_time(points: list[tuple[int, float]]) -> None:
    line = fitted(points)
    assert line.latency >= 0 and line.seconds_per_byte >= 0


def test_two_points_are_not_enough() -> None:
    with pytest.raises(ValueError, match="three"):
        fitted([(1, 1.0), (2, 2.0)])


def test_real_collectives_between_two_processes() -> None:
    found = measured_collectives(2, seconds=1.0)
    assert [it.name for it in found.rates] == ["all-reduce", "all-gather", "reduce-scatter"]
    for it in found.rates:
        assert (it.backend, it.processes) == ("gloo", 2)
        assert [size for size, _ in it.seconds_by_bytes] == list(SIZES)
        assert it.bytes_per_second > 0 and it.latency_seconds >= 0
    assert found.hidden_share is not None and 0 <= found.hidden_share <= 1


ADDED = ["fsdp2-gather", "fsdp2-scatter", "fsdp2-update", "zero-1-update"]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(TrainedParts(parameters=3), id="as torch decides"),
        pytest.param(TrainedParts(parameters=1, optimizer="SGD", foreach=True), id="foreach", marks=pytest.mark.slow),
    ],
)
def test_what_strategies_do_with_parts_of_a_model_is_measured_too(parts: TrainedParts) -> None:
    found: dict[str, CollectiveRate] = {it.name: it for it in measured_collectives(2, parts=parts, seconds=0.5).rates}
    assert list(found)[3:] == ADDED
    of_part, of_parameter = list(PART_BYTES), [it // parts.parameters for it in PART_BYTES]
    for name, sizes in zip(ADDED, (of_part, of_part, of_parameter, of_parameter), strict=True):
        assert [size for size, _ in found[name].seconds_by_bytes] == sizes
        assert all(seconds > 0 for _, seconds in found[name].seconds_by_bytes)
    largest = {name: rate.seconds_by_bytes[-1][1] for name, rate in found.items()}
    assert largest["fsdp2-gather"] > largest["fsdp2-update"], "a whole part is copied, and one parameter is updated"


@pytest.mark.slow
def test_collectives_are_measured_where_torch_refuses_the_optimizer() -> None:
    both = TrainedParts(optimizer="SGD", fused=True, foreach=True)
    assert [it.name for it in measured_collectives(2, parts=both, seconds=0.5).rates] == [
        "all-reduce", "all-gather", "reduce-scatter",
    ]  # fmt: skip


def test_scripts_on_the_processor_are_asked_about_with_parts_like_their_own() -> None:
    own = OptimizerFacts(kind="SGD", parameters=10, learning_rate=0.1, foreach=False)
    asked = collectives_request(ScriptFacts(optimizers=(own,)), 2, 12)
    assert asked.parts == TrainedParts(parameters=12, optimizer="SGD", foreach=False)
    other = msgspec.structs.replace(own, kind="Muon", from_torch=False)
    assert collectives_request(ScriptFacts(optimizers=(other,)), 2).parts == TrainedParts()
    on_device = collectives_request(ScriptFacts(device="cuda:0", optimizers=(own,)), 4, 12)
    assert on_device == CollectivesRequest(processes=4, device="cuda")


@pytest.mark.parametrize("processes", [1, 65])
def test_numbers_of_processes_that_cannot_be_measured(processes: int) -> None:
    with pytest.raises(HotlapError, match=f"between {processes} processes"):
        measured_collectives(processes)


RATES = CollectiveRates(
    rates=(rate_of("all-reduce", "gloo", 2, [(size, 1e-4 + size / 1e9) for size in SIZES]),), hidden_share=0.4
)


def test_the_doctor_shows_latency_bandwidth_and_their_errors() -> None:
    console = Console(width=100, file=io.StringIO())
    with console.capture() as captured:
        console.print(doctor(Machine(), (), RATES))
    shown = " ".join(captured.get().split())
    assert "Exchange between 2 processes (gloo)" in shown
    assert "100 us" in shown and "954 MiB/s" in shown and "40 % of the shorter" in shown


def test_devices_have_one_process_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(command, "measured_collectives", lambda *it: asked.append(it) or RATES)
    device = Accelerator(kind="cuda", name="A", memory_bytes=1)
    with pytest.raises(UsageError, match="device for each"):
        command._collectives(Machine(accelerators=(device,)), 2)
    assert command._collectives(Machine(accelerators=(device,) * 2), 2) == RATES
    assert command._collectives(Machine(), 2) == RATES
    assert command._collectives(Machine(), None) is None
    assert asked == [(2, "cuda"), (2, "cpu")]


def test_rates_survive_json() -> None:
    text = json.loads(msgspec.json.encode(RATES))
    assert msgspec.convert(text, records.CollectiveRates) == RATES
