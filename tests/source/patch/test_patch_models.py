"""Models, optimizers, switches and attention in source."""

from __future__ import annotations

import textwrap
from pathlib import Path

import msgspec
import pytest
from patching import FACTS, facts_of, left_out, patched

from hotlap.levers.api import all_levers, find
from hotlap.levers.support.situations import make_setting
from hotlap.records import BlockFacts, ModelFacts, NoSourceForm, OptimizerFacts, RepeatedModules
from hotlap.source.patch.make import make_patch

IMAGES = msgspec.structs.replace(
    FACTS, models=(ModelFacts(kind="Net", parameters=1, convolutions=1, input_shapes=((4, 3, 8, 8),)),)
)
LOOP = "for x in loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"


def dedented(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def compiled(tmp_path: Path, source: str) -> str:
    return patched(tmp_path, source, "compile", mode="default")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "model = Net().to(device)\noptimizer = AdamW(model.parameters())\n",
            "model = Net().to(device)\nmodel.compile()\noptimizer = AdamW(model.parameters())\n",
            id="made and moved at once",
        ),
        pytest.param(
            "model = Net()\noptimizer = AdamW(model.parameters())\nmodel.to(device)\nmodel.train()\n",
            "model = Net()\noptimizer = AdamW(model.parameters())\nmodel.to(device)\nmodel.compile()\nmodel.train()\n",
            id="moved after the optimizer",
        ),
        pytest.param(
            "if big:\n    model = Big()\nelse:\n    model = Small()\noptimizer = AdamW(model.parameters())\n",
            "if big:\n    model = Big()\nelse:\n    model = Small()\nmodel.compile()\n"
            "optimizer = AdamW(model.parameters())\n",
            id="one of two",
        ),
        pytest.param(
            "model = Net()\nmodel = DDP(model)\noptimizer = AdamW(model.parameters())\n",
            "model = Net()\nmodel = DDP(model)\nmodel.compile()\noptimizer = AdamW(model.parameters())\n",
            id="wrapped",
        ),
        pytest.param(
            "model = Net()\ngroups = [{'params': model.head.parameters()}]\noptimizer = AdamW(groups)\n",
            "model = Net()\nmodel.compile()\n"
            "groups = [{'params': model.head.parameters()}]\noptimizer = AdamW(groups)\n",
            id="groups",
        ),
    ],
)
def test_compile_where_the_model_is_ready(tmp_path: Path, before: str, after: str) -> None:
    new = compiled(tmp_path, before + LOOP)
    assert new == after + LOOP
    assert compiled(tmp_path, new) == new


OF_TORCH = msgspec.structs.replace(FACTS, models=(ModelFacts(kind="Sequential", parameters=1, forward_of_torch=True),))


def test_of_a_model_whose_class_is_torchs_the_forward_is_compiled(tmp_path: Path) -> None:
    source = "import torch\n\nmodel = nn.Sequential()\noptimizer = AdamW(model.parameters())\n" + LOOP
    new = patched(tmp_path, source, "compile", OF_TORCH, mode="reduce-overhead")
    written = 'model = nn.Sequential()\nmodel.forward = torch.compile(model.forward, mode="reduce-overhead")\n'
    assert new == source.replace("model = nn.Sequential()\n", written)
    assert patched(tmp_path, new, "compile", OF_TORCH, mode="reduce-overhead") == new


def test_what_the_patch_writes_compiles_such_a_model() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    names = list(model.state_dict())
    calls: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        calls.append(graph)
        return graph.forward

    model.forward = torch.compile(model.forward, backend=backend)  # type: ignore[method-assign]
    model(torch.ones(2, 4))
    assert len(calls) == 1 and list(model.state_dict()) == names


OF_ITS_OWN = msgspec.structs.replace(
    FACTS, models=(ModelFacts(kind="Functional", parameters=1, compile_of_its_own=True),)
)


