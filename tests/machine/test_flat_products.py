"""Products with a short side, measured for real and briefly."""

from __future__ import annotations

import pytest
import torch

from hotlap.machine import processor
from hotlap.machine.flat_products import measure_flat_products
from hotlap.machine.products import DeviceClock


def test_each_form_is_measured_in_each_format() -> None:
    """In those of this processor, as it is called, and in one that all have; to emulate another takes minutes."""
    formats = [*processor.claimed_dtypes(processor.flags()), "float64"]
    rates = measure_flat_products("cpu", formats, DeviceClock(lambda: None), 60.0)
    forms = {(it.short, it.short_side, it.side) for it in rates}
    assert forms == {(short, few, side) for short in ("rows", "common") for few in (8, 32, 128) for side in (512, 2048)}
    assert len(rates) == len(formats) * len(forms) >= 2 * len(forms)
    assert {it.key for it in rates} == {f"cpu:{it}" for it in formats}
    assert all(it.flops_per_second > 0 for it in rates)
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_does_not_fit_into_the_limit_is_left_out() -> None:
    assert measure_flat_products("cpu", ["float32"], DeviceClock(lambda: None), -1.0) == ()


def test_a_format_that_torch_cannot_multiply_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = torch.mm

    def refuses(left: torch.Tensor, right: torch.Tensor, **options: object) -> torch.Tensor:
        if left.dtype == torch.bfloat16:
            raise RuntimeError('"addmm_impl_cpu_" not implemented for BFloat16')
        return multiply(left, right, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "mm", refuses)
    rates = measure_flat_products("cpu", ["float32", "bfloat16"], DeviceClock(lambda: None), 60.0)
    assert {it.key for it in rates} == {"cpu:float32"}
