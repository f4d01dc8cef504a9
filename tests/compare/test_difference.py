"""What is called slower, and what is not; where a change is; which findings and facts appeared and disappeared."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from building import breakdown, kernel, study

from hotlap.compare import Difference, Side, difference, side_of_study, side_of_traces
from hotlap.compare.records import DiffRow, Table
from hotlap.records import Accelerator, CallSite, Estimate, Finding
from hotlap.traces.records import Breakdown, KernelRow


def traces(*breakdowns: Breakdown, path: str = "a") -> Side:
    return side_of_traces(path, breakdowns)


def row(found: Difference, table: Table, name: str) -> DiffRow:
    (rows,) = [it.rows for it in found.tables if it.table == table]
    (one,) = [it for it in rows if it.name == name]
    return one


def cost(rule: str, share: float, *, margin: float = 0.0, line: int = 0) -> Finding:
    site = CallSite(role="step", file="train.py", line=line) if line else None
    estimate = Estimate(value=share, low=share - margin, high=share + margin, unit="of the step")
    return Finding(rule=rule, share=estimate, title=f"It costs {share}.", site=site)


# ---------------------------------------------------------------------------------------------
# The step
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after_ms", "verdict"), [(130, "slower"), (107, "slower"), (105, "no-clear-change"), (95, "no-clear-change"),
                              (90, "faster")]
)  # fmt: skip
def test_only_more_than_launches_differ_is_a_change(after_ms: float, verdict: str) -> None:
    found = difference(traces(breakdown([100] * 8)), traces(breakdown([after_ms] * 8)))
    assert found.verdict == verdict
    assert any("not evidence of a change" in it for it in found.warnings) is (verdict == "no-clear-change")


def test_steps_that_vary_widely_show_no_change() -> None:
    found = difference(traces(breakdown([50, 150, 60, 140])), traces(breakdown([70, 190, 80, 180])))
    assert found.verdict == "no-clear-change"
    assert found.warnings == ("The difference is within the variation between steps of each side.",)


def test_an_interval_that_excludes_no_change_is_not_called_chance() -> None:
    """Steps that surely became shorter, by something between -30 and -5 %."""
    found = difference(traces(breakdown([100, 110, 90, 104, 96])), traces(breakdown([82, 99, 72, 88, 74])))
    assert found.change is not None and -0.36 < found.change.low < found.change.high < -0.01
    assert found.verdict == "no-clear-change"
    (said,) = found.warnings
    assert said.startswith("The steps changed, but the interval overlaps with the 6 %")
    assert "chance" not in said


GEMMS = [kernel("gemm", 80, 300), kernel("add", 800, 100)]


@pytest.mark.parametrize(("after_ms", "verdict"), [(87, "no-clear-change"), (113, "no-clear-change"), (140, "slower")])
def test_the_same_kernels_as_often_are_the_same_configuration(after_ms: float, verdict: str) -> None:
    """Only the speed of the host differs: two runs of one configuration do that."""
    before = breakdown([100] * 8, compute_ms=400, causes={"launch_bound": 400}, kernels=GEMMS)
    after = breakdown([after_ms] * 8, compute_ms=400, causes={"launch_bound": after_ms * 8 - 400}, kernels=GEMMS)
    found = difference(traces(before), traces(after))
    assert found.verdict == verdict
    assert any("do the same work" in it for it in found.warnings)


def test_a_wait_that_grew_is_no_other_run_of_the_same_configuration() -> None:
    before = breakdown([100] * 8, compute_ms=400, causes={"launch_bound": 400}, kernels=GEMMS)
    after = breakdown([115] * 8, compute_ms=400, causes={"launch_bound": 400, "data_loader": 120}, kernels=GEMMS)
    assert difference(traces(before), traces(after)).verdict == "slower"


def test_other_kernels_are_another_configuration() -> None:
    before = breakdown([100] * 8, compute_ms=400, kernels=GEMMS)
    after = breakdown([87] * 8, compute_ms=300, kernels=[kernel("fused", 80, 300)])
    assert difference(traces(before), traces(after)).verdict == "faster"


def test_an_accelerator_is_not_compared_with_a_processor() -> None:
    bare = msgspec.structs.replace(breakdown([100] * 8), devices=())
    found = difference(traces(breakdown([100] * 8)), traces(bare))
    assert found.verdict == "not-comparable"
    assert found.warnings == ("Only one side used an accelerator, so the two step times cannot be compared.",)


@pytest.mark.parametrize("steps", [2, 3, 8])
def test_nothing_becomes_faster_by_more_than_all_of_it(steps: int) -> None:
    draw = random.Random(steps)
    before, after = ([draw.expovariate(1 / mean) for _ in range(steps)] for mean in (100, 10))
    change = difference(traces(breakdown(before)), traces(breakdown(after))).change
    assert change is not None and -1 < change.low <= change.value <= change.high


def test_a_single_step_shows_no_change() -> None:
    found = difference(traces(breakdown([100])), traces(breakdown([300])))
    assert (found.verdict, found.change) == ("no-clear-change", None)
    assert "fewer than two steps" in found.warnings[0]


@pytest.mark.parametrize("seed", range(10))
def test_a_run_does_not_differ_from_itself(seed: int) -> None:
    draw = random.Random(seed)
    before, after = ([draw.gauss(100, 10) for _ in range(30)] for _ in range(2))
    found = difference(traces(breakdown(before)), traces(breakdown(after)))
    assert found.verdict == "no-clear-change"
    assert all(it.share_of_change is None for table in found.tables for it in table.rows)


def test_other_machines_are_not_compared() -> None:
    found = difference(traces(breakdown([100] * 4)), traces(breakdown([200] * 4, name="Another GPU")))
    assert found.verdict == "not-comparable"
    assert "different machines" in found.warnings[0]
    assert [(it.name, it.before, it.after) for it in found.facts] == [("accelerators", "A GPU", "Another GPU")]


@pytest.mark.parametrize(("load", "verdict"), [(0.0, "slower"), (1.5, "slower"), (1.7, "not-comparable")])
def test_a_busy_machine_forbids_a_verdict(load: float, verdict: str) -> None:
    """Others may use a fifth of the eight cores; what they did during warm-up does not count."""
    before, after = side_of_study("a", study()), side_of_study("b", study((0.2,) * 40, other_load=load))
    found = difference(before, after)
    assert found.verdict == verdict
    said = any(it.startswith("While b was timed, other processes used 21 %") for it in found.warnings)
    assert said is (verdict == "not-comparable")


def test_traces_without_marks_are_compared_as_wholes() -> None:
    unmarked = breakdown([100, 100], compute_ms=50, marks_steps=False)
    found = difference(traces(unmarked), traces(unmarked))
    assert (found.per, found.verdict) == ("trace", "not-comparable")
    assert row(found, "device", "compute").before_seconds == pytest.approx(0.05)
    with pytest.raises(ValueError, match="marks steps"):
        difference(traces(unmarked), traces(breakdown([100, 100])))


def test_more_samples_a_step_are_counted_out() -> None:
    """Twice the samples in twice the time: nothing changed."""
    before, after = study(samples=32), study((0.2,) * 40, samples=64, data_wait=0.02)
    found = difference(side_of_study("a", before), side_of_study("b", after))
    assert found.verdict == "no-clear-change"
    assert found.step.after_seconds == pytest.approx(0.1)
    assert row(found, "phases", "data_wait").after_seconds == pytest.approx(0.01)
    assert "64 samples instead of 32" in found.warnings[0]


# ---------------------------------------------------------------------------------------------
# Its parts
# ---------------------------------------------------------------------------------------------


def test_the_parts_account_for_the_whole_change() -> None:
    before = breakdown([100] * 4, compute_ms=320, exposed_ms=20, copies_ms=8, causes={"queued": 52})
    after = breakdown([150] * 4, compute_ms=340, exposed_ms=60, copies_ms=8, causes={"data_loader": 192})
    found = difference(traces(before), traces(after))
    (device,) = [it for it in found.tables if it.table == "device"]
    assert sum(it.change_seconds for it in device.rows) == pytest.approx(found.step.change_seconds)
    assert sum(it.share_of_change or 0 for it in device.rows) == pytest.approx(1)
    assert [it.name for it in device.rows] == ["idle", "exposed_communication", "compute", "copies"]
    assert row(found, "idle", "data_loader").reason == "appeared"
    assert row(found, "idle", "queued").reason == "vanished"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([], [kernel("k", 4, 10)], "appeared"),
        ([kernel("k", 4, 10)], [], "vanished"),
        ([kernel("k", 4, 10)], [kernel("k", 8, 21)], "more-often"),
        ([kernel("k", 8, 20)], [kernel("k", 4, 10)], "less-often"),
        ([kernel("k", 4, 10)], [kernel("k", 4, 30)], "slower-each"),
        ([kernel("k", 4, 30)], [kernel("k", 4, 10)], "faster-each"),
        ([kernel("k", 4, 10)], [kernel("k", 4, 10)], ""),
    ],
)
def test_why_a_kernel_takes_longer(before: Sequence[KernelRow], after: Sequence[KernelRow], reason: str) -> None:
    found = difference(traces(breakdown([100] * 2, kernels=before)), traces(breakdown([130] * 2, kernels=after)))
    assert row(found, "kernels", "k").reason == reason


def test_what_a_cut_table_may_just_lack_is_not_called_new() -> None:
    """Before, only kernels of 2 ms and more are known: one of 3 ms may have been there, one of 50 ms surely was not."""
    cut = breakdown([100] * 2, kernels=[kernel("long", 2, 40), kernel("short", 2, 4)], distinct=200)
    after = breakdown(
        [150] * 2, kernels=[kernel("long", 2, 40), kernel("short", 2, 4), kernel("x", 2, 6), kernel("y", 2, 100)]
    )
    found = difference(traces(cut), traces(after))
    (table,) = [it for it in found.tables if it.table == "kernels"]
    assert {it.name for it in table.rows} == {"long", "short", "y"}
    assert row(found, "kernels", "y").reason == "appeared"


def test_rows_are_bounded_and_the_rest_is_counted() -> None:
    many = [kernel(f"k{index}", 2, 1 + index / 1000) for index in range(500)]
    found = difference(traces(breakdown([900] * 2)), traces(breakdown([999] * 2, kernels=many)))
    (table,) = [it for it in found.tables if it.table == "kernels"]
    assert (len(table.rows), table.rows_left_out) == (200, 300)
    assert table.rows[0].name == "k499"


# ---------------------------------------------------------------------------------------------
# Studies
# ---------------------------------------------------------------------------------------------


def test_two_studies_are_compared_by_their_untouched_steps() -> None:
    before = side_of_study("a", study((0.1,) * 40), [breakdown([120] * 4, compute_ms=400)])
    after = side_of_study("b", study((0.15,) * 40, data_wait=0.05), [breakdown([180] * 4, compute_ms=400)])
    found = difference(before, after)
    assert found.verdict == "slower"
    assert found.step.before_seconds == pytest.approx(0.1)
    assert found.traced_step is not None and found.traced_step.before_seconds == pytest.approx(0.12)
    assert row(found, "phases", "data_wait").share_of_change == pytest.approx(1)
    assert row(found, "device", "idle").share_of_change == pytest.approx(1)


def test_a_trace_is_compared_with_a_study_by_profiled_steps() -> None:
    gpu = Accelerator(kind="cuda", name="A GPU", memory_bytes=1)
    known = side_of_study("a", study((0.1,) * 40, device=gpu), [breakdown([120, 121, 119, 120])])
    found = difference(known, traces(breakdown([121, 120, 120, 119])))
    assert found.verdict == "no-clear-change"
    assert found.step.before_seconds == pytest.approx(0.12), "the profiled step, not the unmodified one"


def test_a_trace_is_not_compared_with_a_study_that_has_none() -> None:
    found = difference(side_of_study("a", study()), traces(breakdown([300] * 4)))
    assert found.verdict == "not-comparable"
    assert "has no profiled steps" in found.warnings[0]
    assert found.tables == ()


def test_findings_that_came_went_and_changed() -> None:
    before = [cost("loader-bound", 0.1), cost("host-sync", 0.2, line=10), cost("host-sync", 0.05, line=20)]
    after = [cost("loader-bound", 0.4), cost("host-sync", 0.2, line=10), cost("recompiles", 0.3)]
    found = difference(side_of_study("a", study(findings=before)), side_of_study("b", study(findings=after)))
    assert [(it.rule, it.change) for it in found.findings] == [
        ("loader-bound", "costs-more"), ("host-sync", "vanished"), ("recompiles", "appeared"),
    ]  # fmt: skip
    gone = found.findings[1].before
    assert gone is not None and gone.site is not None and gone.site.line == 20


def test_a_finding_whose_line_moved_is_the_same() -> None:
    found = difference(
        side_of_study("a", study(findings=[cost("host-sync", 0.2, line=10)])),
        side_of_study("b", study(findings=[cost("host-sync", 0.21, line=14)])),
    )
    assert found.findings == ()


def test_costs_within_their_intervals_are_no_change() -> None:
    found = difference(
        side_of_study("a", study(findings=[cost("loader-bound", 0.2, margin=0.1)])),
        side_of_study("b", study(findings=[cost("loader-bound", 0.3, margin=0.05)])),
    )
    assert found.findings == ()


def test_findings_without_evidence_on_one_side_come_with_a_warning() -> None:
    found = difference(
        side_of_study("a", study(profiled_steps=0)), side_of_study("b", study(findings=[cost("host-sync", 0.2)]))
    )
    assert any(it.startswith("No evidence was collected for a") for it in found.warnings)


def test_facts_that_differ_are_reported_and_versions_warn() -> None:
    before = study(torch="2.12.0", command=("--epochs", "1"))
    after = study(torch="2.13.0", command=("--epochs", "2"), environment=(("OMP_NUM_THREADS", "4"),))
    found = difference(side_of_study("a", before), side_of_study("b", after))
    assert [(it.name, it.before, it.after) for it in found.facts] == [
        ("command", "train.py --epochs 1", "train.py --epochs 2"),
        ("torch", "2.12.0", "2.13.0"),
        ("OMP_NUM_THREADS", "", "4"),
    ]
    assert "Versions differ" in found.warnings[0]


def test_the_same_side_twice_differs_in_nothing() -> None:
    side = side_of_study("a", study(findings=[cost("loader-bound", 0.2)]), [breakdown([120] * 4, compute_ms=400)])
    found = difference(side, side)
    assert found.verdict == "no-clear-change"
    assert (found.findings, found.facts) == ((), ())
    assert all(it.change_seconds == 0 for table in found.tables for it in table.rows)


def test_a_difference_is_json_and_back() -> None:
    found = difference(
        side_of_study("a", study(findings=[cost("loader-bound", 0.2)]), [breakdown([120] * 4, compute_ms=400)]),
        side_of_study("b", study((0.2,) * 40)),
    )
    assert msgspec.json.decode(msgspec.json.encode(found), type=Difference) == found
