"""Fused attention: torch chooses among its kernels as on CUDA, they compute what the plain one does, and the lever
chooses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated.environment import SimulatedDevice

from hotlap.levers.support.situations import make_setting
from hotlap.records import Assignment, LaunchRequest, Observe, Plan, Run, Setting, Stopped, Workload
from hotlap.trial.local import LocalExecutor

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


TRAINING = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
sizes = dict(n_layer=1, n_head=2, n_embd=32, vocab_size=50, n_positions=32)
config = GPT2Config(**sizes, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
config._attn_implementation = "sdpa"
model = GPT2LMHeadModel(config).cuda().bfloat16().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.randint(50, (4, 32), device="cuda")
with torch.profiler.profile() as profile:
    model(input_ids=tokens, use_cache=False)
print("kernel", *sorted({it.name for it in profile.events() if it.name.startswith("aten::_scaled_dot_product_")}))
for _ in range(100_000):
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    optimizer.step()
"""


@pytest.fixture
def launch(tmp_path: Path, device: Callable[..., SimulatedDevice]) -> Callable[..., tuple[Run, str]]:
    """A run with these levers, and the kernel that its attention was computed by."""
    pytest.importorskip("transformers")
    script = tmp_path / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    workload = Workload(kind="script", target=str(script), directory=str(tmp_path), python=sys.executable)
    executor = LocalExecutor(tmp_path / "runs", environment=device().variables)

    def launched(*settings: Setting) -> tuple[Run, str]:
        assignment = Assignment(workload=workload, plan=Plan(settings=settings), instruments=(Observe(),))
        run = executor.launch(LaunchRequest(assignment=assignment, steps=20))
        assert isinstance(run.ending, Stopped), run.ending
        lines = Path(run.output_path).read_text(encoding="utf-8").splitlines()
        return run, next(it for it in lines if it.startswith("kernel")).removeprefix("kernel ")

    return launched


@pytest.mark.parametrize(
    ("kernel", "operator"),
    [
        ("math", "aten::_scaled_dot_product_attention_math"),
        ("efficient", "aten::_scaled_dot_product_efficient_attention"),
        ("flash", "aten::_scaled_dot_product_flash_attention"),
    ],
)
def test_the_lever_chooses_the_kernel_and_losses_stay_within_rounding(
    kernel: str, operator: str, launch: Callable[..., tuple[Run, str]]
) -> None:
    (plain, own), (tuned, chosen) = launch(), launch(make_setting("attention-kernel", kernel=kernel))
    assert own == "aten::_scaled_dot_product_flash_attention" and chosen == operator
    assert [it.attention for it in plain.facts.models] == ["sdpa"]
    assert list(tuned.steps.loss) == pytest.approx(list(plain.steps.loss), rel=0.1), "weights are bfloat16"
