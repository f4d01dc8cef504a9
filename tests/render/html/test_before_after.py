"""The unmodified script and the plan in one drawing: the same scale, and a reason for whatever is missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fakes
import msgspec
import pytest
from materials import full_material, lanes_before_and_after, memory, sampled
from trace_writer import TraceWriter

from hotlap.diagnose.profile import Profile
from hotlap.evidence import MemoryTimeline, RunEvidence
from hotlap.records import Plan, Study, Timings
from hotlap.render.html.charts import flame, timeline
from hotlap.render.html.charts import memory as memory_chart
from hotlap.render.html.page import page
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material
from hotlap.render.sections import timeline as section
from hotlap.traces import read_trace
from hotlap.traces.lanes import MOST_SPANS, lanes_of, lanes_of_both


def named(chart: Chart, name: str) -> list[dict[str, Any]]:
    """The values of the chart's data of that name."""
    return [row for it in chart.drawn["layer"] if it["data"]["name"] == name for row in it["data"]["values"]]


def both_lanes(folder: Path) -> Chart:
    found = timeline.chart(*lanes_before_and_after(folder))
    assert found is not None
    return found


def test_both_timelines_begin_at_zero_on_one_axis(tmp_path: Path) -> None:
    before, after = lanes_before_and_after(tmp_path)
    found = both_lanes(tmp_path)
    assert found.drawn["params"][1] == {"name": "to", "value": before.length / 1e6}
    spans = named(found, "spans")
    assert len(spans) == sum(len(it.spans) for lanes in (before, after) for it in lanes.lanes)
    ends = {side: max(it["end"] for it in spans if it["row"].startswith(side)) for side in ("before", "after")}
    assert ends["after"] <= after.length / 1e6 < ends["before"] <= before.length / 1e6
    assert [it["start"] for it in named(found, "steps")] == [0, 1, 2]
    assert [it["start"] for it in named(found, "steps-after")] == [0, 0.2, 0.4]
    assert [it["heading"] for it in named(found, "headings")] == [
        "Before: 3 steps in 2.99 ms",
        "After: 3 steps in 590 us",
    ]
    assert [row[0] for row in found.table.rows] == 3 * ["before"] + 2 * ["after"]


def test_a_row_of_one_side_is_no_row_of_the_other(tmp_path: Path) -> None:
    rows = both_lanes(tmp_path).drawn["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    assert rows == [
        "before|", "before|data loader", "before|main thread", "before|device 0, stream 7",
        "after|", "after|main thread", "after|device 0, stream 7",
    ]  # fmt: skip


def test_what_took_longest_is_compared_by_name(tmp_path: Path) -> None:
    before, after = lanes_before_and_after(tmp_path)
    rows = {row[0]: row[1:] for row in timeline.longest_table(before, after).rows}
    assert rows["aten::mm"] == ("host", "15", "3", "135 us", "300 us")
    assert rows["gemm"] == ("device", "0", "3", "none", "300 us")
    assert [it[-1] for it in rows.values() if it[0] == "data loader"] == ["none"]


def steps(folder: Path, count: int, spans: int) -> Any:
    writer = TraceWriter()
    for number in range(count):
        writer.step(number, number * 100_000, 99_000)
        for it in range(spans):
            writer.host("operator", f"op{it % 7}", number * 100_000 + it * 10, 8)
    folder.mkdir()
    return read_trace(writer.write(folder / "trace.json"))


@pytest.mark.parametrize(("steps_before", "steps_after", "spans"), [(8, 3, 10), (3, 8, 10), (8, 8, 2000)])
def test_both_show_equally_many_steps(tmp_path: Path, steps_before: int, steps_after: int, spans: int) -> None:
    one, other = steps(tmp_path / "one", steps_before, spans), steps(tmp_path / "other", steps_after, 5)
    before, after = lanes_of_both(one, other)
    assert before is not None and after is not None
    assert 0 < len(before.steps) == len(after.steps) <= min(steps_before, steps_after)
    assert sum(len(lane.spans) for it in (before, after) for lane in it.lanes) <= MOST_SPANS


def test_a_larger_batch_is_mentioned(tmp_path: Path) -> None:
    samples = Timings(baseline_samples=32, plan_samples=64)
    before, after = lanes_before_and_after(tmp_path)
    study = msgspec.structs.replace(fakes.FINISHED, timings=samples)
    (found,) = timeline.for_page(Material(study=study, lanes=before, plan_lanes=after))
    assert "A step with the plan holds 2 times as many samples." in found.notes
    assert not any("times as many" in it for it in both_lanes(tmp_path).notes)


def profile(faster: float = 1.0, bytes_less: int = 0) -> Profile:
    return Profile(
        evidence=RunEvidence(observed_steps=10, sampled=sampled(faster), memory=memory(bytes_less=bytes_less))
    )


