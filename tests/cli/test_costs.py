"""Energy and money on the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import fakes
import msgspec
import pytest
from json_documents import assert_valid

from hotlap.cli.costs import price, samples
from hotlap.cli.main import main
from hotlap.records import EnergyComparison, Estimate, LoaderFacts, Price, Run, ScriptFacts, Study
from hotlap.render.json import study_json


@pytest.fixture
def study(work: Path) -> Path:
    path = work / "study.json"
    path.write_text(study_json(fakes.FINISHED), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [("2.50", 2.5, ""), ("2.50EUR", 2.5, "EUR"), ("$2", 2.0, "$"), (" .5 credits ", 0.5, "credits"), ("3 €", 3.0, "€")],
)
def test_prices_are_parsed(text: str, amount: float, currency: str) -> None:
    assert price(text) == Price(per_hour=amount, currency=currency)


@pytest.mark.parametrize(
    "text", ["", "free", "0", "-1", "1e9999", "$2EUR", "2.50 per hour", "nan", "1,50", "2\x1b[31m"]
)
def test_invalid_prices_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a price"):
        price(text)


@pytest.mark.parametrize(
    ("text", "count"), [("1281167", 1281167), ("50k", 50_000), ("1.28M", 1_280_000), ("2B", 2 * 10**9), ("1_000", 1000)]
)
def test_sample_counts_are_parsed(text: str, count: int) -> None:
    assert samples(text) == count


@pytest.mark.parametrize("text", ["", "many", "0", "-5", "1G", "9" * 40, "0.0001"])
def test_invalid_sample_counts_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of samples"):
        samples(text)


def test_a_price_applies_when_a_report_is_shown(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--full", "--price", "2.50EUR", "--samples", "90M", str(study)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    # 212 ms for 32 samples, and 3.65 times as fast.
    assert "A million samples cost 4.60 EUR before and 1.26 EUR (95 % interval 1.24 EUR to 1.29 EUR) after" in out
    assert "A run of 90.0 million samples takes 165 h 37 min and costs 414.06 EUR before;" in out
    assert "This study took 10 min 12 s (0.425 EUR), earned back after" in out
    assert "Energy is not known" in out


def test_epochs_become_samples_if_the_loader_is_known(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = LoaderFacts(dataset="Digits", batch_size=32, length=100)
    for loaders, code in (((loader,), 0), ((loader, loader), 2), ((), 2)):
        run = Run(facts=ScriptFacts(loaders=loaders, processes=2))
        path = work / "study.json"
        path.write_text(study_json(msgspec.structs.replace(fakes.FINISHED, baseline=run)), encoding="utf-8")
        assert main(["report", "--epochs", "10", str(path)]) == code
        out, err = capsys.readouterr()
        assert ("A run of 64,000 samples takes" in " ".join(out.split())) is (code == 0)
        assert ("does not record the number of samples" in err) is (code == 2)
    assert main(["report", "--epochs", "10", "--samples", "5", str(path)]) == 2


def test_an_epochs_option_before_the_script_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--epochs", "1", "train.py"]) == 2
    assert "Options of the script go after it" in capsys.readouterr().err


def test_without_a_price_the_break_even_is_shown(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--full", str(study)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "This study took 10 min 12 s, earned back after" in out
    assert "million samples cost" not in out


def test_costs_are_in_the_json_which_still_reads_as_a_study(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--json", "--price", "2.50EUR", str(study)]) == 0
    out = capsys.readouterr().out
    assert_valid(json.loads(out))
    found = json.loads(out)["costs"]
    assert found["price"] == {"per_hour": 2.5, "currency": "EUR"}
    assert found["million_before"]["value"] == pytest.approx(0.2120 / 32 * 1e6 * 2.5 / 3600)
    assert msgspec.json.decode(out, type=Study).plan == fakes.FINISHED.plan


def test_energy_is_reported_with_its_interval(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    energy = EnergyComparison(
        source="device-counter",
        baseline_joules_per_sample=Estimate(value=9.2, low=9.0, high=9.4, unit="J"),
        candidate_joules_per_sample=Estimate(value=2.3, low=2.2, high=2.4, unit="J"),
        ratio=Estimate(value=0.25, low=0.24, high=0.26),
        replicates=5,
        confidence=0.95,
    )
    verification = msgspec.structs.replace(fakes.FINISHED.verification, energy=energy)  # type: ignore[type-var]
    path = work / "study.json"
    path.write_text(study_json(msgspec.structs.replace(fakes.FINISHED, verification=verification)), encoding="utf-8")
    assert main(["report", "--full", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "A sample takes 9.20 J before and 2.30 J after, which is 25 % of that (95 % interval 24 % to 26 %)" in out


def test_bad_prices_are_bad_usage(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--price", "cheap", str(study)]) == 2
    assert "'cheap' is not a price per hour" in capsys.readouterr().err
