"""Costs and energy in sentences."""

from __future__ import annotations

import fakes
import msgspec
import pytest

from hotlap.measure.cost import costs
from hotlap.records import EnergyComparison, EnergySource, Estimate, PhaseAccount, Price, Study
from hotlap.render.cost import UNKNOWN_ENERGY, cost_lines, energy_line, joules, money, number

TWICE = Estimate(value=2.0, low=1.6, high=2.5, unit="x")
EXTRA = Estimate(value=30.0, low=20.0, high=40.0, unit="s")


def study(extra: Estimate | None = EXTRA, *, claims: bool = True) -> Study:
    """Make a study of steps of 0.2 s with 20 samples, a plan of 2x, and 100 s of tuning."""
    verification = fakes.FINISHED.verification
    assert verification is not None
    verdict = "faster" if claims else "inconclusive"
    speed = msgspec.structs.replace(verification.speed, speedup=TWICE, verdict=verdict)
    comparison = msgspec.structs.replace(verification, speed=speed, extra_startup_seconds=extra)
    account = PhaseAccount(wall=0.2, samples_per_step=20)
    return msgspec.structs.replace(fakes.FINISHED, account_before=account, verification=comparison, spent_seconds=100.0)


def lines(of: Study, price: Price | None = None, samples: int | None = None) -> tuple[str, ...]:
    found = costs(of, price=price, samples=samples)
    assert found is not None
    return cost_lines(found)


def test_with_a_price_and_a_run_length_all_costs_are_shown() -> None:
    assert lines(study(), Price(per_hour=3.6, currency="EUR"), 1_281_167) == (
        "A million samples cost 10.00 EUR before and 5.00 EUR (95 % interval 4.00 EUR to 6.25 EUR) after, "
        "at 3.60 EUR an hour and in training steps alone; before is the mean of one launch.",
        "A run of 1.28 million samples takes 3 h 33 min and costs 12.81 EUR before; 1 h 47 min and 6.44 EUR "
        "(95 % interval 5.14 EUR to 8.05 EUR) after, in training steps alone.",
        "Starting takes 30.0 s (95 % interval 20.0 s to 40.0 s) longer with the plan, earned back after 300 "
        "(95 % interval 167 to 534) steps of the unmodified script, which are 6,000 samples.",
        "This study took 1 min 40 s (0.100 EUR), earned back after 1,000 (95 % interval 834 to 1,330) steps of "
        "the unmodified script, which are 20,000 samples.",
    )


def test_without_a_price_only_time_is_mentioned() -> None:
    said = " ".join(lines(study(), samples=1_281_167))
    assert "cost" not in said and "million samples takes 3 h 33 min before" in said
    assert lines(study(None))[0].startswith("This study took 1 min 40 s, earned back")


def test_a_start_up_within_noise_is_not_called_longer() -> None:
    said = lines(study(Estimate(value=0.1, low=-0.5, high=0.4, unit="s")))
    assert said[0] == "Starting was not measurably slower with the plan, 400 ms more at most (95 % interval)."


def test_without_a_gain_only_the_current_cost_is_shown() -> None:
    assert lines(study(claims=False), Price(per_hour=3.6), 1000) == (
        "A million samples cost 10.00, at 3.60 an hour and in training steps alone, by the mean of one launch.",
        "A run of 1,000 samples takes 10.0 s and costs 0.0100, in training steps alone.",
    )


def test_figures_over_replicates_are_not_of_a_single_launch() -> None:
    level = Estimate(value=0.01, low=0.009, high=0.011, unit="s")
    before = study()
    assert before.verification is not None
    comparison = msgspec.structs.replace(before.verification, baseline_seconds_per_sample=level)
    said = lines(msgspec.structs.replace(before, verification=comparison), Price(per_hour=3.6))
    assert said[0].endswith("in training steps alone.")


def test_control_characters_in_a_currency_are_removed() -> None:
    assert money(2.0, "\x1b[31mEUR\n") == "2.00 EUR"


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "0"), (0.00342, "0.00342"), (0.342, "0.342"), (12.3, "12.30"), (999.4, "999.40"), (1234.5, "1,234")],
)
def test_money(amount: float, shown: str) -> None:
    assert money(amount, "") == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (0.2, "1"), (266.1, "267"), (12_345, "12,300"), (999_999, "1.00 million"), (1.28e9, "1.28 billion")],
)
def test_numbers(count: float, shown: str) -> None:
    assert number(count) == shown


@pytest.mark.parametrize(
    ("amount", "shown"), [(0.0, "0 uJ"), (2e-5, "20.0 uJ"), (0.0183, "18.3 mJ"), (0.0, "0 uJ"), (1200, "1.20 kJ")]
)
def test_joules(amount: float, shown: str) -> None:
    assert joules(amount) == shown


@pytest.mark.parametrize(
    ("source", "said"),
    [("device-counter", "whole device"), ("device-power", "power samples"), ("processor-counter", "machine-wide")],
)
def test_energy_states_what_its_counter_covers(source: EnergySource, said: str) -> None:
    energy = EnergyComparison(
        source=source,
        baseline_joules_per_sample=Estimate(value=0.92, low=0.9, high=0.94, unit="J"),
        candidate_joules_per_sample=Estimate(value=0.46, low=0.45, high=0.47, unit="J"),
        ratio=Estimate(value=0.5, low=0.49, high=0.51),
        replicates=5,
        confidence=0.95,
    )
    shown = energy_line(energy)
    assert shown.startswith(
        "A sample takes 920 mJ before and 460 mJ after, which is 50 % of that (95 % interval 49 % to 51 %), by "
    )
    assert said in shown


def test_unknown_energy_is_not_shown() -> None:
    assert energy_line(None) == UNKNOWN_ENERGY


def test_guessed_samples_have_no_price() -> None:
    guessed = study()
    assert guessed.account_before is not None
    account = msgspec.structs.replace(guessed.account_before, samples_from="inputs")
    said = lines(msgspec.structs.replace(guessed, account_before=account), Price(per_hour=3.6, currency="EUR"), 1000)
    assert said[0] == "What a sample or a whole run costs is unknown: the samples of a step are a guess."
    assert not any("illion" in it or "run of" in it for it in said)
    assert any("earned back after" in it and "steps of the unmodified script" in it for it in said)
    assert not any("samples" in it for it in said[1:])
