"""Which calls of a tensor's methods are timed as copies to a device, with stand-ins for torch and the clock."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hotlap.runtime import outputs
from hotlap.runtime.copies import time_copies
from hotlap.runtime.stopwatch import HOST_TO_DEVICE, OTHER


def on(kind: str) -> Any:
    return SimpleNamespace(device=SimpleNamespace(type=kind))


class Clock:
    """Notes as what each phase was booked."""

    def __init__(self, *, follows_device: bool = True) -> None:
        self.follows_device = follows_device
        self.booked: list[int] = []

    def enter(self, phase: int) -> None:
        assert phase == HOST_TO_DEVICE

    def leave(self, as_phase: int) -> None:
        self.booked.append(as_phase)


def timed(torch: Any, clock: Any) -> None:
    """``clock`` has of a :class:`UnitClock` what is needed."""
    time_copies(torch, clock)


def torch_built_for(cuda: str | None) -> Any:
    """A torch whose tensors have ``to`` and ``cuda``, and no ``xpu``."""

    class Tensor:
        device = SimpleNamespace(type="cpu")

        def to(self, kind: str) -> Any:
            if kind == "nowhere":
                raise RuntimeError("no such device")
            return on(kind)

        def cuda(self) -> Any:
            return on("cuda")

    compiler = SimpleNamespace(is_compiling=lambda: False)
    return SimpleNamespace(version=SimpleNamespace(cuda=cuda), Tensor=Tensor, compiler=compiler)


def test_a_copy_to_a_device_is_a_phase_and_a_conversion_is_none() -> None:
    torch, clock = torch_built_for("13.0"), Clock()
    timed(torch, clock)
    tensor = torch.Tensor()
    tensor.to("cuda")
    tensor.to("cpu")
    tensor.cuda()
    with pytest.raises(RuntimeError, match="no such device"):
        tensor.to("nowhere")
    assert clock.booked == [HOST_TO_DEVICE, OTHER, HOST_TO_DEVICE, OTHER]
    assert not hasattr(torch.Tensor, "xpu")


def test_copies_of_other_threads_take_none_of_the_steps_time() -> None:
    torch, clock = torch_built_for("13.0"), Clock()
    timed(torch, clock)
    thread = threading.Thread(target=torch.Tensor().cuda)
    thread.start()
    thread.join()
    assert clock.booked == []


@pytest.mark.parametrize(("cuda", "follows"), [(None, True), ("13.0", False)])
def test_without_a_device_nothing_is_timed(cuda: str | None, follows: bool) -> None:
    torch, clock = torch_built_for(cuda), Clock(follows_device=follows)
    timed(torch, clock)
    assert torch.Tensor().to("cuda").device.type == "cuda" and clock.booked == []


def test_outputs_on_a_device_are_copied_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []

    def output(kind: str) -> Any:
        return SimpleNamespace(device=SimpleNamespace(type=kind), cpu=lambda: copied.append(kind))

    monkeypatch.setattr(outputs, "named_tensors", lambda it: [("logits", output("cuda")), ("mask", output("cpu"))])
    outputs.consume(object())
    assert copied == ["cuda"]
