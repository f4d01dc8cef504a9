"""Mixed precision in source: the region around forward and loss, and for float16 the scaler."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from patching import left_out, patch_of, patched

from hotlap.levers.support.situations import make_setting

REGION = 'with torch.autocast("cpu", dtype=torch.bfloat16):'


def dedented(text: str) -> str:
    return "import torch\n" + textwrap.dedent(text).lstrip("\n")


def bf16(tmp_path: Path, source: str) -> str:
    return patched(tmp_path, source, "mixed-precision", dtype="bfloat16")


def expect(tmp_path: Path, before: str, after: str) -> None:
    """The lever changes the source to this, and then changes nothing more."""
    new = bf16(tmp_path, dedented(before))
    assert new == dedented(after.replace("REGION", REGION))
    assert bf16(tmp_path, new) == new


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            """
            for x, y in loader:
                out = model(x)
                loss = criterion(out, y)  # mean
                loss.backward()
            """,
            """
            for x, y in loader:
                REGION
                    out = model(x)
                    loss = criterion(out, y)  # mean
                loss.backward()
            """,
            id="two statements",
        ),
        pytest.param(
            """
            for batch in loader:
                loss = model(**batch).loss
                loss.backward()
            """,
            """
            for batch in loader:
                REGION
                    loss = model(**batch).loss
                loss.backward()
            """,
            id="one statement",
        ),
        pytest.param(
            """
            for x, y in loader:
                out = model(x)
                optimizer.zero_grad()
                loss = criterion(out, y)
                seen += len(x)
                loss.backward()
            """,
            """
            for x, y in loader:
                REGION
                    out = model(x)
                    optimizer.zero_grad()
                    loss = criterion(out, y)
                seen += len(x)
                loss.backward()
            """,
            id="others in between",
        ),
        pytest.param(
            """
            for x, y in loader:
                criterion(model(x), y).backward()
            """,
            """
            for x, y in loader:
                REGION
                    loss = criterion(model(x), y)
                loss.backward()
            """,
            id="in the backward's own statement",
        ),
        pytest.param(
            """
            def compute(model, x, y):
                return criterion(model(x), y)

            for x, y in loader:
                loss = compute(net, x, y)
                loss.backward()
            """,
            """
            def compute(model, x, y):
                return criterion(model(x), y)

            for x, y in loader:
                REGION
                    loss = compute(net, x, y)
                loss.backward()
            """,
            id="in a function that is called",
        ),
        pytest.param(
            """
            def train():
                for x, y in loader:
                    def closure():
                        optimizer.zero_grad()
                        loss = criterion(model(x), y)
                        loss.backward()
                        return loss
                    optimizer.step(closure)
            """,
            """
            def train():
                for x, y in loader:
                    def closure():
                        optimizer.zero_grad()
                        REGION
                            loss = criterion(model(x), y)
                        loss.backward()
                        return loss
                    optimizer.step(closure)
            """,
            id="closure",
        ),
        pytest.param(
            """
            for x, y in loader:
                out = model(x)
                loss = criterion(out, y)
                if training:
                    optimizer.zero_grad()
                    loss.backward()
            """,
            """
            for x, y in loader:
                REGION
                    out = model(x)
                    loss = criterion(out, y)
                if training:
                    optimizer.zero_grad()
                    loss.backward()
            """,
            id="backward within an if",
        ),
        pytest.param(
            """
            for x, y in loader:
                if masked:
                    out = model(x * mask)
                else:
                    out = model(x)
                loss = criterion(out, y)
                loss = loss / 4
                (loss * 2).backward()
            """,
            """
            for x, y in loader:
                REGION
                    if masked:
                        out = model(x * mask)
                    else:
                        out = model(x)
                    loss = criterion(out, y)
                    loss = loss / 4
                (loss * 2).backward()
            """,
            id="forwards within an if",
        ),
        pytest.param(
            """
            for real in loader:
                d = critic(real).mean()
                d.backward()
                optimizer_d.step()
                g = critic(generator(z)).mean()
                g.backward()
                optimizer_g.step()
            """,
            """
            for real in loader:
                REGION
                    d = critic(real).mean()
                d.backward()
                optimizer_d.step()
                REGION
                    g = critic(generator(z)).mean()
                g.backward()
                optimizer_g.step()
            """,
            id="two backwards",
        ),
        pytest.param(
            """
            for x, y in loader:
                losses["a"] = criterion(model(x), y)
                accelerator.backward(losses["a"])
            """,
            """
            for x, y in loader:
                REGION
                    losses["a"] = criterion(model(x), y)
                accelerator.backward(losses["a"])
            """,
            id="an object calls backward",
        ),
        pytest.param(
            """
            for x, y in loader:
                if step: loss = criterion(model(x), y); loss.backward()
            """,
            """
            for x, y in loader:
                if step:
                    REGION
                        loss = criterion(model(x), y)
                    loss.backward()
            """,
            id="on one line",
        ),
    ],
)
def test_regions(tmp_path: Path, before: str, after: str) -> None:
    expect(tmp_path, before, after)


def test_a_region_that_is_there_stays(tmp_path: Path) -> None:
    source = dedented("""
        for x, y in loader:
            with autocast("cuda"):
                loss = criterion(model(x), y)
            loss.backward()
        """)
    assert bf16(tmp_path, source) == source


def test_evaluation_stays_as_it_is(tmp_path: Path) -> None:
    source = dedented("""
        def evaluate():
            with torch.no_grad():
                return model(x)

        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
        """)
    new = bf16(tmp_path, source)
    assert "        return model(x)\n" in new and new.count("autocast") == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("trainer.fit(model)\n", "inside a library"),
        ("loss = criterion(model(x), y)\n", "No line was seen that calls backward"),
        (
            "def train(loss):\n    loss.backward()\n\ndef forward():\n    return model(x)\n",
            "computed in another function",
        ),
        ("a = model(x)\nb = a.sum()\noptimizer.step()\nloss = b\nloss.backward()\n", "step is called in line"),
        ("for x in loader:\n    total = criterion(model(x)).backward() or 0\n", "parts of one expression"),
        (
            "def other():\n    return model(x)\n\nfor x in loader:\n    l = model(x)\n    l.backward()\n",
            "leads to no observed backward",
        ),
    ],
)
def test_what_is_left_out(tmp_path: Path, source: str, words: str) -> None:
    assert words in left_out(tmp_path, f"import torch\n{source}", "mixed-precision", dtype="bfloat16")


def test_float16_scales_and_unscales_before_clipping(tmp_path: Path) -> None:
    source = dedented("""
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            # keep them small
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # update
            scheduler_step()
        """)
    new = patched(tmp_path, source, "mixed-precision", dtype="float16")
    assert new == dedented("""

        scaler = torch.amp.GradScaler("cpu")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            # keep them small
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)  # update
            scaler.update()
            scheduler_step()
        """).replace("torch\nscaler", "torch\n\nscaler")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("optimizer.step(closure)", "not a plain"),
        ("first.step(); second.step()", "one line steps one optimizer"),
        ("p.grad.norm(); optimizer.step()", "uses gradients"),
        ("scaler = 1; optimizer.step()", "in use"),
    ],
)
def test_steps_that_are_not_scaled(tmp_path: Path, step: str, words: str) -> None:
    source = f"import torch\nfor x in loader:\n    loss = criterion(model(x))\n    loss.backward()\n    {step}\n"
    assert words in left_out(tmp_path, source, "mixed-precision", dtype="float16")


def test_a_lever_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """The region could be written, but not the scaler: then neither is, and other levers still are."""
    source = dedented("""
        optimizer = torch.optim.AdamW(model.parameters())
        for x in loader:
            loss = criterion(model(x))
            loss.backward()
            optimizer.step(closure)
        """)
    settings = (
        make_setting("mixed-precision", dtype="float16"),
        make_setting("fused-optimizer", implementation="fused"),
    )
    patch = patch_of(tmp_path, source, settings)
    assert [it.lever for it in patch.written] == ["fused-optimizer"]
    assert "autocast" not in patch.files[0].after and "fused=True" in patch.files[0].after


def test_names_of_the_file_are_used(tmp_path: Path) -> None:
    source = "import torch as t\nfrom torch import autocast\nloss = model(x)\nloss.backward()\n"
    assert 'with autocast("cpu", dtype=t.bfloat16):\n    loss = model(x)\n' in bf16(tmp_path, source)


@pytest.mark.parametrize(
    ("script", "device"),
    [
        pytest.param(
            """
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            for x, y in loader:
                loss = criterion(model(x.to(device)), y)
                loss.backward()
            """,
            "device.type",
            id="a device of the module",
        ),
        pytest.param(
            """
            device = "cuda" if torch.cuda.is_available() else "cpu"
            for x, y in loader:
                loss = criterion(model(x.to(device)), y)
                loss.backward()
            """,
            "torch.device(device).type",
            id="its name",
        ),
        pytest.param(
            """
            def train(model, loader, device):
                for x, y in loader:
                    x = x.to(device)
                    loss = criterion(model(x), y)
                    loss.backward()
            """,
            "torch.device(device).type",
            id="a parameter",
        ),
        pytest.param(
            """
            class Trainer:
                def train(self, loader):
                    for x, y in loader:
                        loss = criterion(self.net(x.to(self.device)), y)
                        loss.backward()
            """,
            "torch.device(self.device).type",
            id="an attribute",
        ),
        pytest.param(
            """
            def move(batch, device):
                return [it.to(device) for it in batch]

            for batch in loader:
                x, y = move(batch, "cuda" if torch.cuda.is_available() else "cpu")
                loss = criterion(model(x), y)
                loss.backward()
            """,
            "next(model.parameters()).device.type",
            id="a name of another function",
        ),
        pytest.param(
            """
            device = "cpu"
            for x, y in loader:
                loss = criterion(model(x.to(device)), y)
                loss.backward()
            """,
            '"cpu"',
            id="no choice",
        ),
    ],
)
def test_the_region_is_for_the_device_that_the_script_chooses(tmp_path: Path, script: str, device: str) -> None:
    new = bf16(tmp_path, dedented(script))
    assert f"with torch.autocast({device}, dtype=torch.bfloat16):" in new
    assert bf16(tmp_path, new) == new


def test_a_device_that_cannot_be_named_is_said(tmp_path: Path) -> None:
    source = dedented("""
        def move(batch, device):
            return [it.to(device) for it in batch]

        def compute(x, y):
            return criterion(model(x), y)

        for batch in loader:
            x, y = move(batch, pick())
            loss = compute(x, y)
            loss.backward()
        """)
    patch = patch_of(tmp_path, source, (make_setting("mixed-precision", dtype="bfloat16"),))
    assert 'the script chooses its device, and the region names "cpu"' in patch.remarks[0]
