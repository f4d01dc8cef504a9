"""The charts of single measurements: rounds, steps, peaks, and the loader of the plan."""

from __future__ import annotations

from typing import Any

import fakes
import msgspec
import pytest
from materials import loader_rates, sampled, timings

from hotlap.diagnose.profile import Profile
from hotlap.evidence import LineSamples, RunEvidence, SampledLine
from hotlap.records import Plan, Study, Timings
from hotlap.render.html.charts import ceilings, flame, memory_peaks, replicates, step_times
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material

MEASURED = msgspec.structs.replace(fakes.FINISHED, timings=timings())


def rounds_chart(study: Study) -> Chart:
    (found,) = replicates.for_page(Material(study=study))
    return found


def values(chart: Chart, layer: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chart.drawn["layer"][layer]["data"]["values"]
    return found


def test_every_round_is_a_dot_and_every_replicate_a_mean() -> None:
    found = rounds_chart(MEASURED)
    gain, itself = (values(found, layer)[0] for layer in (0, 1))
    assert fakes.FINISHED.verification is not None
    speed = fakes.FINISHED.verification.speed
    assert gain == {"low": speed.speedup.low, "high": speed.speedup.high}
    assert speed.baseline_speedup is not None
    assert itself == {"low": speed.baseline_speedup.low, "high": speed.baseline_speedup.high}, "the A/A band"
    assert len(values(found, 3)) == 2 * 5 * 15
    assert [it["ratio"] for it in values(found, 4)] == pytest.approx([3.65] * 5, rel=0.05)
    again = [it["ratio"] for it in values(found, 3) if it["arm"] == "unmodified script again"]
    assert sum(again) / len(again) == pytest.approx(1, rel=0.02)
    assert found.table.rows[0][0] == "replicate 1" and len(found.table.rows) == 5
    assert "It contains 1" in found.notes[-1]


def test_a_baseline_that_disagrees_with_itself_is_called_so() -> None:
    study = msgspec.structs.replace(fakes.DISTURBED, timings=timings())
    assert "does not contain 1, so no claim is made" in rounds_chart(study).notes[-1]


@pytest.mark.parametrize(
    "broken",
    [
        Timings(),
        Timings(baseline=((),), repeat=((),), plan=((),)),
        Timings(baseline=((1.0,),), repeat=((1.0,),), plan=((1.0, 2.0),)),
        Timings(baseline=((1.0,),), repeat=((1.0,),), plan=((0.0,),)),
        Timings(baseline=((1.0,),), repeat=((1.0,),), plan=()),
    ],
)
def test_times_that_make_no_sense_are_not_drawn(broken: Timings) -> None:
    material = Material(study=msgspec.structs.replace(fakes.FINISHED, timings=broken))
    assert not replicates.for_page(material) and not step_times.for_page(material)


def test_steps_are_drawn_for_the_same_samples() -> None:
    study = msgspec.structs.replace(
        fakes.FINISHED,
        timings=Timings(baseline_steps=(0.2,) * 20, plan_steps=(0.1,) * 20, baseline_samples=32, plan_samples=64),
    )
    series, histogram = step_times.for_page(Material(study=study))
    assert {it["time"] for it in series.drawn["data"]["values"] if it["arm"] == "after"} == {50}, "ms for 32 samples"
    assert [(row[0], row[2]) for row in series.table.rows] == [("before", "200 ms"), ("after", "50.0 ms")]
    assert [it["steps"] for it in values(histogram, 0)] == [20, 20]
    assert {it["time"] for it in values(histogram, 1)} == {200, 50}


def test_all_steps_are_in_the_histogram() -> None:
    _, histogram = step_times.for_page(Material(study=MEASURED))
    for arm in ("before", "after"):
        assert sum(it["steps"] for it in values(histogram, 0) if it["arm"] == arm) == 200
    bars = [(it["from"], it["to"]) for it in values(histogram, 0)]
    assert all(low < high for low, high in bars)


def test_a_step_far_beyond_the_others_does_not_flatten_them() -> None:
    slow = msgspec.structs.replace(timings(), baseline_steps=(*(0.2,) * 100, 60.0))
    series, _ = step_times.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, timings=slow)))
    assert max(it["time"] for it in series.drawn["data"]["values"]) == pytest.approx(800)
    assert "At the upper edge: 1 step longer than 800 ms." in series.notes
    assert series.table.rows[0][4] == "1 min", "the table has its real length"


