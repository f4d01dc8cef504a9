"""Fused attention: torch chooses among its kernels as on CUDA, and they compute what the plain one does."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ATTENTION = """
import json
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

def results(dtype, mask=None, **options):
    torch.manual_seed(0)
    given = [torch.randn(2, 4, 24, 16).cuda().to(dtype).requires_grad_() for _ in range(3)]
    out = attention(*given, mask, **options)
    (out.float() ** 2).sum().backward()
    return [out, *(it.grad for it in given)]

def kernel(dtype, mask=None, **options):
    with torch.profiler.profile() as profile:
        results(dtype, mask, **options)
    names = {it.name for it in profile.events()}
    return sorted(it for it in names if it.startswith("aten::_scaled_dot_product_"))

half, mask = torch.bfloat16, torch.randn(2, 4, 24, 24).cuda()
chosen = {"half": kernel(half), "float": kernel(torch.float32), "mask": kernel(half, mask.to(half)),
          "dropout": kernel(half, dropout_p=0.1)}
with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH], set_priority=True):
    chosen["cudnn"] = kernel(half)
differences = []
for given, options in ((None, {}), (None, {"is_causal": True}), (mask, {}), (mask, {"scale": 0.5})):
    fused = results(torch.float32, given, **options)
    with sdpa_kernel(SDPBackend.MATH):
        plain = results(torch.float32, given, **options)
    differences.append(max((a - b).abs().max().item() for a, b in zip(fused, plain)))
print(json.dumps([chosen, differences]))
"""


@pytest.mark.parametrize(("kind", "of_half"), [("a100", "flash"), ("t4", "efficient")])
def test_torch_chooses_a_fused_kernel_and_it_computes_what_the_plain_one_does(
    kind: str, of_half: str, device: Any, run: Any
) -> None:
    """A T4 has neither FlashAttention nor cuDNN's; dropout has the plain kernel here."""
    chosen, differences = json.loads(run(device(kind), ATTENTION).splitlines()[-1])

    def both(name: str) -> list[str]:
        kernel = f"aten::_scaled_dot_product_{name}_attention"
        return [kernel, f"{kernel}_backward"]

    assert chosen["half"] == both(of_half) and chosen["float"] == chosen["mask"] == both("efficient")
    assert chosen["dropout"] == ["aten::_scaled_dot_product_attention_math"]
    assert chosen["cudnn"] == (both("cudnn") if kind == "a100" else ["aten::_scaled_dot_product_attention_math"])
    assert len(differences) == 4 and max(differences) < 1e-4
