"""The benchmark of recommended forms: what counts as missed, what is measured again, and that its targets are found."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from bench.infer.__main__ import options_for, prepare, text_of
from bench.infer.case import MOST_TIMED, Case, against_chosen, far_behind, is_beyond_chance, is_open, nearest, renamed
from bench.infer.engines import ENGINES
from bench.infer.records import ByHand, Likeness, OnOthers, Row, Searched, Turns
from bench.pieces import TimeIsUp

from hotlap.experiment.options import Options, check
from hotlap.levers.api import inference_levers
from hotlap.measure import speed
from hotlap.records import (
    Crashed,
    Estimate,
    OutputQuality,
    Plan,
    Replicate,
    Run,
    Setting,
    SpeedComparison,
    Stopped,
    TaskQuality,
)

PLAN = Plan(settings=(Setting(lever="compile", values=(("mode", "default"),)),))


def by_hand(engine: str, gain: float, *, admissible: bool = True) -> ByHand:
    against = Estimate(value=gain, low=gain - 0.01, high=gain + 0.01)
    return ByHand(engine=engine, quality=0.999, admissible=admissible, against_chosen=against)


def row(*engines: ByHand, others: OnOthers | None = None) -> Row:
    speedup = Estimate(value=3.0, low=2.9, high=3.1)
    return Row(
        model="cnn",
        batch=1,
        chosen="compile",
        status="finished",
        spent_seconds=300.0,
        speedup=speedup,
        quality=1.0,
        others=others,
        engines=engines,
    )


@pytest.mark.parametrize(
    ("engines", "best", "missed"),
    [
        ((by_hand("eager", 0.4), by_hand("openvino", 0.98)), "openvino", 0.0),
        ((by_hand("openvino", 1.1), by_hand("onnx_int8", 1.5, admissible=False)), "openvino", 0.1),
        ((ByHand(engine="compiled", obstacle="it crashed"),), None, 0.0),
    ],
)
def test_only_admissible_engines_count(engines: tuple[ByHand, ...], best: str | None, missed: float) -> None:
    found = row(*engines)
    assert (found.best.engine if found.best is not None else None) == best
    assert found.missed == pytest.approx(missed)


def test_the_table_says_how_many_were_missed() -> None:
    false = OnOthers(quality=0.9, below=True, beyond_chance=True, text="cosine 0.9")
    unlucky = OnOthers(quality=0.985, below=True)
    rows = [row(by_hand("openvino", 1.1), others=false), row(by_hand("openvino", 0.9), others=unlucky)]
    text = text_of(rows, ["bert 8"])
    assert "by more than 3 %: 1 of 2 (1 with the whole interval)" in text
    assert "on other inputs: 2 (1 beyond chance)" in text and "without a recommendation: 0." in text
    assert "10.0 %" in text and "Not measured yet: bert 8." in text and "On other inputs: cosine 0.9" in text


def test_outputs_of_engines_get_the_names_of_the_model() -> None:
    reference = {"0/output['logits']": np.zeros(2), "1/output['logits']": np.zeros(2), "weights": np.zeros((1, 2))}
    found = renamed({"0/output[0]": np.ones(2), "1/output[0]": np.full(2, 2.0)}, reference)
    assert sorted(found) == ["0/output['logits']", "1/output['logits']"]
    assert found["1/output['logits']"][0] == 2.0


def test_only_engines_near_the_fastest_are_timed() -> None:
    def likeness(engine: str, seconds: float, *, admissible: bool = True) -> Likeness:
        return Likeness(engine=engine, admissible=admissible, call_seconds=seconds)

    found = nearest(
        [
            likeness("eager", 3.0),
            likeness("openvino", 1.0),
            likeness("compiled", 1.4),
            likeness("onnx_int8", 0.5, admissible=False),
            Likeness(engine="aot_inductor", obstacle="it crashed"),
        ]
    )
    assert found == ["openvino", "compiled"]
    assert len(nearest([likeness(str(it), 1.0) for it in range(5)])) == MOST_TIMED
    assert nearest([Likeness(engine="eager", obstacle="it crashed")]) == []


def turns(seconds: Sequence[float], engines: tuple[str, ...], *, crashed: int | None = None) -> Turns:
    """A replicate of three rounds in which each arm takes ``seconds``; an arm that crashed leaves none."""
    endings = [Crashed(exit_code=1, error="broken") if arm == crashed else Stopped() for arm in range(len(seconds))]
    runs = tuple(Run(ending=it) for it in endings)
    rounds = tuple((it, it * 1.001, it * 0.999) if crashed is None else () for it in seconds)
    return Turns(engines=engines, replicate=Replicate(runs=runs, rounds=rounds))


def test_an_engine_is_compared_over_the_replicates_it_went_through() -> None:
    both = ("openvino", "compiled")
    taken = [
        turns((1.0, 1.01, 0.5, 2.0), both),
        turns((1.0, 1.0, 0.0, 0.0), both, crashed=3),
        turns((1.0, 1 / 1.01, 0.5), ("openvino",)),
    ]
    found = against_chosen(taken, "openvino")
    assert found is not None and found.speedup.value == pytest.approx(2.0) and found.replicates == 2
    assert found.baseline_speedup is not None and found.baseline_speedup.value == pytest.approx(1.0, abs=0.01)
    assert against_chosen(taken, "compiled") is None, "a single replicate has no interval"


def test_below_the_level_by_chance_is_not_beyond_it() -> None:
    def quality(*, cosine: float = 1.0, high: float = 1.0) -> TaskQuality:
        agreement = Estimate(value=0.98, low=0.95, high=high)
        output = OutputQuality(name="output", cosine=cosine, agreement=agreement, decisions=100)
        return TaskQuality(verdict="lost", proof="rounding", level=0.99, inputs=10, outputs=(output,))

    assert not is_beyond_chance(quality())
    assert is_beyond_chance(quality(high=0.985)) and is_beyond_chance(quality(cosine=0.9))


def test_what_is_finished_is_not_measured_again(tmp_path: Path, measured: list[str]) -> None:
    options = Options(budget_seconds=300)

    def row_of(batch: int, engines: Sequence[str]) -> Row:
        return Case(tmp_path, "cnn", batch, 2, tmp_path / "pieces").row(options, engines)

    measured.append("kill after 3")
    with pytest.raises(KeyboardInterrupt):
        row_of(1, ["eager", "openvino"])
    found = row_of(1, ["eager", "openvino"])
    assert measured[1:] == ["search", "others", "eager openvino", "turns 0 openvino", "turns 1 openvino"]
    assert (found.chosen, found.quality) == ("compile (mode default)", 1.0)
    assert found.best is not None and found.best.engine == "openvino" and found.missed == pytest.approx(1.0)
    assert found.engines[0].against_chosen is None and found.engines[0].call_seconds == 4.0
    measured.clear()
    row_of(1, ["eager", "openvino"])
    assert not measured
    assert row_of(8, []).batch == 8 and measured == ["search", "others"]


def test_what_is_far_behind_for_single_samples_is_not_tried_for_more(tmp_path: Path, measured: list[str]) -> None:
    def case(batch: int) -> Case:
        return Case(tmp_path, "cnn", batch, 2, tmp_path / "pieces")

    engines = ["eager", "autocast", "openvino"]
    single = case(1).row(Options(), engines)
    found = case(8).row(Options(), engines, single)
    assert "autocast openvino" in measured
    (left_out,) = (it for it in found.engines if it.obstacle)
    assert left_out.engine == "eager" and "4.0 times as long" in left_out.obstacle and not left_out.admissible
    assert not far_behind(row()), "nothing is known"


def test_replicates_are_added_where_they_leave_open_whether_too_much_is_missed() -> None:
    def compared(value: float, low: float) -> SpeedComparison:
        seconds = [1.0, 1.0, 1.0]
        found = speed.compare([seconds] * 2, [seconds] * 2, [seconds] * 2)
        return msgspec.structs.replace(found, speedup=Estimate(value=value, low=low, high=2 * value - low))

    assert is_open([None, compared(1.05, 0.99)])
    assert not is_open([compared(1.05, 1.04)]) and not is_open([compared(1.01, 0.9)]) and not is_open([None])


def test_nothing_begins_when_the_time_is_over(tmp_path: Path, measured: list[str]) -> None:
    with pytest.raises(TimeIsUp):
        Case(tmp_path, "cnn", 1, 2, tmp_path / "pieces", time.monotonic() - 1).row(Options(), ["eager"])
    assert not measured


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was measured, in order. The call after a first entry ``kill after N`` and N others is interrupted."""
    found: list[str] = []

    def note(what: str) -> None:
        if found and found[0].startswith("kill") and len(found) == 1 + int(found[0].rpartition(" ")[2]):
            found[0] = "was killed"
            raise KeyboardInterrupt
        found.append(what)

    def search(self: Case, options: Options) -> Searched:
        note("search")
        return Searched(plan=PLAN, level=0.99, inputs=16, speedup=Estimate(value=2.0, low=1.9, high=2.1), quality=1.0)

    def others(self: Case, found: Searched) -> OnOthers:
        note("others")
        return OnOthers(quality=1.0)

    def likeness_of(self: Case, engines: Sequence[str], found: Searched) -> list[Likeness]:
        note(" ".join(engines))
        slow = {"eager": 4.0, "autocast": 2.0}
        return [Likeness(engine=it, admissible=True, call_seconds=slow.get(it, 1.0)) for it in engines]

    def take(self: Case, plan: Plan, engines: Sequence[str], number: int) -> Turns:
        note(f"turns {number} {','.join(engines)}")
        differs = 1.0 + number / 100
        return turns((1 / differs, differs, *(0.5 for _ in engines)), tuple(engines))

    for name, stand_in in (("searched", search), ("on_others", others), ("likeness_of", likeness_of), ("turns", take)):
        monkeypatch.setattr(Case, f"_{name}", stand_in)
    return found


