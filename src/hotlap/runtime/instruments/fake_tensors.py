"""The script on tensors without data, for what its memory would be on a device that is not there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hotlap.records import FakeTensors
from hotlap.runtime.instruments.api import Place


def install(place: Place, asked: FakeTensors) -> None:
    """Parameters and buffers are fake as soon as a module has them, inputs when they enter the model.

    Data keep their numbers, so that samplers and data sets work. Memory that ``torch.empty`` reserves for a parameter
    is given back before anything is written to it.
    """
    from hotlap.runtime.memory.fake import Fakes
    from hotlap.runtime.not_finite.checked_steps import switch_compiling_off

    switch_compiling_off()
    hooks, fakes = place.hooks, Fakes()
    module, parameter = hooks.torch.nn.Module, hooks.torch.nn.Parameter
    plain_new, plain_register, plain_apply = parameter.__new__, module.register_buffer, module._apply

    @functools.wraps(plain_new)
    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        return plain_new(cls, fakes.of(data), requires_grad)

    @functools.wraps(plain_register)
    def register(self: Any, name: str, tensor: Any, persistent: bool = True) -> None:
        plain_register(self, name, fakes.of(tensor), persistent)

    @functools.wraps(plain_apply)
    def apply(self: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
        return fakes.converted(self, function) if recurse else plain_apply(self, function, recurse)

    def forward_begins(
        root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return fakes.of(args), fakes.of(kwargs)

    replace = place.interception.patches.replace
    replace(parameter, "__new__", new)
    replace(module, "register_buffer", register)
    replace(module, "_apply", apply)
    hooks.before_forward.append(forward_begins)
    hooks.before_exit.append(fakes.stop)
