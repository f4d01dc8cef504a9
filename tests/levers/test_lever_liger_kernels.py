"""Liger's kernels, by a stand-in for the package: its kernels need a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import Accelerator, Machine, ModelFacts, ScriptFacts, Situation

CONFIG: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}


def language_model() -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**CONFIG))


@pytest.fixture
def liger(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """A package that replaces the forward of norms, as Liger does on an instance; the calls of it."""
    calls: list[dict[str, Any]] = []

    def apply(model: Any, **options: Any) -> None:
        calls.append({"model": model, **options})
        if model.config.model_type != "llama":
            return
        for module in model.modules():
            if type(module).__name__ == "LlamaRMSNorm":
                module.forward = forward_of(module)

    def forward_of(norm: Any) -> Any:
        def forward(hidden: Any) -> Any:
            return torch.nn.functional.rms_norm(hidden, hidden.shape[-1:], norm.weight, norm.variance_epsilon)

        forward.__module__ = "liger_kernel.transformers.rms_norm"
        return forward

    package, inner = ModuleType("liger_kernel"), ModuleType("liger_kernel.transformers")
    inner._apply_liger_kernel_to_instance = apply  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", inner)
    yield calls


def losses(driver: Any, model: Any, root: Any = None) -> list[float]:
    root = root or model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words = torch.randint(0, 32, (2, 8), generator=torch.Generator().manual_seed(1))
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = driver.forward(root, input_ids=words, labels=words).loss
        driver.backward(loss)
        driver.step(optimizer)
        found.append(loss.item())
    return found


@pytest.mark.parametrize("loss", ["own", "fused"])
def test_a_model_of_transformers_gets_the_kernels_before_its_first_step(driver, driver_kind, liger, loss: str) -> None:
    expected = losses(driver_kind(), language_model())
    driver.install(make_setting("liger-kernels", loss=loss))
    model = language_model()
    assert losses(driver, model) == pytest.approx(expected, rel=1e-5)
    (call,) = liger
    assert call["model"] is model
    assert call["fused_linear_cross_entropy"] == (loss == "fused") and call["cross_entropy"] == (loss == "own")
    assert not driver.hooks.notes


class Wrapper(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, **arguments: Any) -> Any:
        return self.inner(**arguments)


def test_a_wrapped_model_is_found_and_one_without_kernels_is_noted(driver, liger) -> None:
    driver.install(make_setting("liger-kernels", loss="own"))
    model = language_model()
    losses(driver, model, Wrapper(model))
    assert [it["model"] for it in liger] == [model]
    other = language_model()
    other.config.model_type = "unknown"
    losses(driver, other)
    assert driver.hooks.notes == ["Liger has no kernels for the model LlamaForCausalLM."]


def test_other_models_are_left_alone_without_importing_the_package(driver, model, batch) -> None:
    driver.install(make_setting("liger-kernels", loss="own"))
    assert "liger_kernel" not in sys.modules
    assert driver.forward(model, batch[0]).shape == (8, 3)


GPU = Machine(accelerators=(Accelerator(kind="cuda", name="A", memory_bytes=1, capability="8.0"),))
MODEL = ModelFacts(kind="LlamaForCausalLM", parameters=10, transformers_model=True)


def situation(**changes: Any) -> Situation:
    usual = SimpleNamespace(device="cuda:0", models=(MODEL,), packages=("liger_kernel",))
    facts = {**vars(usual), **changes}
    return Situation(facts=ScriptFacts(**facts), machine=GPU)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (situation(), None),
        (situation(device="cpu"), "GPUs only"),
        (situation(models=(ModelFacts(kind="Net", parameters=1),)), "none was seen"),
        (situation(models=(ModelFacts(kind="L", parameters=1, transformers_model=True, compiled=True),)), "compiled"),
        (situation(packages=("torchao",)), "pip install liger-kernel"),
    ],
)
def test_it_is_tried_only_where_the_kernels_run(where: Situation, reason: str | None) -> None:
    refused = find("liger-kernels").obstacle(where)
    assert (refused is None) if reason is None else (refused is not None and reason in refused.reason)