@pytest.mark.parametrize(
    ("imports", "called"),
    [
        ("import torch\n", "torch.nn.Module.compile"),
        ("import torch\nfrom torch import nn\n", "nn.Module.compile"),
        ("import keras\n", "torch.nn.Module.compile"),
    ],
)
def test_a_model_whose_compile_is_another_is_compiled_by_that_of_torch(
    imports: str, called: str, tmp_path: Path
) -> None:
    made = "model = keras.Model(inputs, outputs)\n"
    rest = 'model.compile(loss="mse", optimizer="adam")\noptimizer = AdamW(model.parameters())\n' + LOOP
    new = patched(tmp_path, imports + "\n" + made + rest, "compile", OF_ITS_OWN, mode="reduce-overhead")
    assert f'{called}(model, mode="reduce-overhead")\n' in new and rest in new
    assert "import torch\n" in new
    assert patched(tmp_path, new, "compile", OF_ITS_OWN, mode="reduce-overhead") == new


def test_models_of_both_kinds_cannot_be_distinguished() -> None:
    both = (ModelFacts(kind="Net", parameters=1), ModelFacts(kind="Sequential", parameters=1, forward_of_torch=True))
    facts = msgspec.structs.replace(FACTS, models=both)
    (change,) = find("compile").rewrite(facts, make_setting("compile", mode="default"))
    assert isinstance(change, NoSourceForm) and "is unknown which" in change.reason


def test_activation_checkpointing_is_a_loop_over_the_blocks(tmp_path: Path) -> None:
    blocks = BlockFacts(kind="Block", count=4, place=".layers")
    base = msgspec.structs.replace(FACTS, models=(ModelFacts(kind="Net", parameters=1, blocks=blocks),))
    source = "import torch\n\nnet = Net()\noptimizer = AdamW(net.parameters())\n" + LOOP.replace("model", "net")
    new = patched(tmp_path, source, "activation-checkpointing", base, share="half")
    assert (
        "net = Net()\n"
        "for repeated in net.layers[::2]:\n"
        "    repeated.forward = functools.partial(checkpoint, repeated.forward, use_reentrant=False)\n"
        "optimizer = "
    ) in new
    assert "from torch.utils.checkpoint import checkpoint\n" in new
    assert "import functools" in new


def test_compile_of_blocks_is_a_loop_for_each_container(tmp_path: Path) -> None:
    repeated = (
        RepeatedModules(kind="Encoder", count=4, place=".encoder[1:5]"),
        RepeatedModules(kind="Sequential", count=3, place=".decoder", forward_of_torch=True),
    )
    base = msgspec.structs.replace(FACTS, models=(ModelFacts(kind="Net", parameters=1, repeated=repeated),))
    source = "import torch\n\nnet = Net()\noptimizer = AdamW(net.parameters())\n" + LOOP.replace("model", "net")
    new = patched(tmp_path, source, "compile", base, mode="default", blocks=True, dynamic=True)
    assert (
        "net = Net()\n"
        "for repeated in net.encoder[1:5]:\n"
        "    repeated.compile(dynamic=True)\n"
        "for repeated in net.decoder:\n"
        "    repeated.forward = torch.compile(repeated.forward, dynamic=True)\n"
        "optimizer = "
    ) in new
    assert patched(tmp_path, new, "compile", base, mode="default", blocks=True, dynamic=True) == new


@pytest.mark.parametrize(
    ("places", "words"),
    [((), "not all of them"), (("",), "no name"), ((".module.layers",), "is wrapped")],
)
def test_compile_of_blocks_that_source_cannot_name(places: tuple[str, ...], words: str) -> None:
    repeated = tuple(RepeatedModules(kind="Layer", count=4, place=it) for it in places)
    base = msgspec.structs.replace(FACTS, models=(ModelFacts(kind="Net", parameters=1, repeated=repeated),))
    (change,) = find("compile").rewrite(base, make_setting("compile", mode="default", blocks=True))
    assert isinstance(change, NoSourceForm) and words in change.reason


def test_compile_in_a_function_that_was_given_the_model(tmp_path: Path) -> None:
    source = "def train(model):\n    optimizer = AdamW(model.parameters())\n" + textwrap.indent(LOOP, "    ")
    new = compiled(tmp_path, source)
    assert "def train(model):\n    model.compile()\n    optimizer = AdamW" in new


