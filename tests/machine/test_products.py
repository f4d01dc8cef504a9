"""When a rate is reliable, and what a table of rates by size holds."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from hotlap.machine import ceilings
from hotlap.machine.ceilings import merged, products_until_sure
from hotlap.machine.products import Products, spread_of
from hotlap.records import Ceilings, SizedRate


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)


def measured(rate: float, *, spread: float = 0.0, conversion_seconds: float = 1e-6) -> Products:
    sized = SizedRate(key="cpu:bfloat16", side=64, flops_per_second=rate, conversion_seconds=conversion_seconds)
    return Products({"cpu:float32": rate}, (sized,), spread, threads=2)


def until_sure(*tests: tuple[Products, float], device: str = "cpu") -> tuple[float, str, int]:
    """The rate, the doubt, and how many tests were left over."""
    left: Iterator[tuple[Products, float]] = iter(tests)
    products, doubt = products_until_sure(device, lambda: next(left))
    return products.best["cpu:float32"], doubt, len(list(left))


def test_one_test_that_nothing_disturbed_is_enough() -> None:
    assert until_sure((measured(2e11), 0.1), (measured(9e11), 0.0)) == (2e11, "", 1)


def test_a_test_that_others_disturbed_is_repeated_until_the_machine_is_calm() -> None:
    assert until_sure((measured(1.47e10), 1.6), (measured(1.8e11), 0.1), (measured(9e11), 0.0)) == (1.8e11, "", 1)


def test_two_tests_that_agree_are_believed_whatever_else_ran() -> None:
    assert until_sure((measured(1.0e11), 1.6), (measured(1.85e11), 1.6), (measured(2e11), 1.6)) == (2e11, "", 0)


def with_sizes(**rates: float) -> Products:
    sized = [SizedRate(key="cpu:float32", side=int(side[1:]), flops_per_second=rate) for side, rate in rates.items()]
    return Products({"cpu:float32": max(rates.values())}, tuple(sized), 0.0, threads=1)


def test_large_products_far_slower_than_small_ones_are_in_doubt() -> None:
    """Small ones fit between other programs' turns, so the best of all does not show the disturbance."""
    disturbed = with_sizes(s256=1.5e11, s1024=1.6e10)
    _, doubt, left = until_sure((disturbed, 0.1), (with_sizes(s256=1.5e11, s1024=9e10), 0.1), (disturbed, 0.1))
    assert (doubt, left) == ("", 1)
    others = (with_sizes(s256=1.5e11, s1024=3e10), 0.1), (with_sizes(s256=1.5e11, s1024=6e10), 0.1)
    _, doubt, left = until_sure((disturbed, 0.1), *others)
    assert left == 0
    assert doubt == "Products of 1024 x 1024 matrices reached 40 % of the rate of 256 x 256."


def test_tests_agree_in_every_size_or_not_at_all() -> None:
    one, other = with_sizes(s256=1.5e11, s1024=9e10), with_sizes(s256=1.5e11, s1024=1.2e11)
    assert until_sure((one, 1.9), (other, 1.9), (other, 1.9))[1:] == ("", 0)
    assert until_sure((one, 1.9), (one, 1.9), (one, 1.9))[1:] == ("", 1)


def test_what_remains_in_doubt_says_so() -> None:
    rate, doubt, left = until_sure((measured(1.47e10), 1.6), (measured(1e11), 1.7), (measured(4e10), 1.8))
    assert (rate, left) == (1e11, 0)
    assert doubt == "Other programs kept 1.8 of 2 cores busy while these rates were measured."


def test_rates_that_vary_within_a_test_are_in_doubt_on_any_device() -> None:
    tests = [(measured(rate, spread=0.6), 1.9) for rate in (1e12, 2e12, 4e12)]
    rate, doubt, _ = until_sure(*tests, device="cuda")
    assert rate == 4e12
    assert doubt == "These rates varied by 60 % within their test."


def test_each_size_keeps_its_own_best() -> None:
    found, _ = products_until_sure(
        "cpu",
        iter([(measured(1e10, conversion_seconds=2e-6), 1.6), (measured(9e9, conversion_seconds=1e-6), 0.0)]).__next__,
    )
    (sized,) = found.by_size
    assert (sized.flops_per_second, sized.conversion_seconds) == (1e10, 1e-6)


@pytest.mark.parametrize(
    ("rounds", "spread"), [((), 0.0), ((1.0, 2.0, 1.0), 0.0), ((1.0, 2.0, 2.0, 1.0), 0.0), ((1.0, 1.0, 4.0, 1.0), 0.75)]
)
def test_the_spread_is_how_far_the_halves_differ(rounds: tuple[float, ...], spread: float) -> None:
    assert spread_of(rounds) == spread


def test_tables_of_two_devices_are_one() -> None:
    small = SizedRate(key="cuda:float32", side=16, flops_per_second=1.0)
    large = SizedRate(key="cuda:float32", side=128, flops_per_second=2.0)
    smaller = SizedRate(key="cpu:float32", side=16, flops_per_second=3.0)
    both = merged(
        Ceilings(matmul_by_size=(small, large), doubts=(("cuda", "So."),)), Ceilings(matmul_by_size=(smaller,))
    )
    assert both == Ceilings(matmul_by_size=(smaller, small, large), doubts=(("cuda", "So."),))


def test_small_products_are_measured_too() -> None:
    found = ceilings.measure("cpu", 0.2)
    by_format: dict[str, list[SizedRate]] = {}
    for it in found.matmul_by_size:
        by_format.setdefault(it.key, []).append(it)
    assert {"cpu:float32", "cpu:bfloat16"} <= set(by_format)
    for rates in by_format.values():
        sides = [it.side for it in rates]
        assert sides == sorted(sides) and sides[0] == 16
        assert max(it.flops_per_second for it in rates) == dict(found.matmul_flops_per_second)[rates[0].key]
    assert all(it.conversion_seconds > 0 for it in by_format["cpu:bfloat16"])
    assert all(it.conversion_seconds == 0 for it in by_format["cpu:float32"])