def test_slow_calls_get_more_time() -> None:
    assert [options_for("cnn", it, None).budget_seconds for it in (1, 8)] == [270, 270]
    assert [options_for("bert", it, None).budget_seconds for it in (1, 8)] == [360, 450]
    chosen = options_for("bert", 1, 300.0, ["openvino"])
    assert chosen.only == ("openvino",) and {"batched-calls", "cpu-threads"} <= set(chosen.skip)
    check(chosen, inference_levers())


@pytest.mark.slow
def test_targets_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    prepare(tmp_path, ["cnn"])
    monkeypatch.syspath_prepend(str(tmp_path))
    workloads = importlib.import_module("workloads")
    assert set(workloads.ENGINES) == {it for names in ENGINES.values() for it in names}
    inputs, others = workloads.cnn_8_inputs(), workloads.cnn_8_others()
    assert len(inputs) == len(others) == 32 and inputs[0].shape == (8, 1, 8, 8)
    assert not any(np.array_equal(a.numpy(), b.numpy()) for a in inputs for b in others)
    plain, eager = workloads.cnn_8(), workloads.cnn_8__eager()
    np.testing.assert_array_equal(eager(inputs[0])["logits"].numpy(), plain(inputs[0])["logits"].detach().numpy())
    with pytest.raises(AttributeError):
        workloads.cnn_8__magic  # noqa: B018


@pytest.mark.slow
def test_a_real_case_ends_with_a_row(tmp_path: Path) -> None:
    """A search of one lever, and two engines by hand, in real launches."""
    pytest.importorskip("sklearn")
    user = prepare(tmp_path / "user", ["cnn"])
    case = Case(user, "cnn", 8, 2, tmp_path / "pieces")
    found = case.row(Options(budget_seconds=90, only=("inference-mode",), rounds=4), ["eager", "autocast"])
    assert found.status in ("finished", "out-of-budget", "quick-look")
    assert {it.engine: it.obstacle for it in found.engines} == {"eager": "", "autocast": ""}
    assert all(it.admissible and it.call_seconds for it in found.engines)
    timed = [it for it in found.engines if it.against_chosen is not None]
    assert timed and all(0.1 < it.against_chosen.value < 10 for it in timed if it.against_chosen is not None)
    assert list((tmp_path / "pieces" / "cnn-8" / "studies").iterdir())