def test_compile_of_an_attribute(tmp_path: Path) -> None:
    source = dedented("""
        class Trainer:
            def __init__(self):
                self.net = Net().cuda()
                self.optimizer = AdamW(self.net.parameters())

            def step(self, x):
                loss = self.net(x)
                loss.backward()
        """)
    assert "        self.net = Net().cuda()\n        self.net.compile()\n" in compiled(tmp_path, source)


GUARDED = """
    class Trainer:
        def __init__(self, net, optimizer):
            self.net, self.optimizer = net, optimizer

        def learn(self, loader):
            for x in loader:
                self.advance(x)

        def advance(self, x):
            loss = self.net(x)
            loss.backward()
            self.optimizer.step()

    if __name__ == "__main__":
        net = Net()
        BETWEEN
        optimizer = AdamW(net.parameters())
        BEFORE
        trainer = Trainer(net, optimizer)
        trainer.learn(loader)
        AFTER
    """


def guarded(**lines: str) -> str:
    text = GUARDED
    for place in ("BETWEEN", "BEFORE", "AFTER"):
        text = text.replace(place, lines.get(place.lower(), "pass"))
    return dedented(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, "    net = Net()\n    net.compile()\n", id="made"),
        pytest.param(
            {"between": "net.cuda()"},
            "    net.cuda()\n    net.compile()\n    optimizer",
            id="moved before the optimizer",
        ),
        pytest.param(
            {"before": "net.to(device)"},
            "    net.to(device)\n    net.compile()\n    trainer",
            id="moved before the training",
        ),
        pytest.param({"after": "net.cpu()"}, "    net = Net()\n    net.compile()\n", id="moved after the training"),
        pytest.param(
            {"after": "net = net.eval()"}, "    net = Net()\n    net.compile()\n", id="bound after the training"
        ),
    ],
)
def test_compile_stays_below_the_main_guard_and_before_the_training(
    tmp_path: Path, before: dict[str, str], after: str
) -> None:
    source = guarded(**before)
    new = compiled(tmp_path, source)
    assert after in new and new.count("compile") == 1
    assert compiled(tmp_path, new) == new


def test_compile_in_a_function_that_trains_in_ways_that_are_not_seen(tmp_path: Path) -> None:
    """What comes behind the optimizer may come behind the training: the model is compiled before."""
    source = guarded(before="net.to(device)").replace("trainer.learn(loader)", "launch(trainer, loader)")
    new = compiled(tmp_path, source)
    assert "    net = Net()\n    net.compile()\n" in new


def test_compile_of_a_model_that_two_branches_of_the_guard_make(tmp_path: Path) -> None:
    source = guarded(between="if big:\n            net = Big()")
    assert "        net = Big()\n    net.compile()\n    optimizer" in compiled(tmp_path, source)


@pytest.mark.parametrize("line", ["model.compile()", "model = torch.compile(model)"])
def test_a_compiled_model_stays(tmp_path: Path, line: str) -> None:
    source = f"import torch\nmodel = Net()\n{line}\noptimizer = AdamW(model.parameters())\n{LOOP}"
    assert compiled(tmp_path, source) == source


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("optimizer = AdamW(params)\n", "cannot be determined"),
        ("optimizer = AdamW(get().parameters())\n", "cannot be determined"),
        ("for k in folds:\n    model = Net()\noptimizer = AdamW(model.parameters())\n", "in a loop"),
        ("optimizer = AdamW([*a.parameters(), *b.parameters()])\n", "cannot be determined"),
    ],
)
def test_models_that_are_not_found(tmp_path: Path, source: str, words: str) -> None:
    assert words in left_out(tmp_path, source + LOOP, "compile", mode="default")


def test_channels_last_on_model_and_input(tmp_path: Path) -> None:
    source = f"import torch\nmodel = Net()\noptimizer = AdamW(model.parameters())\n{LOOP}"
    new = patched(tmp_path, source, "channels-last", IMAGES)
    assert "model = Net()\nmodel.to(memory_format=torch.channels_last)\noptimizer" in new
    assert "    loss = model(x.to(memory_format=torch.channels_last))\n" in new
    assert patched(tmp_path, new, "channels-last", IMAGES) == new


