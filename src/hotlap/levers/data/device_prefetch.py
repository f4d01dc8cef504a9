"""The next batch is copied to the device while this one computes.

## What it does
Watches which tensors of a batch the script copies to the GPU. From the second batch on, one batch is fetched ahead and
those tensors are copied from pinned memory on a separate stream. When the script then copies the tensor, it gets the
finished copy, and its stream waits for it. A tensor that the script changed in between is copied normally.

## When it helps
If copying the inputs takes a notable share of the step and cannot overlap with computation: large inputs, a slow link,
or a loop that copies from pageable memory.

## What it costs
One more batch in the device's memory. Batches that are not pinned are first copied into pinned memory. An error in the
data set is raised one batch earlier.

## Before
    for images, labels in loader:
        images, labels = images.cuda(), labels.cuda()

## After
    for images, labels in prefetched(loader, device):  # a generator that copies ahead on its own stream
        ...

## What is proved
`exact`: the same batches in the same order. If the data set draws random numbers in the training process, fetching
ahead changes their order, and the proof is that of `rounding`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from hotlap.levers.support.device_copies import Copy, answer_copies, tensors_in, weak_table
from hotlap.levers.support.situations import bound_without, is_nvidia_like, make_setting
from hotlap.levers.support.switching import Switch
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Fetch, Hooks

title = "The next batch is copied while this one computes"
proof: Proof = "exact"
addresses = ("pageable-copies", "blocking-copies")
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a GPU to copy to, and a loader whose batches can be fetched ahead."""
    if not is_nvidia_like(situation):
        return Skipped(reason="The script does not train on a GPU, so there is no copy to hide.")
    if not situation.facts.loaders:
        return Skipped(reason="The script feeds its steps without a DataLoader, so nothing can be fetched ahead.")
    if situation.account.wall > 0 and situation.account.seconds_in("host_to_device") <= 0:
        return Skipped(reason="No copies to the device were seen in the training steps.")
    return None


def bound(situation: Situation) -> float | None:
    """The largest gain is to remove the copies."""
    return bound_without(situation, "host_to_device")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("device-prefetch"),)


def proof_for(situation: Situation, setting: Setting) -> Proof:
    """Fetching ahead reorders random draws if the data set draws in the training process."""
    return "rounding" if changes_randomness(situation, setting) else "exact"


def changes_randomness(situation: Situation, setting: Setting) -> bool:
    """Whether a data set draws random numbers while fetching."""
    return any(loader.draws_random for loader in situation.facts.loaders)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """It needs a class that is too long for a script."""
    return (NoSourceForm(reason="It cannot be written into a script in a few lines."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Fetch one batch ahead and serve the script's copies from it."""
    prefetch(hooks, CudaSide(hooks)).on()


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """A batch that lies ahead when it is taken off is the next one."""
    return prefetch(hooks, CudaSide(hooks))


class Side(Protocol):
    """The interface of an engine that copies on a side stream."""

    device_type: str

    def copy(self, tensor: Any, device: Any, plain: Copy) -> Any:
        """Start copying; return a ticket."""
        ...

    def take(self, ticket: Any) -> Any:
        """Return the copy, safe to use on the current stream."""
        ...


class CudaSide:
    """A separate CUDA stream on each device.

    Source of the pattern: PyTorch's notes on CUDA semantics: ``wait_event`` orders the consumer after the copy, and
    ``record_stream`` keeps the allocator from reusing the memory too early.
    """

    device_type = "cuda"

    def __init__(self, hooks: Hooks) -> None:
        self._cuda = hooks.torch.cuda
        self._streams: dict[Any, Any] = {}

    def copy(self, tensor: Any, device: Any, plain: Copy) -> tuple[Any, Any]:
        """The pending copy, and the event that marks its end."""
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = self._cuda.Stream(device=device)
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        with self._cuda.stream(stream):
            copied = plain(pinned, device, non_blocking=True)
            return copied, stream.record_event()

    def take(self, ticket: tuple[Any, Any]) -> Any:
        """Order the current stream after the copy."""
        copied, ready = ticket
        current = self._cuda.current_stream(copied.device)
        current.wait_event(ready)
        copied.record_stream(current)
        return copied


@dataclass(slots=True)
class _Ahead:
    """The state of one iterator: where the script sent the n-th tensor of a batch, and the batch fetched ahead."""

    destinations: dict[int, Any] = field(default_factory=dict)
    batches: list[Any] = field(default_factory=list)
    exhausted: bool = False


@dataclass(slots=True)
class _Expected:
    """A tensor of a batch that the script holds; ``version`` is torch's count of in-place changes."""

    ahead: _Ahead
    position: int
    version: int
    ticket: Any = None


def prefetch(hooks: Hooks, side: Side) -> Switch:
    """Install the lever's hooks, off at first; ``side`` does the copying."""
    torch = hooks.torch
    is_on = False
    plain_to: Copy = torch.Tensor.to
    iterators: WeakKeyDictionary[Any, _Ahead] = WeakKeyDictionary()
    expected = weak_table()

    def fetch_and_copy(ahead: _Ahead, fetch: Fetch) -> Any:
        batch = fetch()
        for position, tensor in enumerate(tensors_in(torch, batch)):
            if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.requires_grad:
                continue
            awaited = expected[tensor] = _Expected(ahead, position, tensor._version)
            if position in ahead.destinations:
                awaited.ticket = side.copy(tensor, ahead.destinations[position], plain_to)
        return batch

    def around_fetch(iterator: Any, fetch: Fetch) -> Any:
        ahead = iterators.setdefault(iterator, _Ahead())
        if ahead.exhausted and not ahead.batches:
            raise StopIteration
        if not is_on:
            return ahead.batches.pop() if ahead.batches else fetch()
        batch = ahead.batches.pop() if ahead.batches else fetch_and_copy(ahead, fetch)
        if ahead.destinations and not ahead.exhausted:
            try:
                ahead.batches.append(fetch_and_copy(ahead, fetch))
            except StopIteration:
                ahead.exhausted = True
        return batch

    def around_start(loader: Any, start: Fetch) -> Any:
        iterator = start()
        if iterator in iterators:  # workers that persist keep their iterator: a new epoch begins
            iterators[iterator] = _Ahead(destinations=iterators[iterator].destinations)
        return iterator

    def answer(tensor: Any, plain: Copy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        awaited: _Expected = expected.pop(tensor)
        to_device = plain.__name__ == side.device_type or _names_a_device(torch, args, kwargs, side.device_type)
        if awaited.ticket is not None and to_device and tensor._version == awaited.version:
            return plain(side.take(awaited.ticket), *args, **kwargs)
        copied = plain(tensor, *args, **kwargs)
        if copied.device.type == side.device_type:
            awaited.ahead.destinations[awaited.position] = copied.device
        return copied

    def turn(on: bool) -> None:
        nonlocal is_on
        is_on = on

    hooks.around_fetch.append(around_fetch)
    hooks.around_loader_start.append(around_start)
    answer_copies(torch, expected, answer)
    return Switch(on=partial(turn, True), off=partial(turn, False))


def _names_a_device(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device_type: str) -> bool:
    """Whether ``to`` was called with a device of that type."""
    wanted = kwargs.get("device", args[0] if args else None)
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.device
    if isinstance(wanted, (str, int)) and not isinstance(wanted, bool):
        wanted = torch.device(wanted)
    return isinstance(wanted, torch.device) and wanted.type == device_type
