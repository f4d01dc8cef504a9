"""The lever that chooses the kernel of torch's attention, and that it really decides."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from hotlap.levers.kernels import attention_kernel
from hotlap.levers.support.situations import make_setting
from hotlap.records import Accelerator, Machine, ModelFacts, ScriptFacts, Situation, TopStatement

MATH = make_setting("attention-kernel", kernel="math")


def node() -> str:
    """What autograd recorded of an attention."""
    query = torch.randn(1, 2, 8, 16, requires_grad=True)
    output = scaled_dot_product_attention(query, query, query)
    output.sum().backward()
    return str(output.grad_fn)


def test_the_kernel_that_is_chosen_computes(driver: Any) -> None:
    assert "Flash" in node()
    driver.install(MATH)
    assert "Flash" not in node()
    assert attention_kernel.switch is not None


def test_switched_off_the_kernels_are_those_of_before(driver: Any) -> None:
    switch = attention_kernel.switch(driver.hooks, MATH)
    switch.on()
    assert "Flash" not in node()
    switch.off()
    assert "Flash" in node()


def test_a_kernel_that_the_script_disabled_stays_disabled(driver: Any) -> None:
    torch.backends.cuda.enable_flash_sdp(False)
    driver.install(make_setting("attention-kernel", kernel="flash"))
    assert not torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()


def seen(device: str = "cpu", **facts: Any) -> Situation:
    model = ModelFacts(**{"kind": "Bert", "parameters": 1, "attention": "sdpa", **facts})
    return Situation(facts=ScriptFacts(device=device, models=(model,)))


def test_it_is_tried_where_torchs_attention_is_used() -> None:
    assert attention_kernel.obstacle(seen()) is None
    assert attention_kernel.candidates(seen()) == (MATH,)


@pytest.mark.parametrize(
    ("capability", "first"), [("9.0", ["cudnn"]), ("10.0", ["cudnn"]), ("8.0", []), ("12.0", []), ("", [])]
)
def test_cudnn_is_tried_where_torch_prefers_it(capability: str, first: list[str]) -> None:
    """Elsewhere torch's order is flash, efficient, plain, cuDNN: the plain kernel would run under cuDNN's name."""
    assert kernels_tried(seen("cuda:0", dtype="bfloat16"), capability) == [*first, "flash", "efficient", "math"]


def kernels_tried(situation: Situation, capability: str) -> list[object]:
    device = Accelerator(kind="cuda", name="A GPU", memory_bytes=1, capability=capability)
    situation = msgspec.structs.replace(situation, machine=Machine(accelerators=(device,)))
    return [dict(it.values)["kernel"] for it in attention_kernel.candidates(situation)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_for_half_precision_are_not_tried_without_it(dtype: str) -> None:
    """The plain one would be measured under their names, as it was on an H200."""
    plain = seen("cuda:0", dtype=dtype)
    assert kernels_tried(plain, "9.0") == ["efficient", "math"]
    facts = msgspec.structs.replace(plain.facts, autocast_dtype="float16")
    under_autocast = msgspec.structs.replace(plain, facts=facts)
    assert kernels_tried(under_autocast, "9.0") == ["cudnn", "flash", "efficient", "math"]


@pytest.mark.parametrize(
    ("facts", "words"), [({"attention": "eager"}, "was seen"), ({"compiled": True}, "by the compiler")]
)
def test_it_is_not_tried_elsewhere(facts: Any, words: str) -> None:
    skipped = attention_kernel.obstacle(seen(**facts))
    assert skipped is not None and words in skipped.reason


def test_the_patch_disables_the_others() -> None:
    changes = attention_kernel.rewrite(ScriptFacts(), make_setting("attention-kernel", kernel="flash"))
    written = [it.code for it in changes if isinstance(it, TopStatement)]
    assert written == [
        "torch.backends.cuda.enable_mem_efficient_sdp(False)",
        "torch.backends.cuda.enable_cudnn_sdp(False)",
    ]
