"""The events of torch that hotlap observes, and the callables for each.

Levers, the step clock and the observers never patch torch themselves: they append callables to the lists of one
:class:`Hooks`, and :mod:`hotlap.runtime.interception` calls them. Every list is called in order of appending.
With all lists empty the user's program behaves exactly as without us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from weakref import ReferenceType, WeakKeyDictionary

from hotlap.records import Batching, LengthFacts
from hotlap.runtime.devices import device_kind
from hotlap.runtime.tokens import Tokens

Fetch: TypeAlias = Callable[[], Any]


@dataclass(slots=True)
class CapturedStep:
    """What a CUDA graph holds of a training step: the identities of the optimizers that update in it, how many backward
    passes, and the tensor that the last of them starts from (None where it is a list), which each replay fills."""

    optimizers: list[int] = field(default_factory=list)
    backwards: int = 0
    loss: ReferenceType[Any] | None = None


@dataclass(slots=True)
class Hooks:
    """Lists of callables, by the moment they are called at.

    A *root* is an outermost module that owns parameters held by an optimizer. "Training forward" means that
    gradients are being recorded; evaluation passes through none of the forward lists.
    """

    torch: ModuleType

    # DataLoader(...): the constructor's arguments by name, to be edited in place; then the loader itself.
    before_loader: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    after_loader: list[Callable[[Any], None]] = field(default_factory=list)
    # iter(loader): wraps the making of the iterator (worker start-up happens in there).
    around_loader_start: list[Callable[[Any, Fetch], Any]] = field(default_factory=list)
    # next(iterator): wraps the fetch of one batch; `fetch()` returns the batch or raises StopIteration.
    around_fetch: list[Callable[[Any, Fetch], Any]] = field(default_factory=list)

    # A torch optimizer's constructor: the class and its arguments by name, edited in place; then the optimizer.
    before_optimizer: list[Callable[[type, dict[str, Any]], None]] = field(default_factory=list)
    after_optimizer: list[Callable[[Any], None]] = field(default_factory=list)

    # DistributedDataParallel(...): the constructor's arguments by name, edited in place; then the wrapped model.
    before_data_parallel: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    after_data_parallel: list[Callable[[Any], None]] = field(default_factory=list)
    # In place of the constructor, with the same arguments: whether it made the wrapper something else.
    instead_of_data_parallel: list[Callable[[Any, dict[str, Any]], bool]] = field(default_factory=list)

    # fully_shard(...) and FullyShardedDataParallel(...): which ("fsdp2", "fsdp1"), and the arguments by name, edited in
    # place.
    before_sharding: list[Callable[[str, dict[str, Any]], None]] = field(default_factory=list)

    # deepspeed.initialize(...): the arguments by name, edited in place; then the engine.
    before_deepspeed: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    after_deepspeed: list[Callable[[Any], None]] = field(default_factory=list)
    # engine.step(), before it runs: all gradients of DeepSpeed's engine are exchanged, and none is used yet.
    before_engine_step: list[Callable[[Any], None]] = field(default_factory=list)

    # torch.compile(...), before it runs; Module.compile comes here too.
    before_compile: list[Callable[[], None]] = field(default_factory=list)

    # Once for each root, before its first training forward.
    model_found: list[Callable[[Any], None]] = field(default_factory=list)
    # Each training forward of a root: may replace (args, kwargs); afterwards the output.
    before_forward: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]] = (
        field(default_factory=list)
    )
    after_forward: list[Callable[[Any, Any], None]] = field(default_factory=list)
    # A training forward raised an error, in place of `after_forward`.
    forward_failed: list[Callable[[], None]] = field(default_factory=list)

    # loss.backward() / torch.autograd.backward: may replace the tensor it starts from; afterwards nothing.
    before_backward: list[Callable[[Any], Any]] = field(default_factory=list)
    after_backward: list[Callable[[], None]] = field(default_factory=list)
    # clip_grad_norm_ and clip_grad_value_, before they run: the parameters and the limit.
    before_clip: list[Callable[[Any, float], None]] = field(default_factory=list)
    # What they return: may replace it.
    after_clip: list[Callable[[Any], Any]] = field(default_factory=list)

    # optimizer.step(): wraps the whole call, closure included; may leave it out (a scaler that skips).
    around_step: list[Callable[[Any, Fetch], Any]] = field(default_factory=list)
    # A step that was really taken, before and after the update (torch's own global hooks).
    before_update: list[Callable[[Any], None]] = field(default_factory=list)
    after_update: list[Callable[[Any], None]] = field(default_factory=list)

    # A step that a lever left out, reported by that lever instead of the two above: it counts as a step too.
    update_skipped: list[Callable[[Any], None]] = field(default_factory=list)

    # A CUDA graph with backward passes was replayed: nothing else of the lists above is called within one.
    replayed: list[Callable[[CapturedStep], None]] = field(default_factory=list)

    # A whole training step is over (reported by the step clock, where there is one).
    step_ended: list[Callable[[], None]] = field(default_factory=list)

    # Nothing since the last step was training (told by the step clock, where there is one): EVALUATION or OUTSIDE of
    # `stopwatch.py`. Called repeatedly while it lasts.
    was_outside: list[Callable[[int], None]] = field(default_factory=list)

    # A forward pass before the training of this step was an evaluation of one batch, which is known only after a
    # backward pass (told by the step clock).
    evaluated_once: list[Callable[[], None]] = field(default_factory=list)

    # Whether a block whose steps are done goes on (asked by the session after each further step).
    holds_block: list[Callable[[], bool]] = field(default_factory=list)

    # The steps that follow are of that configuration (told by the session, between two steps).
    configuration_changed: list[Callable[[int], None]] = field(default_factory=list)

    # torch.save and its like, and evaluation forwards of a root: wraps them (time outside steps).
    around_save: list[Callable[[Fetch], Any]] = field(default_factory=list)
    around_evaluation: list[Callable[[Any, Fetch], Any]] = field(default_factory=list)

    # A call of an inference target's model is over, its output is consumed: a step of the clock.
    call_ended: list[Callable[[], None]] = field(default_factory=list)
    # One call of several that are a unit of work together is over.
    part_ended: list[Callable[[], None]] = field(default_factory=list)
    # A call in a script of the user's is over, and the script goes on: what holds for the model alone ends.
    back_to_script: list[Callable[[], None]] = field(default_factory=list)
    # What such a call returned, in the format that the script expects.
    output_to_script: list[Callable[[Any], Any]] = field(default_factory=list)
    # What such calls run under: contexts that are entered once, before the first call, within ``torch.no_grad()``.
    around_calls: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)

    # What runs an inference target's model in its place: made of the model and all its inputs, before the first call.
    takes_over: list[Callable[[Any, Sequence[tuple[tuple[Any, ...], dict[str, Any]]]], Callable[..., Any]]] = field(
        default_factory=list
    )
    # Whether such an engine must report what it does with the model, which takes longer.
    looks_into_engine: bool = False
    # Where such an engine writes its files; None: into a temporary folder.
    artefact: Path | None = None

    # The process is about to end, also when hotlap ends it.
    before_exit: list[Callable[[], None]] = field(default_factory=list)

    # hotlap is about to end it, and has written the evidence: what happens here is not in it.
    after_last_step: list[Callable[[], None]] = field(default_factory=list)

    # Of an inference target: how many inputs its model is called with in turn, and the file with its outputs.
    inputs: int = 0
    outputs_path: str = ""
    # Whether a script of the user's makes the calls.
    calls_in_script: bool = False
    # The name of the user's own metric of outputs, and the function itself; None: there is none.
    metric: tuple[str, Callable[..., Any]] | None = None
    # How whole passes over its sequences form batches, and what is known about their lengths (None: nothing).
    batching: Batching = field(default_factory=Batching)
    # Where calls of ``generate()`` are the units of work: what counts their tokens; and how many prompts share a call.
    generation: Tokens | None = None
    prompts_per_call: int = 1
    # How many inputs share a call, and the ways of doing so that the inputs allow: inputs per call, calls for all.
    inputs_per_call: int = 1
    shared_calls: tuple[tuple[int, int], ...] = ()
    lengths: LengthFacts | None = None

    # Notes of levers and observers for the report.
    notes: list[str] = field(default_factory=list)
    # What instruments found, as fields of the report; filled before the process ends.
    found: dict[str, Any] = field(default_factory=dict)
    scaler_skipped_steps: int = 0
    # The factor by which batches of loaders are enlarged or cut.
    batch_scale: float = 1.0
    _device_kinds: WeakKeyDictionary[Any, tuple[Any, str]] = field(default_factory=WeakKeyDictionary)

    def device_kind(self, root: Any) -> str:
        """As :func:`hotlap.runtime.devices.device_kind`; all parameters of a model are looked at only where its first
        one has moved."""
        first = next((it.device for it in root.parameters()), None)
        known = self._device_kinds.get(root)
        if known is None or known[0] != first:
            known = self._device_kinds[root] = (first, device_kind(root))
        return known[1]

    def note(self, text: str) -> None:
        """Add a sentence to the report, once."""
        if text not in self.notes:
            self.notes.append(text)