def test_a_line_that_takes_less_time_is_narrower_below() -> None:
    material = Material(study=fakes.FINISHED, profile=profile(), plan_profile=profile(faster=4.0))
    (found,) = flame.for_page(material)
    widths = {it["row"]: it["end"] - it["start"] for it in named(found, "spans") if it["name"] == "train.py:12 load"}
    assert widths == {"before|1": 300, "after|1": 75}
    assert found.drawn["params"][1]["value"] == pytest.approx(500)
    assert found.table.headings[2:4] == (">per step before", ">of the step before")
    assert found.table.rows[0] == ("train.py:12 load", "data wait", "300 ms", "60 %", "75.0 ms", "27 %")


def test_memory_of_the_plan_is_drawn_next_to_that_before() -> None:
    found = memory_chart.chart(memory(), memory(bytes_less=2**30))
    assert found is not None and found.title == "Memory step by step, before and after"
    values = found.drawn["layer"][0]["data"]["values"]
    first = {it["line"]: it["memory"] for it in values if it["step"] == 1}
    assert first == {
        "device, allocated, before": 6, "device, reserved, before": 8, "host, before": 3,
        "device, allocated, after": 5, "device, reserved, after": 7, "host, after": 4,
    }  # fmt: skip
    assert [row[0] for row in found.table.rows] == list(first)
    assert any("Dashed lines: the unmodified script." in it for it in found.notes)


def test_one_kind_of_memory_has_a_colour_for_each_side() -> None:
    found = memory_chart.chart(MemoryTimeline(host_bytes=(5, 5, 5)), MemoryTimeline(host_bytes=(4, 4, 4)))
    assert found is not None
    assert found.legend == (("host, before", "var(--as-it-is)"), ("host, after", "var(--kept)"))


KEPT = msgspec.structs.replace(fakes.FINISHED, trace_path="window.json.gz")


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (msgspec.structs.replace(KEPT, plan_not_profiled="The budget had 3 s left."), "The budget had 3 s left."),
        (msgspec.structs.replace(KEPT, plan_trace_path="after.json.gz"), "The trace with the plan is no longer stored"),
        (msgspec.structs.replace(KEPT, status="interrupted"), "The plan was not profiled: the search was interrupted"),
        (KEPT, "The plan was not profiled: this study was made by a version of hotlap that did not do so."),
        (msgspec.structs.replace(KEPT, plan=Plan()), ""),
        (fakes.FINISHED, ""),
    ],
)
def test_a_missing_timeline_has_a_reason(tmp_path: Path, study: Study, said: str) -> None:
    before, after = lanes_before_and_after(tmp_path)
    without = list(section._missing(Material(study=study, lanes=before)))
    assert [it.startswith(said) for it in without] == ([True] if said else [])
    assert not list(section._missing(Material(study=study, lanes=before, plan_lanes=after)))


def test_a_missing_trace_of_the_script_has_a_reason_too() -> None:
    found = page(Material(study=msgspec.structs.replace(KEPT, plan=Plan())))
    assert "The trace of the unmodified script is no longer stored, or cannot be read." in found


def test_no_path_of_the_home_directory_is_in_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a record has a path: of the script, of its lines, of traces, of files and in texts."""
    monkeypatch.setenv("HOME", "/home/ada")
    at_home = "/home/ada/elsewhere/secret.py"
    material = full_material(tmp_path)
    assert material.profile is not None and material.plan_profile is not None
    lines = material.profile.evidence.sampled
    moved = msgspec.structs.replace(
        lines,
        lines=tuple(
            msgspec.structs.replace(
                it, called=f"{at_home}: load", site=it.site and msgspec.structs.replace(it.site, file=at_home)
            )
            for it in lines.lines
        ),
    )
    profiles = [
        msgspec.structs.replace(it, evidence=msgspec.structs.replace(it.evidence, sampled=moved))
        for it in (material.profile, material.plan_profile)
    ]
    study = msgspec.structs.replace(
        material.study, plan_trace_path="/home/ada/traces/after.json.gz", warnings=(f"{at_home} is slow.",)
    )
    writer = TraceWriter()
    writer.step(0, 0, 990)
    writer.host("operator", f"stretch of {at_home}", 10, 300)
    lanes = lanes_of(read_trace(writer.write(tmp_path / "at-home.json")))
    made = page(
        dataclasses.replace(
            material,
            study=study,
            profile=profiles[0],
            plan_profile=profiles[1],
            plan_lanes=lanes,
            plan_path="/home/ada/plan.toml",
            command=f"hotlap tune {at_home}",
            patch=f"--- {at_home}",
            source_lines=(f"open('{at_home}')", "", ""),
        )
    )
    assert "~/elsewhere/secret.py" in made
    assert "/home/ada" not in made and "/home/" not in made.replace("~/", "")
