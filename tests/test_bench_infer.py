"""The benchmark of recommended forms: what counts as missed, and that its targets are found by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.infer.__main__ import Bench, ByHand, Row, Searched, _renamed, prepare, text_of
from bench.infer.engines import NAMES

from hotlap.experiment.options import Options
from hotlap.records import Estimate, Plan, Setting


def by_hand(engine: str, gain: float, *, admissible: bool = True) -> ByHand:
    against = Estimate(value=gain, low=gain - 0.01, high=gain + 0.01)
    return ByHand(engine=engine, quality=0.999, admissible=admissible, against_chosen=against)


def row(*engines: ByHand) -> Row:
    speedup = Estimate(value=3.0, low=2.9, high=3.1)
    return Row(
        model="cnn", batch=1, chosen="compile", speedup=speedup, quality=1.0, claims_lost_quality=False, engines=engines
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
    text = text_of([row(by_hand("openvino", 1.1)), row(by_hand("openvino", 0.9))])
    assert "by more than 3 %: 1 of 2." in text and "below the level: 0." in text
    assert "10.0 %" in text


def test_outputs_of_engines_get_the_names_of_the_model() -> None:
    reference = {"0/output['logits']": np.zeros(2), "1/output['logits']": np.zeros(2), "weights": np.zeros((1, 2))}
    found = _renamed({"0/output[0]": np.ones(2), "1/output[0]": np.full(2, 2.0)}, reference)
    assert sorted(found) == ["0/output['logits']", "1/output['logits']"]
    assert found["1/output['logits']"][0] == 2.0


def test_what_is_finished_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, comparisons = [], []

    def search(self: Bench, options: Options) -> Searched:
        searches.append(options.budget_seconds)
        plan = Plan(settings=(Setting(lever="compile", values=(("mode", "default"),)),))
        return Searched(plan=plan, level=0.99, speedup=Estimate(value=2.0, low=1.9, high=2.1), quality=1.0)

    def compare(self: Bench, engine: str, plan: Plan, level: float) -> ByHand:
        comparisons.append((engine, plan.settings[0].lever, level))
        if engine == "openvino" and len(comparisons) == 2:
            raise KeyboardInterrupt
        return by_hand(engine, 0.9)

    monkeypatch.setattr(Bench, "_searched", search)
    monkeypatch.setattr(Bench, "_by_hand", compare)
    pieces, options = tmp_path / "pieces", Options(budget_seconds=300)
    with pytest.raises(KeyboardInterrupt):
        Bench(tmp_path, "cnn", 1, 3, pieces).row(options, ["eager", "openvino"])
    found = Bench(tmp_path, "cnn", 1, 3, pieces).row(options, ["eager", "openvino"])
    assert searches == [300] and [it[0] for it in comparisons] == ["eager", "openvino", "openvino"]
    assert (found.chosen, found.quality) == ("compile", 1.0) and [it.engine for it in found.engines] == [
        "eager",
        "openvino",
    ]
    assert Bench(tmp_path, "cnn", 8, 3, pieces).row(options, []).batch == 8 and len(searches) == 2


@pytest.mark.slow
def test_targets_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    pytest.importorskip("sklearn")
    prepare(tmp_path, ["cnn"])
    monkeypatch.syspath_prepend(str(tmp_path))
    workloads = importlib.import_module("workloads")
    assert set(workloads.ENGINES) == set(NAMES)
    inputs = workloads.cnn_8_inputs()
    assert len(inputs) == 16 and inputs[0].shape == (8, 1, 8, 8)
    plain, eager = workloads.cnn_8(), workloads.cnn_8__eager()
    np.testing.assert_array_equal(eager(inputs[0])["logits"].numpy(), plain(inputs[0])["logits"].detach().numpy())
    with pytest.raises(AttributeError):
        workloads.cnn_8__magic  # noqa: B018