@pytest.mark.parametrize("call", ["model(x, y)", "model(*x)", "model(**x)", "model(images=x)"])
def test_inputs_that_cannot_be_distinguished(tmp_path: Path, call: str) -> None:
    source = f"model = Net()\noptimizer = AdamW(model.parameters())\n{LOOP.replace('model(x)', call)}"
    assert "cannot be determined" in left_out(tmp_path, source, "channels-last", IMAGES)


def test_inputs_that_are_no_images(tmp_path: Path) -> None:
    source = f"model = Net()\noptimizer = AdamW(model.parameters())\n{LOOP}"
    texts = ModelFacts(kind="model", parameters=1, convolutions=1, input_shapes=((4, 16),))
    base = msgspec.structs.replace(FACTS, models=(texts,))
    assert "no tensor with 4 dimensions" in left_out(tmp_path, source, "channels-last", base)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("o = AdamW(m.parameters(), lr=1)\n", "o = AdamW(m.parameters(), lr=1, fused=True)\n"),
        ("o = torch.optim.SGD(p, 0.1,)\n", "o = torch.optim.SGD(p, 0.1, fused=True,)\n"),
        ("o = AdamW(p, **options)\n", 'o = AdamW(p, **{**options, "fused": True})\n'),
        (
            "from torch.optim import AdamW as Opt\no = Opt(p)\n",
            "from torch.optim import AdamW as Opt\no = Opt(p, fused=True)\n",
        ),
        ("o = AdamW(p, fused=False)\n", "o = AdamW(p, fused=False)\n"),
        ("o = AdamW(p, foreach=True)\n", "o = AdamW(p, foreach=True)\n"),
    ],
)
def test_fused_optimizers(tmp_path: Path, before: str, after: str) -> None:
    assert patched(tmp_path, before, "fused-optimizer", implementation="fused") == after


def test_a_variable_that_holds_an_optimizers_class(tmp_path: Path) -> None:
    assert "may make others as well" in left_out(
        tmp_path, "cls = AdamW\no = cls(p)\n", "fused-optimizer", implementation="fused"
    )


def test_an_optimizer_that_a_library_made(tmp_path: Path) -> None:
    made = OptimizerFacts(kind="AdamW", parameters=1, learning_rate=0.1, supports_fused=True)
    base = msgspec.structs.replace(FACTS, optimizers=(made,))
    assert "inside a library" in left_out(tmp_path, "pass\n", "fused-optimizer", base, implementation="fused")


@pytest.mark.parametrize(
    ("lever", "values", "lines"),
    [
        ("cudnn-benchmark", {}, "torch.backends.cudnn.benchmark = True\n"),
        ("matmul-precision", {"precision": "high"}, 'torch.set_float32_matmul_precision("high")\n'),
        ("cpu-threads", {"threads": 2}, "torch.set_num_threads(2)\n"),
        (
            "attention-kernel",
            {"kernel": "efficient"},
            "torch.backends.cuda.enable_flash_sdp(False)\ntorch.backends.cuda.enable_cudnn_sdp(False)\n",
        ),
        (
            "matmul-precision",
            {"precision": "medium"},
            'torch.set_float32_matmul_precision("medium")\n'
            'torch.backends.mkldnn.conv.fp32_precision = "bf16"\ntorch.backends.mkldnn.rnn.fp32_precision = "bf16"\n',
        ),
    ],
)
def test_switches_go_below_the_imports(tmp_path: Path, lever: str, values: dict[str, str], lines: str) -> None:
    source = "import os\n\nimport torch\n\nx = 1\n"
    new = patched(tmp_path, source, lever, **values)
    assert new == f"import os\n\nimport torch\n\n{lines}\nx = 1\n"
    assert patched(tmp_path, new, lever, **values) == new


