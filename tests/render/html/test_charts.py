"""The content of charts: figures, not pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import msgspec
import pytest
from materials import batch_rates, batch_search, full_material, loader_rates, losses, memory
from records_of_other_kinds import scale_prediction

from hotlap.evidence import MemoryTimeline
from hotlap.measure.parity.curves import loss_curves
from hotlap.records import Ceiling, Kept, NoGain, Outcome, Plan, Study
from hotlap.render.blocks import Table
from hotlap.render.html.charts import batch_search as batch_curve
from hotlap.render.html.charts import batch_sizes, ceilings, levers, loader, scaling, steps, timeline
from hotlap.render.html.charts import losses as loss_charts
from hotlap.render.html.charts import memory as memory_chart
from hotlap.render.material import Material
from hotlap.render.sections import batch_search as batch_section
from hotlap.traces.lanes import coarser


def bars(study: Study) -> dict[str, dict[str, Any]]:
    found = levers.chart(study)
    assert found is not None
    return {row["lever"]: row for row in found.drawn["data"]["values"]}


def test_phases_add_up_to_the_step() -> None:
    found = steps.chart(fakes.FINISHED)
    assert found is not None
    parts, totals = (it["data"]["values"] for it in found.drawn["layer"])
    for total in totals:
        phases = sum(it["time"] for it in parts if it["account"] == total["account"])
        assert phases == pytest.approx(total["time"], rel=0.01)


def test_each_kept_lever_starts_where_the_previous_one_ended() -> None:
    rows = bars(fakes.FINISHED)
    assert rows["loader"]["from"] == 100
    assert rows["loader"]["to"] == pytest.approx(100 / 1.91)
    assert rows["mixed-precision"]["from"] == rows["loader"]["to"]
    assert rows["compile"]["from"] == rows["mixed-precision"]["to"]
    assert rows["compile"]["to"] == pytest.approx(100 / 1.91 / 1.62 / 1.18)
    verified = rows["all together, verified"]
    assert (verified["from"], verified["to"]) == (0, pytest.approx(100 / 3.65))


def test_intervals_contain_their_estimates() -> None:
    for row in bars(fakes.FINISHED).values():
        if "fast" in row:
            assert row["fast"] < row["to"] < row["slow"]


def test_a_lever_after_a_dropped_one_starts_at_the_kept_ones() -> None:
    """Let the baseline of the second trial contain a lever that was dropped later."""
    both = (fakes.LOADER, fakes.FUSED)
    alone = fakes.comparison((fakes.LOADER,), fakes.speed(2.0))
    on_top = fakes.comparison((*both, fakes.MIXED), fakes.speed(1.5), baseline=both)
    outcomes = (
        Outcome(lever="loader", setting=fakes.LOADER, verdict=Kept(comparison=alone)),
        Outcome(lever="fused-optimizer", setting=fakes.FUSED, verdict=NoGain(reason="Dropped.")),
        Outcome(lever="mixed-precision", setting=fakes.MIXED, verdict=Kept(comparison=on_top)),
    )
    rows = bars(msgspec.structs.replace(fakes.FINISHED, outcomes=outcomes, plan=Plan()))
    assert rows["mixed-precision"]["from"] == pytest.approx(50)
    assert "fused-optimizer" not in rows


def test_levers_tried_together_are_stacked() -> None:
    """Compare each with the plan without it, which is not where another lever ended."""
    pair = (fakes.LOADER, fakes.MIXED)
    outcomes = tuple(
        Outcome(
            lever=mine.lever,
            setting=mine,
            verdict=Kept(comparison=fakes.comparison(pair, fakes.speed(gain), baseline=(other,))),
            together_with=(other.lever,),
        )
        for mine, other, gain in ((fakes.LOADER, fakes.MIXED, 2.0), (fakes.MIXED, fakes.LOADER, 1.25))
    )
    study = msgspec.structs.replace(fakes.FINISHED, outcomes=outcomes)
    rows = bars(study)
    assert (rows["loader"]["from"], rows["loader"]["to"]) == (100, pytest.approx(50))
    assert (rows["mixed-precision"]["from"], rows["mixed-precision"]["to"]) == (pytest.approx(50), pytest.approx(40))
    found = levers.chart(study)
    assert found is not None and "tried together" in found.notes[0]


def test_without_trials_there_is_no_waterfall() -> None:
    assert levers.chart(msgspec.structs.replace(fakes.PROFILED, outcomes=())) is None


def test_a_distant_ceiling_is_named_but_not_drawn() -> None:
    study = msgspec.structs.replace(
        fakes.FINISHED, ceilings=(*fakes.FINISHED.ceilings, Ceiling(name="matmul", seconds_per_sample=1e-6))
    )
    found = ceilings.chart(study)
    assert found is not None
    names = [row["name"] for row in found.drawn["data"]["values"]]
    assert names == ["unmodified script", "with the plan", "loader alone", "model alone"]
    assert "matmul (1,000,000)" in found.notes[-1]


def test_the_scripts_loader_is_marked_and_failures_are_listed() -> None:
    rates = loader_rates()
    own = Ceiling(name="loader-alone", seconds_per_sample=rates[2].seconds_per_sample)
    found = loader.chart(msgspec.structs.replace(fakes.FINISHED, loader_rates=rates, ceilings=(own,)))
    assert found is not None
    rows = found.drawn["layer"][0]["data"]["values"]
    assert [row["setting"] for row in rows if row["kind"] == "unmodified"] == ["num_workers 1"]
    assert [row["setting"] for row in rows][-1] == "num_workers 4, pin_memory"
    assert any("A worker was killed." in row for row in found.table.rows)
    assert found.notes == ("Where there are workers: persistent_workers, prefetch_factor 2.",)


def test_batch_sizes_are_drawn_and_failures_are_in_the_table() -> None:
    study = msgspec.structs.replace(fakes.FINISHED, batch_rates=batch_rates())
    found = batch_sizes.chart(study)
    assert found is not None
    rows = found.drawn["data"]["values"]
    assert [row["samples"] for row in rows] == [16, 32, 64]
    assert [row["kind"] for row in rows].index("unmodified") == 1
    assert all(row["low"] <= row["rate"] <= row["high"] for row in rows)
    assert any("out of memory" in row[-1] for row in found.table.rows) and len(found.table.rows) == 4
    alone = msgspec.structs.replace(study, batch_rates=batch_rates()[1:2])
    assert batch_sizes.chart(alone) is None and batch_sizes.chart(fakes.FINISHED) is None


def test_the_batch_search_shows_the_knee_and_the_memory_limit() -> None:
    search = msgspec.structs.replace(batch_search(), headroom=0.25, memory_bytes=2**35)
    drawn = batch_curve.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, batch_search=search)))
    throughput, memory_use = drawn
    rows = throughput.drawn["data"]["values"]
    assert [(it["size"], it["kind"]) for it in rows] == [(16, "another size"), (32, "unmodified"), (64, "the knee")]
    assert all(it["low"] <= it["rate"] <= it["high"] for it in rows)
    assert rows[2]["rate"] == pytest.approx(1.31 / 0.0034)
    assert any("out of memory" in row[-1] for row in throughput.table.rows) and "The knee is" in throughput.notes[0]
    assert [it["bytes"] for it in memory_use.drawn["data"]["values"]] == [4, 8, 16]
    limits = [it["encoding"]["y"]["datum"] for it in memory_use.drawn["layer"] if "datum" in it["encoding"]["y"]]
    assert limits == [24] and [row[2] for row in memory_use.table.rows] == ["17 %", "33 %", "67 %"]
    assert "24 GiB" in memory_use.notes[0] and "25 % free" in memory_use.notes[0]
    distant = msgspec.structs.replace(search, memory_bytes=2**37)
    _, flat = batch_curve.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, batch_search=distant)))
    assert not any("datum" in it["encoding"]["y"] for it in flat.drawn["layer"]), (
        "drawing the limit would flatten the curve"
    )
    assert "96 GiB may be used" in flat.notes[0]


def test_a_batch_search_of_one_size_has_no_chart() -> None:
    search = batch_search()
    alone = msgspec.structs.replace(search, rates=(search.rates[1], search.rates[3]))
    material = Material(study=msgspec.structs.replace(fakes.FINISHED, batch_search=alone))
    assert batch_curve.for_page(material) == ()
    shown = batch_section.page(material)
    assert shown is not None and any(isinstance(it, Table) and len(it.rows) == 2 for it in shown.body)


def test_identical_losses_have_no_difference_chart() -> None:
    curves = loss_curves(losses(), losses(), fakes.EXACT)
    found = loss_charts.charts(msgspec.structs.replace(fakes.FINISHED, losses=curves))
    assert [it.name for it in found] == ["losses"]
    assert found[0].notes[-1] == "Both are identical to the last bit, so the lines coincide."


def test_the_difference_is_in_percent_of_the_scale_of_the_limit() -> None:
    curves = loss_curves(losses(), losses(0.0004), fakes.WITHIN)
    found = loss_charts.charts(msgspec.structs.replace(fakes.FINISHED, losses=curves))
    difference = next(it for it in found if it.name == "difference")
    band, line = (it["data"]["values"] for it in difference.drawn["layer"])
    assert band == [{"low": -0.1, "high": 0.1}]
    assert 0 < max(abs(it["difference"]) for it in line) < 0.041


def test_small_changes_look_small() -> None:
    flat = MemoryTimeline(host_bytes=tuple(2**30 + it for it in range(10)))
    found = memory_chart.chart(flat)
    assert found is not None
    scale = found.drawn["layer"][0]["encoding"]["y"]["scale"]
    assert scale["domainMin"] == pytest.approx(0.8)


def test_memory_that_was_not_watched_is_not_drawn() -> None:
    assert memory_chart.chart(MemoryTimeline()) is None
    found = memory_chart.chart(memory())
    assert found is not None
    assert [row[0] for row in found.table.rows] == ["device, allocated", "device, reserved", "host"]


def test_a_timeline_draws_every_span_once(tmp_path: Path) -> None:
    lanes = full_material(tmp_path).lanes
    found = timeline.chart(lanes)
    assert lanes is not None and found is not None and found.still is not None
    spans = found.drawn["layer"][1]["data"]["values"]
    assert len(spans) == sum(len(it.spans) for it in lanes.lanes)
    assert {f"before|{row[0]}" for row in found.table.rows} == {it["row"] for it in spans}
    few = coarser(lanes, 10)
    assert sum(it.events for it in few.lanes) == sum(it.events for it in lanes.lanes)


def test_the_curve_has_a_line_for_each_strategy_and_marks_what_does_not_fit() -> None:
    study = msgspec.structs.replace(fakes.FINISHED, scale=scale_prediction())
    (found,) = scaling.for_page(Material(study=study))
    assert [name for name, _ in found.legend] == ["DDP", "FSDP2"]
    assert found.description == (
        "Lines of efficiency by number of ranks: DDP 97 % on 8 ranks, 94 % on 16; FSDP2 95 % on 8 ranks, 90 % on 16."
    )
    rows = found.drawn["data"]["values"]
    assert {(it["strategy"], it["fits"]) for it in rows} == {("DDP", False), ("FSDP2", True)}
    assert "A cross: the strategy needs more memory than a device has." in found.notes


def test_one_number_of_ranks_is_no_curve() -> None:
    found = scale_prediction()
    single = msgspec.structs.replace(found, points=tuple(it for it in found.points if it.ranks == 8))
    assert not scaling.for_page(Material(study=msgspec.structs.replace(fakes.FINISHED, scale=single)))
