"""Patches of scripts that call a model and do not train it."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import left_out, patched

from hotlap.records import ModelFacts, ScriptFacts

CALLS = ScriptFacts(
    device="cpu",
    step_source="call",
    calls_in_script=True,
    models=(ModelFacts(kind="Net", parameters=1, convolutions=1, input_shapes=((4, 3, 8, 8),)),),
)
SERVE = """\
import torch

model = Net()
model.eval()
with torch.no_grad():
    for images in batches:
        logits = model(images)
        send(logits)
"""
DECORATED = """\
import torch


@torch.no_grad()
def answer(images):
    return model(images)


if __name__ == "__main__":
    model = Net().to("cpu")
    for images in batches:
        send(answer(images))
"""
METHOD = """\
import torch


class Service:
    def __init__(self):
        self.net = Net()

    def answer(self, images):
        with torch.inference_mode():
            return self.net(images)
"""


def test_no_grad_becomes_inference_mode(tmp_path: Path) -> None:
    expected = SERVE.replace("torch.no_grad()", "torch.inference_mode()")
    assert patched(tmp_path, SERVE, "inference-mode", CALLS) == expected
    decorated = DECORATED.replace("torch.no_grad()", "torch.inference_mode()")
    assert patched(tmp_path, DECORATED, "inference-mode", CALLS) == decorated


def test_calls_without_a_context_are_wrapped(tmp_path: Path) -> None:
    source = SERVE.replace("with torch.no_grad():", "if True:")
    found = patched(tmp_path, source, "inference-mode", CALLS)
    assert "        with torch.inference_mode():\n            logits = model(images)\n        send(logits)\n" in found


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    assert patched(tmp_path, METHOD, "inference-mode", CALLS) == METHOD


def test_each_call_runs_under_autocast(tmp_path: Path) -> None:
    found = patched(tmp_path, SERVE, "mixed-precision", CALLS, dtype="bfloat16")
    region = '        with torch.autocast("cpu", dtype=torch.bfloat16):\n            logits = model(images)\n'
    assert f"{region}        send(logits)\n" in found
    returned = patched(tmp_path, DECORATED, "mixed-precision", CALLS, dtype="bfloat16")
    assert '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        return model(images)\n' in returned


@pytest.mark.parametrize(
    ("source", "line", "before"),
    [
        (SERVE, "model = Net()\n", "model.eval()\n"),
        (DECORATED, '    model = Net().to("cpu")\n', "    for images in batches:\n"),
        (METHOD, "        self.net = Net()\n", "\n    def answer"),
    ],
)
def test_the_model_is_compiled_where_it_is_made(tmp_path: Path, source: str, line: str, before: str) -> None:
    found = patched(tmp_path, source, "compile", CALLS, mode="default", dynamic=False)
    indent = line[: len(line) - len(line.lstrip())]
    name = line.strip().partition(" ")[0]
    assert f"{line}{indent}{name}.compile()\n{before}" in found


def test_freezing_is_set_before_the_model_is_made(tmp_path: Path) -> None:
    found = patched(tmp_path, SERVE, "compile", CALLS, mode="default", dynamic=False, freezing=True)
    assert "torch._inductor.config.freezing = True" in found
    assert found.index("freezing") < found.index("Net()") < found.index("model.compile()")


def test_images_and_weights_get_their_channels_last(tmp_path: Path) -> None:
    found = patched(tmp_path, SERVE, "channels-last", CALLS)
    assert "model.to(memory_format=torch.channels_last)" in found
    assert "model(images.to(memory_format=torch.channels_last))" in found


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import torch\n\n\ndef answer(model, images):\n    return model(images)\n", "is an argument of answer"),
        ("import torch\n\n\ndef answers(images):\n    yield model(images)\n", "yields"),
        ("import torch\n\nresults = [models[0].net(it) for it in batches]\n", "cannot be determined"),
    ],
)
def test_what_is_not_safe_is_left_out(tmp_path: Path, source: str, reason: str) -> None:
    lever, values = "compile", {"mode": "default"}
    if "yields" in reason:
        lever, values = "mixed-precision", {"dtype": "bfloat16"}
    assert reason in left_out(tmp_path, source, lever, CALLS, (), **values)