def test_attention(tmp_path: Path) -> None:
    source = 'model = Auto.from_pretrained(name, attn_implementation="eager")\nloss = model(x)\n'
    new = patched(tmp_path, source, "sdpa-attention")
    assert new == source.replace("eager", "sdpa")
    assert 'No call says attn_implementation="eager"' in left_out(tmp_path, new, "sdpa-attention")


@pytest.mark.parametrize("lever", ["huge-pages", "keep-freed-memory", "device-prefetch"])
def test_levers_without_a_form_in_source_say_so(tmp_path: Path, lever: str) -> None:
    assert left_out(tmp_path, "import torch\n", lever).endswith(".")


def test_every_lever_says_what_it_needs(tmp_path: Path) -> None:
    values = {"num_workers": 2, "mode": "default", "threads": 1, "implementation": "fused", "precision": "high"}
    values |= {"dtype": "bfloat16", "share": "all", "micro_batches": 2, "every_steps": 50, "own": 8, "size": 16}
    values |= {
        "library": "jemalloc",
        "kernel": "math",
        "stage": 2,
        "strategy": "SHARD_GRAD_OP",
        "param_dtype": "bfloat16",
    }
    values |= {"bucket_cap_mb": 50, "reshard_after_forward": True, "reshard": True, "ahead": "forward"}
    values |= {"workers": "anywhere", "merged": 2, "recipe": "rowwise", "compile": False, "loss": "own"}
    for lever in all_levers().values():
        of_lever = values | ({"dtype": "float8_e4m3fn"} if lever.name == "float8-linear" else {})
        needed = {name: of_lever[name] for name, it in lever.parameters.items() if it.required}
        changes = lever.rewrite(FACTS, make_setting(lever.name, **needed))  # type: ignore[arg-type]
        assert changes
        assert not any("does not define" in getattr(it, "reason", "") for it in changes)


def test_sites_in_several_files(tmp_path: Path) -> None:
    """Model and loop in one file, loader in another, with names of its own."""
    main, data = tmp_path / "train.py", tmp_path / "data.py"
    data.write_text("import torch.utils.data as tud\n\ndef make():\n    return tud.DataLoader(ds)\n")
    main.write_text(f"import data\nloader = data.make()\noptimizer = AdamW(model.parameters())\n{LOOP}")
    one, two = facts_of(main), facts_of(data)
    loaders = tuple(it for it in two.loaders if it.site is not None and "DataLoader" in it.site.what)
    facts = msgspec.structs.replace(one, loaders=loaders, files=(*one.files, *two.files))
    settings = (
        make_setting("loader", num_workers=1, persistent_workers=True, prefetch_factor=2),
        make_setting("fused-optimizer", implementation="fused"),
        make_setting("mixed-precision", dtype="bfloat16"),
    )
    changes = [(it, find(it.lever).rewrite(facts, it)) for it in settings]
    patch = make_patch(facts, changes, script=main, directory=tmp_path)
    assert not patch.left_out
    texts = {Path(it.path).name: it.after for it in patch.files}
    assert "tud.DataLoader(ds, num_workers=1, prefetch_factor=2, persistent_workers=True)" in texts["data.py"]
    assert texts["train.py"].startswith("import data\nimport torch\n")


def test_files_of_libraries_are_left_alone(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "library"
    package.mkdir(parents=True)
    path = package / "train.py"
    path.write_text("o = AdamW(p)\n")
    facts = facts_of(path)
    setting = make_setting("fused-optimizer", implementation="fused")
    patch = make_patch(facts, [(setting, find(setting.lever).rewrite(facts, setting))], script=None, directory=tmp_path)
    assert not patch.files and "not one of your files" in patch.left_out[0].reason


def test_a_file_that_changed_since_the_study(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("o = AdamW(p)\n")
    facts = facts_of(path)
    path.write_text("o = AdamW(p)  # new\n")
    setting = make_setting("fused-optimizer", implementation="fused")
    patch = make_patch(facts, [(setting, find(setting.lever).rewrite(facts, setting))], script=path, directory=tmp_path)
    assert not patch.files and "changed since" in patch.left_out[0].reason
