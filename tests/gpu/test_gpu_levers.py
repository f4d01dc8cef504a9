"""Levers on a real device: each really takes effect, and losses stay identical or within rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hotlap.levers.support.situations import make_setting
from hotlap.records import Setting

pytestmark = pytest.mark.gpu

BFLOAT16 = make_setting("mixed-precision", dtype="bfloat16")
FLOAT16 = make_setting("mixed-precision", dtype="float16")
TF32 = make_setting("matmul-precision", precision="high")
FUSED = make_setting("fused-optimizer", implementation="fused")
CHANNELS_LAST = make_setting("channels-last")
BENCHMARK = make_setting("cudnn-benchmark")
COMPILED = make_setting("compile", mode="default")
GRAPHED = make_setting("compile", mode="reduce-overhead")
LOADER = make_setting("loader", num_workers=2, pin_memory=True, persistent_workers=True, prefetch_factor=2)
AHEAD = make_setting("device-prefetch")


@pytest.mark.parametrize(
    ("setting", "model"),
    [
        (BFLOAT16, "mlp"),
        (FLOAT16, "mlp"),
        (BFLOAT16, "conv"),
        (FLOAT16, "conv"),
        (TF32, "mlp"),
        (FUSED, "mlp"),
        (CHANNELS_LAST, "conv"),
        (BENCHMARK, "conv"),
        (COMPILED, "mlp"),
        (COMPILED, "conv"),
        (GRAPHED, "mlp"),
        (LOADER, "mlp"),
        (AHEAD, "mlp"),
    ],
    ids=lambda it: it if isinstance(it, str) else "-".join([it.lever, *(str(value) for _, value in it.values)]),
)
def test_training_still_computes_the_same(lab, setting: Setting, model: str) -> None:
    found = lab.prove(setting, model)
    assert found.verdict in ("exact", "within"), found.text


@pytest.mark.parametrize("setting", [LOADER, AHEAD], ids=["loader", "device-prefetch"])
@pytest.mark.parametrize("flags", [(), ("--pinned",)], ids=["pageable", "pinned"])
def test_what_only_moves_data_changes_no_loss(lab, setting: Setting, flags: tuple[str, ...]) -> None:
    """Two epochs, to include the end of one."""
    plain = lab.launch(*flags, steps=140)
    assert list(lab.launch(*flags, settings=(setting,), steps=140).steps.loss) == pytest.approx(
        list(plain.steps.loss), rel=1e-6
    )


@pytest.mark.parametrize(
    ("setting", "is_on"),
    [
        (BFLOAT16, lambda seen: seen["output"] == "torch.bfloat16"),
        (FLOAT16, lambda seen: seen["output"] == "torch.float16"),
        (TF32, lambda seen: seen["precision"] == "high"),
        (FUSED, lambda seen: seen["fused"]),
        (CHANNELS_LAST, lambda seen: seen["channels_last"]),
    ],
    ids=["bfloat16", "float16", "tf32", "fused", "channels-last"],
)
def test_a_lever_is_off_without_and_on_with_it(
    lab, told, setting: Setting, is_on: Callable[[dict[str, Any]], bool]
) -> None:
    model = ("--model", "conv")
    assert not is_on(told(lab.launch(*model)))
    run = lab.launch(*model, settings=(setting,))
    assert is_on(told(run))
    assert run.notes == ()


def test_copies_go_on_behind_the_kernels_with_device_prefetch(lab) -> None:
    """The device is busy: copying ahead leaves no copy on its main stream."""
    run = lab.launch("--busy", "0.01", settings=(AHEAD,), steps=60)
    ahead = sorted(run.steps.seconds_in("host_to_device")[10:])[25]
    assert ahead < 1e-3


def test_levers_work_together(lab, told) -> None:
    everything = (LOADER, AHEAD, BFLOAT16, TF32, FUSED, CHANNELS_LAST, BENCHMARK, COMPILED)
    run = lab.launch("--model", "conv", settings=everything, steps=100)
    seen = told(run)
    assert (seen["output"], seen["precision"], seen["fused"]) == ("torch.bfloat16", "high", True)
    assert run.compile.graphs > 0
    assert None not in run.steps.loss
    plain = lab.launch("--model", "conv", steps=100)
    assert run.steps.loss[-1] == pytest.approx(plain.steps.loss[-1], rel=0.05)
