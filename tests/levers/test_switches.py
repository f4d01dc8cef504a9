"""Every lever that can be put on and taken off while a process trains: off, it leaves no trace; on, it is what a launch
with it would be."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hotlap.errors import LeverError
from hotlap.levers.api import Lever, all_levers
from hotlap.levers.support.situations import make_setting
from hotlap.levers.support.switching import gated, remembered
from hotlap.plan import setting as plan_setting
from hotlap.records import Plan, Setting, SwitchLevers
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.instruments import switch_levers

SETTINGS: dict[str, Setting] = {
    "attention-kernel": make_setting("attention-kernel", kernel="math"),
    "channels-last": make_setting("channels-last"),
    "compile": make_setting("compile", mode="default", dynamic=False),
    "cpu-threads": make_setting("cpu-threads", threads=1),
    "cudnn-benchmark": make_setting("cudnn-benchmark"),
    "device-prefetch": make_setting("device-prefetch"),
    "fused-optimizer": make_setting("fused-optimizer", implementation="fused"),
    "matmul-precision": make_setting("matmul-precision", precision="medium"),
    "mixed-precision": make_setting("mixed-precision", dtype="bfloat16"),
    "packed-sequences": make_setting("packed-sequences"),
    "pinned-threads": make_setting("pinned-threads", workers="apart"),
    "sdpa-attention": make_setting("sdpa-attention"),
}
"""One for every lever that has a switch; the first test fails if one is missing."""

SWITCHABLE = [
    pytest.param(it, id=it.name, marks=[pytest.mark.slow] if it.name == "compile" else [])
    for it in all_levers().values()
    if it.switch is not None
]
every_switch = pytest.mark.parametrize("lever", SWITCHABLE)


class Training:
    """A small network with convolutions, norms and attention, trained step by step through the hooks."""

    def __init__(self, driver: Any, optimizer: type = torch.optim.AdamW) -> None:
        from transformers import BertConfig, BertModel

        torch.manual_seed(3)
        config = BertConfig(  # type: ignore[call-arg]
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            vocab_size=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
        self.model = torch.nn.ModuleDict(
            {
                "images": torch.nn.Sequential(
                    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.Conv2d(16, 16, 1)
                ),
                "words": BertModel(config, add_pooling_layer=False),
                "head": torch.nn.Linear(16, 4),
            }
        )
        self.model.forward = self._forward  # type: ignore[method-assign]
        self.driver = driver
        self.optimizer = driver.optimizer(optimizer, self.model.parameters(), lr=1e-2)

    def _forward(self, images: Any) -> Any:
        features = self.model["images"](images).flatten(2).transpose(1, 2)
        return self.model["head"](self.model["words"](inputs_embeds=features).last_hidden_state.mean(1))

    def step(self, number: int) -> Any:
        draw = torch.Generator().manual_seed(number)
        images = torch.randn(6, 3, 4, 4, generator=draw)
        labels = torch.randint(0, 4, (6,), generator=draw)
        loss = torch.nn.functional.cross_entropy(self.driver.forward(self.model, images), labels)
        self.optimizer.zero_grad()
        self.driver.backward(loss)
        self.driver.step(self.optimizer)
        return loss.item()

    def state(self) -> tuple[Any, Any]:
        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))

    def load(self, state: tuple[Any, Any]) -> None:
        self.model.load_state_dict(state[0])
        self.optimizer.load_state_dict(copy.deepcopy(state[1]))

    def layout(self) -> list[tuple[str, Any, tuple[int, ...], Any]]:
        """The layout in memory of every tensor that it holds."""
        tensors = [*self.model.state_dict().items()]
        tensors += [(name, it.grad) for name, it in self.model.named_parameters() if it.grad is not None]
        for name, it in self.model.named_parameters():
            tensors += [(f"{name} {key}", value) for key, value in self.optimizer.state[it].items()]
        return [(name, it.dtype, it.stride(), it.device) for name, it in tensors]


@pytest.fixture
def process() -> Callable[[], tuple[Any, ...]]:
    """What levers may set in the process as a whole."""
    parts = [getattr(torch.backends.mkldnn, it) for it in ("conv", "rnn") if hasattr(torch.backends.mkldnn, it)]
    return lambda: (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.is_autocast_enabled("cpu"),
        [it.fp32_precision for it in parts],
        torch.get_default_dtype(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        {tuple(sorted(os.sched_getaffinity(int(it.name)))) for it in Path("/proc/self/task").iterdir()},
    )


@pytest.fixture(autouse=True)
def one_thread_and_no_compiled_code_left() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)
    torch.compiler.reset()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), os.sched_getaffinity(0))


def switch_of(lever: Lever, driver: Any) -> Any:
    assert lever.switch is not None
    return lever.switch(driver.hooks, SETTINGS[lever.name])


def test_every_switch_is_tested() -> None:
    assert {it.name for it in all_levers().values() if it.switch is not None} == set(SETTINGS)


@every_switch
def test_off_it_leaves_no_trace(lever: Lever, driver: Any, process: Callable[[], tuple[Any, ...]]) -> None:
    """On and off twice, without a step in between: the losses are those of a process that never had it, to the bit."""
    plain = Training(type(driver)())
    expected = [plain.step(it) for it in range(4)]
    switch = switch_of(lever, driver)
    training = Training(driver)
    found = [training.step(0)]
    settings, layout = process(), training.layout()
    for _ in range(2):
        switch.on()
        switch.off()
    assert (process(), training.layout()) == (settings, layout)
    found += [training.step(it) for it in range(1, 4)]
    assert found == expected
    assert training.layout() == plain.layout()


@every_switch
def test_after_steps_with_it_all_is_held_as_before(
    lever: Lever, driver: Any, process: Callable[[], tuple[Any, ...]]
) -> None:
    switch = switch_of(lever, driver)
    training = Training(driver)
    training.step(0)
    settings, layout = process(), training.layout()
    for number in range(1, 5, 2):
        switch.on()
        training.step(number)
        switch.off()
        training.step(number + 1)
    assert (process(), training.layout()) == (settings, layout)
    plain = Training(type(driver)())
    plain.step(0)
    plain.load(training.state())
    assert [training.step(it) for it in range(5, 8)] == [plain.step(it) for it in range(5, 8)]


@every_switch
def test_on_it_trains_as_a_launch_with_it(lever: Lever, driver: Any) -> None:
    switch = switch_of(lever, driver)
    switched = Training(driver)
    switched.step(0)
    before = switched.state()
    switch.on()
    found = [switched.step(it) for it in range(1, 4)]
    switch.off()
    installed = type(driver)()
    installed.install(SETTINGS[lever.name])
    launched = Training(installed)
    launched.step(0)
    launched.load(before)
    assert found == [launched.step(it) for it in range(1, 4)]


@every_switch
def test_on_before_anything_is_found_it_is_on_for_what_comes(
    lever: Lever, driver: Any, process: Callable[[], tuple[Any, ...]]
) -> None:
    settings = process()
    switch = switch_of(lever, driver)
    switch.on()
    training = Training(driver)
    assert all(abs(training.step(it)) < 10 for it in range(2))
    switch.off()
    assert process() == settings
    training.step(2)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
@pytest.mark.parametrize("implementation", ["fused", "foreach"])
def test_optimizers_of_all_kinds_change_their_form(driver: Any, kind: type, implementation: str) -> None:
    lever = all_levers()["fused-optimizer"]
    assert lever.switch is not None
    switch = lever.switch(driver.hooks, make_setting("fused-optimizer", implementation=implementation))
    training = Training(driver, kind)
    training.step(0)
    layout, groups = training.layout(), copy.deepcopy([_flags(it) for it in training.optimizer.param_groups])
    switch.on()
    assert all(it[implementation] for it in training.optimizer.param_groups)
    training.step(1)
    switch.off()
    assert training.layout() == layout
    assert [_flags(it) for it in training.optimizer.param_groups] == groups


def _flags(group: dict[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in group.items() if name != "params"}


def test_an_optimizer_whose_script_chose_its_form_keeps_it(driver: Any) -> None:
    lever = all_levers()["fused-optimizer"]
    assert lever.switch is not None
    switch = lever.switch(driver.hooks, SETTINGS["fused-optimizer"])
    model = torch.nn.Linear(2, 2)
    optimizer = driver.optimizer(torch.optim.AdamW, model.parameters(), foreach=True)
    switch.on()
    assert not optimizer.param_groups[0]["fused"] and optimizer.param_groups[0]["foreach"]


def test_a_closed_gate_changes_nothing() -> None:
    hooks = Hooks(torch=torch)
    called: list[str] = []

    def install(inner: Hooks) -> None:
        inner.before_forward.append(lambda root, args, kwargs: (("changed",), {}))
        inner.before_backward.append(lambda tensor: "changed")
        inner.around_step.append(lambda optimizer, step: called.append("around"))
        inner.around_save.append(lambda save: "changed")
        inner.after_optimizer.append(lambda optimizer: called.append("made"))
        inner.note("heard")

    switch = gated(hooks, install)

    def through() -> list[object]:
        return [
            hooks.before_forward[0](None, ("own",), {}),
            hooks.before_backward[0]("own"),
            hooks.around_step[0](None, lambda: "stepped"),
            hooks.around_save[0](lambda: "saved"),
        ]

    own = [(("own",), {}), "own", "stepped", "saved"]  # type: ignore[var-annotated]
    assert through() == own
    hooks.after_optimizer[0](None)
    assert called == ["made"] and hooks.notes == ["heard"]
    switch.on()
    assert through() == [(("changed",), {}), "changed", None, "changed"]
    switch.off()
    assert through() == own


def test_a_remembered_value_comes_back_as_it_was_when_it_was_put_on() -> None:
    holder = {"value": 1}
    switch = remembered(lambda: holder["value"], lambda value: holder.update(value=value), 7)
    switch.on()
    assert holder["value"] == 7
    switch.off()
    holder["value"] = 2  # by the script
    switch.on()
    switch.off()
    assert holder["value"] == 2


class Place:
    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks


def test_configurations_follow_each_other_in_any_order(driver: Any, process: Callable[[], tuple[Any, ...]]) -> None:
    one, two = SETTINGS["cpu-threads"], SETTINGS["matmul-precision"]
    plans = tuple(Plan(settings=it) for it in ((), (one,), (two,), (one, two)))
    settings = process()
    switch_levers.install(Place(driver.hooks), SwitchLevers(configurations=plans))  # type: ignore[arg-type]
    (change,) = driver.hooks.configuration_changed
    seen = {}  # type: ignore[var-annotated]
    for number in (0, 3, 1, 2, 2, 0, 1, 3, 0):
        change(number)
        seen.setdefault(number, set()).add((torch.get_num_threads(), torch.get_float32_matmul_precision()))
    threads, precision = settings[0], settings[1]
    assert seen == {0: {(threads, precision)}, 1: {(1, precision)}, 2: {(threads, "medium")}, 3: {(1, "medium")}}
    assert process() == settings


@pytest.mark.parametrize(
    "wanted",
    [plan_setting("huge-pages"), make_setting("compile", mode="default", freezing=True)],
    ids=lambda it: it.lever,
)
def test_what_cannot_be_switched_is_refused_by_name(driver: Any, wanted: Setting) -> None:
    asked = SwitchLevers(configurations=(Plan(settings=(wanted,)),))
    with pytest.raises(LeverError, match=wanted.lever):
        switch_levers.install(Place(driver.hooks), asked)  # type: ignore[arg-type]
