"""A small stand-in for the interception: it calls the hooks where the real one does, around a real training loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hotlap.levers.api import find
from hotlap.records import Setting
from hotlap.runtime.hooks import Hooks

MKLDNN = dir(torch.backends.mkldnn)
"""Precisions of its own for convolutions are newer than the oldest torch that is supported."""

KERNELS = ("flash", "mem_efficient", "cudnn")


class Driver:
    """Each method is one entry point of torch, with the hooks called as in a child process."""

    def __init__(self) -> None:
        self.hooks = Hooks(torch=torch)
        self._found: dict[int, Any] = {}  # with the models, since one that is gone leaves its id to another

    def install(self, setting: Setting) -> None:
        find(setting.lever).install(self.hooks, setting)

    def loader(self, *args: Any, **kwargs: Any) -> Any:
        kind = torch.utils.data.DataLoader
        bound = inspect.signature(kind.__init__).bind(None, *args, **kwargs)
        arguments = {name: value for name, value in bound.arguments.items() if name != "self"}
        for edit in self.hooks.before_loader:
            edit(arguments)
        loader = kind(**arguments)
        for tell in self.hooks.after_loader:
            tell(loader)
        return loader

    def start(self, loader: Any, make: Callable[[Any], Any] = iter) -> Any:
        return self._through(self.hooks.around_loader_start, loader, lambda: make(loader))

    def batches(self, loader: Any) -> Iterator[Any]:
        iterator = self.start(loader)
        while True:
            try:
                batch = self._through(self.hooks.around_fetch, iterator, functools.partial(next, iterator))
            except StopIteration:
                return
            yield batch

    def optimizer(self, kind: type, params: Any, **arguments: Any) -> Any:
        arguments = {"params": params, **arguments}
        for edit in self.hooks.before_optimizer:
            edit(kind, arguments)
        optimizer = kind(**arguments)
        for tell in self.hooks.after_optimizer:
            tell(optimizer)
        return optimizer

    def forward(self, root: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._through(self.hooks.around_evaluation, root, lambda: root(*args, **kwargs))
        if id(root) not in self._found:
            self._found[id(root)] = root
            for tell in self.hooks.model_found:
                tell(root)
        for prepare in self.hooks.before_forward:
            args, kwargs = prepare(root, args, kwargs)
        try:
            output = root(*args, **kwargs)
        except Exception:
            for tell_failed in self.hooks.forward_failed:
                tell_failed()
            raise
        for tell_output in self.hooks.after_forward:
            tell_output(root, output)
        return output

    def backward(self, loss: Any) -> None:
        for replace in self.hooks.before_backward:
            loss = replace(loss)
        torch.autograd.backward(loss)
        for tell in self.hooks.after_backward:
            tell()

    def clip(self, parameters: Any, limit: float) -> Any:
        parameters = list(parameters)
        for tell in self.hooks.before_clip:
            tell(parameters, limit)
        return torch.nn.utils.clip_grad_norm_(parameters, limit)

    def step(self, optimizer: Any, *args: Any) -> Any:
        def update() -> Any:
            for begin in self.hooks.before_update:
                begin(optimizer)
            result = optimizer.step(*args)
            for tell in self.hooks.after_update:
                tell(optimizer)
            return result

        return self._through(self.hooks.around_step, optimizer, update)

    @staticmethod
    def _through(wrappers: list[Any], subject: Any, call: Callable[[], Any]) -> Any:
        for wrap in reversed(wrappers):
            call = functools.partial(wrap, subject, call)
        return call()


@pytest.fixture(scope="session")
def driver_kind() -> type[Driver]:
    """For a test that needs several, whose levers change nothing of torch."""
    return Driver


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver whose levers are undone after the test."""
    settings = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        {name: getattr(torch.backends.mkldnn, name).fp32_precision for name in ("conv", "rnn") if name in MKLDNN},
    )
    kernels = {name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in KERNELS}
    torch.manual_seed(0)
    yield Driver()
    for name, is_on in kernels.items():
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(is_on)
    for name in ("to", "cuda"):
        if name in vars(torch.Tensor):
            delattr(torch.Tensor, name)
    torch.set_num_threads(settings[0])
    torch.set_float32_matmul_precision(settings[1])
    torch.backends.cudnn.benchmark = settings[2]
    for name, precision in settings[3].items():
        getattr(torch.backends.mkldnn, name).fp32_precision = precision
    assert not torch.is_autocast_enabled("cpu"), "a lever left an autocast region open"


@pytest.fixture
def model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


@pytest.fixture
def batch() -> tuple[Any, Any]:
    torch.manual_seed(2)
    return torch.randn(8, 6), torch.randint(0, 3, (8,))
