"""The levers that change settings, optimizers and models in place, each on a real loop on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hotlap.levers.support.situations import make_setting

FUSED = make_setting("fused-optimizer", implementation="fused")
FOREACH = make_setting("fused-optimizer", implementation="foreach")


def train(driver, model, optimizer, inputs, targets, steps: int = 3) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model, inputs), targets)
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(loss.item())
    return losses


# -- settings ------------------------------------------------------------------------------------


def test_threads_precision_and_cudnn_are_set_at_once(driver) -> None:
    driver.install(make_setting("cpu-threads", threads=3))
    assert torch.get_num_threads() == 3
    driver.install(make_setting("cudnn-benchmark"))
    assert torch.backends.cudnn.benchmark is True
    for precision in ("high", "medium"):
        driver.install(make_setting("matmul-precision", precision=precision))
        assert torch.get_float32_matmul_precision() == precision


def test_a_script_can_still_ask_and_set_the_precision_after_the_lever(driver) -> None:
    driver.install(make_setting("matmul-precision", precision="medium"))
    torch.set_float32_matmul_precision("highest")
    assert torch.get_float32_matmul_precision() == "highest"


def test_huge_pages_say_when_they_come_too_late(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = make_setting("huge-pages")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    driver.install(setting)
    assert driver.hooks.notes == []
    monkeypatch.delenv("GLIBC_TUNABLES")
    driver.install(setting)
    assert "before Python starts" in driver.hooks.notes[0]


# -- optimizers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_fused_forms_are_used_and_train_alike(driver, model, batch, kind: type) -> None:
    plain = type(model)(*model).requires_grad_()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    losses = train(driver, plain, kind(plain.parameters(), lr=0.01), *batch)
    model.load_state_dict(start)
    driver.install(FUSED)
    optimizer = driver.optimizer(kind, model.parameters(), lr=0.01)
    assert optimizer.param_groups[0]["fused"] is True
    assert train(driver, model, optimizer, *batch) == pytest.approx(losses, rel=1e-5)


def test_foreach_is_used_on_request(driver, model, batch) -> None:
    driver.install(FOREACH)
    optimizer = driver.optimizer(torch.optim.RMSprop, model.parameters(), lr=0.01)
    assert optimizer.param_groups[0]["foreach"] is True
    train(driver, model, optimizer, *batch)


def test_what_the_script_chose_stays(driver, model) -> None:
    driver.install(FUSED)
    for chosen in ({"fused": False}, {"foreach": False}, {"foreach": True}):
        optimizer = driver.optimizer(torch.optim.Adam, model.parameters(), **chosen)
        assert {name: optimizer.param_groups[0][name] for name in chosen} == chosen
        assert not optimizer.param_groups[0]["fused"]


@pytest.mark.parametrize("form", ["generator", "groups", "groups of generators", "named", "tensor list"])
def test_every_form_of_parameters_is_passed_on_whole(driver, model, form: str) -> None:
    driver.install(FUSED)
    forms = {
        "generator": lambda: (it for it in model.parameters()),
        "groups": lambda: [{"params": list(model[0].parameters())}, {"params": model[2].weight, "lr": 0.5}],
        "groups of generators": lambda: ({"params": it.parameters()} for it in (model[0], model[2])),
        "named": lambda: model.named_parameters(),
        "tensor list": lambda: [model[0].weight],
    }
    expected = torch.optim.AdamW(forms[form](), lr=0.1)
    optimizer = driver.optimizer(torch.optim.AdamW, forms[form](), lr=0.1)
    assert optimizer.param_groups[0]["fused"] is True

    def identities(it):
        return [[id(parameter) for parameter in group["params"]] for group in it.param_groups]

    assert identities(optimizer) == identities(expected)


def test_optimizers_that_cannot_be_fused_are_left_alone_with_a_note(driver, model) -> None:
    class Own(torch.optim.Adam):
        def __init__(self, params, rate: float) -> None:
            super().__init__(params, lr=rate)

    driver.install(FUSED)
    driver.optimizer(Own, model.parameters(), rate=0.1)
    driver.optimizer(torch.optim.LBFGS, model.parameters())
    driver.optimizer(torch.optim.Adam, [torch.zeros(2, dtype=torch.complex64, requires_grad=True)])
    driver.optimizer(torch.optim.Adam, [torch.zeros(2, device="meta", requires_grad=True)])
    assert [note.partition(":")[0] for note in driver.hooks.notes] == [
        "Own is not changed",
        "LBFGS is not changed",
        "Adam is not changed",
        "Adam is not changed",
    ]
    assert "no fused kernels for meta" in driver.hooks.notes[-1]


# -- models --------------------------------------------------------------------------------------


def test_channels_last_converts_weights_and_inputs_and_keeps_the_parameters(driver) -> None:
    driver.install(make_setting("channels-last"))
    seen = []  # type: ignore[var-annotated]
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 4)
    )
    model[0].register_forward_hook(lambda module, inputs, output: seen.extend((inputs[0], output)))
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    before = {id(parameter) for parameter in model.parameters()}
    images, targets = torch.randn(2, 3, 8, 8), torch.randint(0, 4, (2,))
    losses = train(driver, model, optimizer, images, targets)
    assert losses[-1] < losses[0]
    assert {id(parameter) for parameter in model.parameters()} == before
    assert all(it.is_contiguous(memory_format=torch.channels_last) for it in (*seen, model[0].weight))
    assert images.is_contiguous()  # the script's own tensor stays as it was


def test_channels_last_leaves_models_without_convolution_and_other_inputs_alone(driver, model, batch) -> None:
    driver.install(make_setting("channels-last"))
    plain = torch.nn.Linear(5, 5)
    four_dimensions = torch.randn(2, 3, 4, 5)
    given = []
    plain.register_forward_pre_hook(lambda module, inputs: given.extend(inputs))
    driver.forward(plain, four_dimensions)
    assert given[0] is four_dimensions


def test_sdpa_replaces_eager_attention_of_a_hugging_face_model(driver) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config._attn_implementation = "eager"
    bert = transformers.BertForSequenceClassification(config)
    model = torch.nn.ModuleDict({"inner": bert})  # the script's own module around it
    model.forward = lambda tokens: bert(tokens).logits
    model.eval()
    tokens = torch.randint(0, 50, (2, 8))
    eager = model.forward(tokens).detach()
    calls = []
    plain = functional.scaled_dot_product_attention
    driver.install(make_setting("sdpa-attention"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or plain(*a, **k))
        fused = driver.forward(model, tokens)
    assert calls
    assert bert.config._attn_implementation == "sdpa"
    torch.testing.assert_close(fused, eager, rtol=1e-4, atol=1e-5)


def test_a_model_that_cannot_switch_its_attention_keeps_it(driver) -> None:
    class Stubborn(torch.nn.Linear):
        class config:
            _attn_implementation = "eager"

        def set_attn_implementation(self, name: str) -> None:
            raise ValueError("Stubborn does not support sdpa.")

    driver.install(make_setting("sdpa-attention"))
    driver.forward(Stubborn(2, 2), torch.randn(1, 2))
    assert driver.hooks.notes == ["Stubborn keeps its eager attention: Stubborn does not support sdpa."]