def test_equal_steps_have_one_bar() -> None:
    equal = Timings(baseline_steps=(0.2,) * 9, plan_steps=(0.2,) * 9)
    _, histogram = step_times.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, timings=equal)))
    assert [it["steps"] for it in values(histogram, 0)] == [9, 9]


def test_the_ceiling_of_the_new_loader_is_drawn() -> None:
    rates = loader_rates()
    shown = rates[-2]
    study = msgspec.structs.replace(fakes.FINISHED, loader_rates=rates, plan=Plan(settings=(shown.setting,)))
    found = ceilings.chart(study)
    assert found is not None
    rows = {it["name"]: it["rate"] for it in found.drawn["data"]["values"]}
    assert rows["loader with the plan"] == pytest.approx(1 / shown.seconds_per_sample)
    assert "timed alone, without the other levers of the plan" in found.notes[1]
    other = ceilings.chart(msgspec.structs.replace(study, plan=Plan(settings=(fakes.MIXED,))))
    assert other is not None and "loader with the plan" not in str(other.drawn)


def test_peaks_are_drawn_before_and_after() -> None:
    assert fakes.FINISHED.verification is not None
    measured = msgspec.structs.replace(fakes.FINISHED.verification, metrics=fakes.METRICS)
    (found,) = memory_peaks.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, verification=measured)))
    assert [(it["name"], it["label"]) for it in found.drawn["data"]["values"]] == [
        ("device, before", "8.0 GiB"),
        ("device, after", "4.2 GiB"),
    ]
    assert found.notes[0].startswith("The device's peak"), "the host's was not measured on both sides"


def test_a_step_is_nested_by_phase_line_and_function() -> None:
    profile = Profile(evidence=RunEvidence(observed_steps=10, sampled=sampled()))
    (found,) = flame.for_page(Material(study=fakes.FINISHED, profile=profile))
    bars = {(it["level"], it["name"]): (it["start"], it["end"]) for it in values(found, 1)}
    assert bars == {
        (0, "data wait"): (0, 300),
        (1, "train.py:12 load"): (0, 300),
        (2, "PIL.Image.open"): (0, 300),
        (0, "forward"): (300, 500),
        (1, "train.py:40 main"): (300, 450),
        (2, "torch.nn.Module.__call__"): (300, 450),
        (3, "torch.conv2d"): (300, 400),
        (3, "torch.relu"): (400, 450),
        (1, "not in the script"): (450, 500),
    }, "milliseconds per step, longest first, without start-up"
    assert [it["label"] for it in values(found, 1) if it["level"] == 2] == ["open", "__call__"]
    assert found.table.rows[0] == ("train.py:12 load", "data wait", "300 ms", "60 %")


def test_slivers_of_a_step_are_not_drawn() -> None:
    many = tuple(SampledLine(phase="forward", samples=1, seconds=1.0, called=f"f{it}") for it in range(2000))
    profile = Profile(evidence=RunEvidence(observed_steps=10, sampled=LineSamples(lines=many)))
    (found,) = flame.for_page(Material(study=fakes.FINISHED, profile=profile))
    assert len(values(found, 1)) == 2


def test_without_samples_of_steps_there_is_no_flame_view() -> None:
    started = LineSamples(lines=(SampledLine(phase="startup", samples=1, seconds=1.0),))
    for evidence in (RunEvidence(observed_steps=10, sampled=started), RunEvidence(sampled=sampled())):
        assert not flame.for_page(Material(study=fakes.FINISHED, profile=Profile(evidence=evidence)))


def test_peaks_of_one_side_are_not_drawn() -> None:
    one_side = msgspec.structs.replace(fakes.METRICS[0], candidate=None)
    assert fakes.FINISHED.verification is not None
    measured = msgspec.structs.replace(fakes.FINISHED.verification, metrics=(one_side,))
    assert not memory_peaks.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, verification=measured)))
