"""The parts of a script, one by one: each option does what its line says."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest
import torch
from torch import Tensor

from hotlap.source.scaffold.compose import Task

CPU = torch.device("cpu")
Modules = dict[Task, ModuleType]


@pytest.fixture
def lm(modules: Modules) -> ModuleType:
    """The language model's script."""
    return modules["lm"]


def options(module: ModuleType, **changed: Any) -> Any:
    small = {"width": 16, "dropout": 0.0, "workers": 0, "batch_size": 4}
    if hasattr(module.Options, "length"):
        small |= {"layers": 1, "length": 8}
    return module.Options(**(small | changed))


def trainer(module: ModuleType, **changed: Any) -> Any:
    torch.manual_seed(0)
    return module.Trainer(options(module, **changed), CPU, steps=100)


def batches(count: int, size: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(256, (count * size, 9), generator=generator)
    return [(it[:, :-1], it[:, 1:]) for it in text.split(size)]


# -- the command line ------------------------------------------------------------------------------


def test_every_field_is_a_flag(modules: Modules, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules[task]
    hints = get_type_hints(module.Options)
    words = ["train.py"]
    expected = {}
    for field in dataclasses.fields(module.Options):
        flag = f"--{field.name.replace('_', '-')}"
        changed = {int: 7, float: 0.25, str: "meta", bool: True, Path: Path("other.pt")}.get(hints[field.name])
        value: Any = changed if changed is not None else {"precision": "fp16", "compile": "off"}[field.name]
        words += [flag] if value is True else [flag, str(value)]
        expected[field.name] = value
    monkeypatch.setattr(sys, "argv", words)
    assert dataclasses.asdict(module.parse_options()) == expected
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert module.parse_options() == module.Options()


def test_help_shows_every_default(
    lm: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
    with pytest.raises(SystemExit):
        lm.parse_options()
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("(default: ") == len(dataclasses.fields(lm.Options))
    assert "(default: checkpoint.pt)" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch-size", "0"], "begin at 1"),
        (["--log-every", "0"], "begin at 1"),
        (["--precision", "int8"], "invalid choice"),
        (["--lr", "1"], "unrecognized arguments"),
    ],
)
def test_what_cannot_be_is_said_plainly(
    lm: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    with pytest.raises(SystemExit):
        lm.parse_options()
    assert said in capsys.readouterr().err


# -- the data --------------------------------------------------------------------------------------


def test_data_is_the_same_each_time_and_split_without_overlap(modules: Modules, task: Task) -> None:
    module = modules[task]
    first, again = module.load_data(module.Options()), module.load_data(module.Options())
    for one, two in zip(first, again, strict=True):
        assert len(one) == len(two) > 100
        for index in (0, len(one) // 2, len(one) - 1):
            assert all(torch.equal(a, b) for a, b in zip(one[index], two[index], strict=True))
    training, validation = first
    assert len(training) > 2 * len(validation)
    shapes = {(one.shape, two.shape) for dataset in first for one, two in (dataset[0], dataset[len(dataset) - 1])}
    assert len(shapes) == 1


def test_without_scikit_learn_it_says_what_to_install(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match="pip install scikit-learn"):
        modules["image"].load_data(modules["image"].Options())


def test_all_packages_are_found_and_required(modules: Modules) -> None:
    module = modules["text"]
    for pieces in module.load_data(module.Options()):
        counts = torch.bincount(pieces.packages, minlength=len(module.PACKAGES))
        assert counts.min() > 10 and counts.max() / counts.sum() < 0.3


def test_the_next_byte_is_the_target(lm: ModuleType) -> None:
    training, _ = lm.load_data(lm.Options())
    inputs, targets = training[3]
    assert torch.equal(inputs[1:], targets[:-1])
    assert torch.equal(training[4][0][:1], targets[-1:])


def test_a_language_model_never_looks_ahead(lm: ModuleType) -> None:
    model = lm.build_model(options(lm)).eval()
    text = batches(1, 2)[0][0]
    other = text.clone()
    other[:, 5:] += 1
    assert torch.equal(model(text)[:, :5], model(other % 256)[:, :5])
    assert not torch.equal(model(text)[:, 5:], model(other % 256)[:, 5:])


# -- the order of samples --------------------------------------------------------------------------


def order(module: ModuleType, samples: int, **changed: Any) -> Any:
    return module.SampleOrder(samples, options(module, **changed))


def test_an_epoch_is_whole_steps_without_repeats(lm: ModuleType) -> None:
    made = order(lm, 50, accumulation=3)
    assert (made.steps, len(made), len(list(made))) == (4, 48, 48)
    assert len(set(made)) == 48


def test_the_order_goes_on_anywhere(lm: ModuleType) -> None:
    made = order(lm, 50)
    whole = list(made)
    made.first_step = 5
    assert list(made) == whole[20:] and len(made) == 28
    made.first_step = 12
    assert sorted(made) != whole and list(made) != whole


def test_processes_share_an_epoch(lm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = order(lm, 50, batch_size=8)
    shares = []
    monkeypatch.setattr(lm, "PROCESSES", 2)
    for rank in (0, 1):
        monkeypatch.setattr(lm, "RANK", rank)
        shares.append(list(order(lm, 50)))
    assert len(shares[0]) == len(shares[1]) == 24
    assert set(shares[0]).isdisjoint(shares[1])
    monkeypatch.setattr(lm, "PROCESSES", 1)
    monkeypatch.setattr(lm, "RANK", 0)
    assert set(shares[0][:4] + shares[1][:4]) == set(list(alone)[:8])


def test_too_few_samples_for_a_step(lm: ModuleType) -> None:
    with pytest.raises(SystemExit, match="7 samples are not enough for one step"):
        order(lm, 7, accumulation=2)


def test_batches_come_from_any_step_on(lm: ModuleType) -> None:
    class Numbers(torch.utils.data.Dataset[tuple[int, int]]):
        def __getitem__(self, index: int) -> tuple[int, int]:
            return index, 0

    chosen = options(lm, batch_size=3, accumulation=2)

    def first(count: int, step: int) -> list[list[int]]:
        made = lm.SampleOrder(20, chosen)
        stream = lm.batches_from(step, lm.make_loader(Numbers(), made, chosen, CPU), made)
        return [next(stream)[0].tolist() for _ in range(count)]

    assert first(14, 0)[8:] == first(6, 4)
    assert first(14, 0)[6:] != first(8, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader(lm: ModuleType, workers: int) -> None:
    made = lm.make_loader([(1, 2)] * 8, None, options(lm, workers=workers, prefetch=3), CPU)
    assert (made.num_workers, made.persistent_workers, made.batch_size) == (workers, workers > 0, 4)
    assert made.prefetch_factor == (3 if workers else None)
    assert not made.pin_memory
    assert lm.make_loader([(1, 2)] * 8, None, options(lm), torch.device("cuda")).pin_memory


def test_workers_leave_a_core_to_the_model(lm: ModuleType) -> None:
    assert 0 <= lm.Options().workers <= min(4, lm.CORES - 1)


# -- the device ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "available", "expected"),
    [
        ("auto", False, "cpu"),
        ("auto", True, "cuda:3"),
        ("cuda", True, "cuda:3"),
        ("cuda:1", True, "cuda:1"),
        ("cpu", True, "cpu"),
    ],
)
def test_each_process_has_a_device(
    lm: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, available: bool, expected: str
) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert lm.start(options(lm, device=name)) == torch.device(expected)
    assert chosen == ([] if expected == "cpu" else [torch.device(expected)])


# -- precision and compilation ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((6, 1), torch.float32), ((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_the_precision_follows_the_hardware(
    lm: ModuleType, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    assert lm.choose_dtype("auto", torch.device("cuda")) == expected
    assert lm.choose_dtype("auto", CPU) == torch.float32
    assert lm.choose_dtype("fp16", CPU) == torch.float16


@pytest.mark.parametrize(("precision", "scales"), [("fp32", False), ("bf16", False), ("fp16", True)])
def test_only_float16_is_scaled(lm: ModuleType, precision: str, scales: bool) -> None:
    made = trainer(lm, precision=precision)
    assert made.scaler.is_enabled() is scales
    with made.autocast():
        logits = made.model(batches(1, 4)[0][0])
    assert logits.dtype == made.dtype


def test_compilation_needs_a_compiler(lm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(lm.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(lm.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert lm.should_compile("auto", cuda) and lm.should_compile("on", CPU)
    assert not lm.should_compile("auto", CPU) and not lm.should_compile("off", cuda)
    monkeypatch.setattr(lm.shutil, "which", lambda name: None)
    assert not lm.should_compile("auto", cuda)
    monkeypatch.setattr(lm.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(lm.importlib.util, "find_spec", lambda name: None)
    assert not lm.should_compile("auto", cuda)


# -- a step ----------------------------------------------------------------------------------------


def gradient(made: Any, given: list[tuple[Tensor, Tensor]], monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """What the first step would give to the optimizer, before it is clipped."""
    seen: list[Tensor] = []

    def watched(parameters: Any, most: float) -> None:
        seen.append(torch.cat([it.grad.flatten() for it in parameters]))

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", watched)
        made.step(iter(given))
    return seen[0]


def test_accumulation_is_one_large_batch(lm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    large, parts = trainer(lm, batch_size=8), trainer(lm, batch_size=4, accumulation=2)
    whole = batches(1, 8)
    halves = list(zip(whole[0][0].split(4), whole[0][1].split(4), strict=True))
    torch.testing.assert_close(gradient(large, whole, monkeypatch), gradient(parts, halves, monkeypatch))
    torch.testing.assert_close(large.step(iter(whole)), parts.step(iter(halves)))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_gradients_are_clipped_after_their_scale_is_taken_away(
    lm: ModuleType, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    made = trainer(lm, precision=precision, clip=0.5)
    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def watched(parameters: Any, most: float) -> Tensor:
        given = list(parameters)
        before = clip(given, most)
        norms.append(float(before))
        assert torch.nn.utils.get_total_norm([it.grad for it in given]) <= most * 1.001
        return before

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watched)
    made.step(iter(batches(1, 4)))
    # A scaled gradient would be 65,536 times as long.
    assert len(norms) == 1 and 0.5 < norms[0] < 100


def test_the_loss_of_a_step_keeps_no_graph(lm: ModuleType) -> None:
    loss = trainer(lm, accumulation=2).step(iter(batches(2, 4)))
    assert loss.grad_fn is None and not loss.requires_grad and loss.shape == ()
    assert float(loss) == pytest.approx(torch.tensor(256.0).log().item(), rel=0.1)


def test_the_rate_rises_then_falls(lm: ModuleType) -> None:
    made = trainer(lm, warmup=0.1, learning_rate=1.0)
    rates = []
    for _ in range(100):
        rates.append(made.scheduler.get_last_lr()[0])
        made.optimizer.step()
        made.scheduler.step()
    top = rates.index(max(rates))
    assert 8 <= top <= 10 and rates[top] == pytest.approx(1.0)
    assert rates[: top + 1] == sorted(rates[: top + 1]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] < 0.001


def test_only_matrices_decay_in_a_fused_optimizer(modules: Modules, task: Task) -> None:
    made = trainer(modules[task], weight_decay=0.3)
    decay, none = made.optimizer.param_groups
    assert (decay["weight_decay"], none["weight_decay"], decay["fused"], none["fused"]) == (0.3, 0.0, True, True)
    assert all(it.dim() > 1 for it in decay["params"]) and all(it.dim() <= 1 for it in none["params"])
    assert len(decay["params"]) + len(none["params"]) == len(list(made.plain.parameters()))


def test_pictures_and_their_network_are_channels_last(modules: Modules) -> None:
    made = trainer(modules["image"], width=8)
    weight = made.plain.blocks[1].first.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    inputs, _ = made.to_device((torch.rand(4, 3, 8, 8), torch.zeros(4)))
    assert inputs.is_contiguous(memory_format=torch.channels_last)


# -- evaluation and checkpoints --------------------------------------------------------------------


def test_evaluation_is_exact_and_leaves_no_trace(lm: ModuleType) -> None:
    made = trainer(lm, dropout=0.5)
    samples = [(inputs, targets) for batch in batches(3, 3) for inputs, targets in zip(*batch, strict=True)]
    loader = lm.make_loader(samples, None, made.options, CPU)
    before = torch.get_rng_state()
    loss, accuracy = made.evaluate(loader)
    assert made.plain.training and torch.equal(before, torch.get_rng_state())
    made.plain.eval()
    logits = made.plain(torch.stack([inputs for inputs, _ in samples]))
    targets = torch.stack([targets for _, targets in samples])
    assert loss == pytest.approx(lm.cross_entropy(logits, targets).item(), rel=1e-5)
    assert accuracy == pytest.approx((logits.argmax(-1) == targets).float().mean().item(), rel=1e-5)


def test_a_checkpoint_cut_short_leaves_the_last_one(
    lm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(lm, checkpoint=tmp_path / "new" / "state.pt")
    made.save(3)

    def cut(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", cut)
    with pytest.raises(OSError, match="no space"):
        made.save(4)
    assert made.load() == 3


@pytest.mark.parametrize("changed", [{"seed": 1}, {"batch_size": 8}, {"accumulation": 2}])
def test_a_checkpoint_of_another_course_is_refused(lm: ModuleType, tmp_path: Path, changed: dict[str, int]) -> None:
    trainer(lm, checkpoint=tmp_path / "state.pt").save(1)
    with pytest.raises(
        SystemExit, match="The checkpoint is of another seed, batch size, number of epochs or of processes"
    ):
        trainer(lm, checkpoint=tmp_path / "state.pt", **changed).load()


def test_every_random_stream_goes_on(lm: ModuleType, tmp_path: Path) -> None:
    draw: Callable[[], tuple[float, float]] = lambda: (lm.random.random(), float(torch.rand(())))  # noqa: E731
    made = trainer(lm, checkpoint=tmp_path / "state.pt")
    draw()
    made.save(1)
    expected = draw()
    draw()
    made.load()
    assert draw() == expected
