"""The measured saving of fused attention."""

from __future__ import annotations

import pytest
import torch

from hotlap.machine.attention import measure_attention
from hotlap.machine.products import DeviceClock


@pytest.fixture
def refusing_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an older torch does. A processor that has to emulate it takes long."""
    whole = torch.nn.functional.scaled_dot_product_attention

    def refuses(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if query.dtype == torch.bfloat16:
            raise RuntimeError('"attention" not implemented for BFloat16')
        return whole(query, key, value)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuses)


def test_each_size_has_both_times() -> None:
    rates = measure_attention("cpu", DeviceClock(lambda: None), 60.0)
    assert [(it.tokens, it.head_width) for it in rates if it.key == "cpu:float32"] == [
        (64, 16), (64, 64), (256, 16), (256, 64), (1024, 16), (1024, 64)
    ]  # fmt: skip
    assert all(it.eager_seconds > 0 and it.fused_seconds > 0 for it in rates)


def test_a_processor_is_measured_with_one_thread_and_with_many(refusing_bfloat16: None) -> None:
    """The number of threads is restored; a device has none to set."""
    torch.set_num_threads(1)
    rates = measure_attention("cpu", DeviceClock(lambda: None), 60.0, threads=2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    of_float32 = [it for it in rates if it.key == "cpu:float32"]
    assert [it.threads for it in of_float32] == [1, 2] * 6


def test_what_does_not_fit_into_the_limit_is_left_out() -> None:
    assert len(measure_attention("cpu", DeviceClock(lambda: None), 0.0)) <= 1


def test_a_format_that_torch_cannot_compute_is_left_out(refusing_bfloat16: None) -> None:
    assert {it.key for it in measure_attention("cpu", DeviceClock(lambda: None), 60.0)} == {"cpu:float32"}
