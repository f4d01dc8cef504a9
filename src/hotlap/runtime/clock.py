"""The step clock, which splits each training step into phases.

A step is one full optimizer cycle with all its micro-batches. It ends when the *anchor* optimizer has really
updated its parameters (reported by torch's own global hook), or, in scripts without an optimizer, at the end of a
backward. Inside a step exactly one phase runs at any moment; a nested phase suspends the outer one, so the
phases add up to the whole.

On the CPU a phase change reads the clock. On an accelerator it records an event on the stream that is current, and the
durations are resolved at the end of a block, where the device is synchronised anyway: the clock itself never
waits for the device. The time between two such events is what the stream spent between the two points, idle
time included, so a data wait that is hidden behind queued kernels costs nothing, and any other counts in full. Where a
kind of device has no timing events, the host's clock is read, and a note says so.

What happens before the first training forward of a cycle and up to the last evaluation forward is not the
training step's: it is folded into ``outside``, and so are checkpoints. A forward evaluates that records no gradients,
or that a model in evaluation mode makes within a loop which ends without a backward. After such a loop what is no phase
of its own, up to the next training forward, is the evaluation's as well: metrics, a plot, a report.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, Protocol

from hotlap.records import STEP_PHASES, SampleSource, Steps, StepSource
from hotlap.runtime.batches import leading_size
from hotlap.runtime.devices import device_kind
from hotlap.runtime.hooks import CapturedStep, Fetch, Hooks
from hotlap.runtime.samples import SampleCounts
from hotlap.runtime.single_forward import SingleForward
from hotlap.runtime.stopwatch import (
    BACKWARD,
    CHECKPOINT,
    CLOSED,
    DATA_WAIT,
    EVALUATION,
    FOLD_INTO_EVALUATION,
    FOLD_INTO_OUTSIDE,
    FORWARD,
    MARKS,
    OPTIMIZER,
    OTHER,
    OTHER_WAS_EVALUATION,
    OTHER_WAS_FORWARD,
    OUTSIDE,
    PERHAPS_EVALUATION,
    WAS_EVALUATION,
    HostStopwatch,
    Stopwatch,
    StreamStopwatch,
)

UPDATES_BEFORE_NEW_ANCHOR = 16
FORWARDS_OF_A_LOOP = 2
WITH_TIMED_EVENTS = ("cuda", "xpu")
"""Devices whose events, recorded on streams, measure the time between them."""
STEPS_ALONE = 8
"""After this many steps of one optimizer alone, another one that steps counts as its successor."""


class Scaling(Protocol):
    """Removes the factor of the script's GradScaler from a loss; ``unscaled`` is None without one."""

    unscaled: Any

    def before_scaling(self, loss: Any) -> Any:
        """The loss before scaling."""


class StepClock:
    """Follows the training loop through the hooks and writes one row for each step.

    ``on_step`` is called at the end of every step; its time is not counted anywhere. What every
    step passes is written out rather than shared, since each further frame costs the step. ``samples_from`` is what the
    last step's samples were counted by.
    """

    def __init__(self, hooks: Hooks, *, source: StepSource, scaling: Scaling, on_step: Callable[[], None]) -> None:
        self.steps_done = 0
        self.backwards = 0
        self.source = source
        self._torch = hooks.torch
        self._tensor: Any = hooks.torch.Tensor
        self._scaling = scaling
        self._on_step = on_step
        self.trainer = threading.get_ident()
        self._use(HostStopwatch())
        self.follows_device = False
        self._wait_for_device: Callable[[], object] = lambda: None
        self._note = hooks.note
        self._stopwatch_chosen = False
        self._rows: list[list[float]] = []
        self._phases: list[int] = [OTHER]
        self._samples: list[int] = []
        self._counts = SampleCounts(hooks)
        self.samples_from: SampleSource = ""
        self._forwarded_source: SampleSource = "inputs"
        self._losses: list[Any] = []
        self._read_loss: Callable[[Any], Any] = _value_or_copy
        self._losses_until: list[int] = []
        self._read_losses = 0
        self._step_fetched = 0
        self._step_forwarded = 0
        self._fetched_samples = 0
        self._forward_samples = 0
        self.saw_forward = False  # a training forward since the last step ended
        self.evaluating = False  # from an evaluation's forward up to the next training forward
        self.outside_phase = OUTSIDE  # what is evaluated then, or rolled out
        self._evaluations = 0
        self._fetched_without_gradients = False
        self._perhaps = 0  # the root that has made forwards in evaluation mode, with gradients, and no backward yet
        self._perhaps_fetched = 0
        self._trains_in_evaluation_mode = False
        self._single = SingleForward()
        self._evaluated_once = hooks.evaluated_once
        self._root: Callable[[], Any] = lambda: None
        self._has_optimizer = False
        self._anchor: int | None = None
        self._only_anchor: int | None = None  # the anchor while no other optimizer has stepped since it did
        self._others: dict[int, int] = {}
        self._alone_since = 0  # the step since which only the anchor has stepped
        self._predecessor: int | None = None  # the anchor until this one, while it may still come back
        self._occasional: set[int] = set()
        self._updating = 0  # the optimizer of the outermost update that is running
        self._was_outside = hooks.was_outside
        self._hang_on(hooks)

    def _hang_on(self, hooks: Hooks) -> None:
        hooks.around_loader_start.append(self._loader_start)
        hooks.around_fetch.append(self._fetch)
        hooks.after_optimizer.append(self._optimizer_made)
        hooks.before_forward.append(self._forward_begins)
        hooks.after_forward.append(self._forward_ends)
        hooks.around_evaluation.append(self._evaluation)
        hooks.around_save.append(self._save)
        hooks.before_backward.append(self._backward_begins)
        hooks.after_backward.append(self._backward_ends)
        hooks.before_update.append(self._update_begins)
        hooks.after_update.append(self._update_ends)
        hooks.update_skipped.append(self._update_skipped)
        hooks.replayed.append(self._replayed)

    def _use(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._write = watch.write
        self._read = watch.read

    # -- phases --------------------------------------------------------------------------------

    def enter(self, phase: int) -> None:
        """Suspend the running phase and begin another."""
        phases = self._phases
        self._write((phases[-1], self._read()))
        phases.append(phase)

    def leave(self, as_phase: int | None = None) -> None:
        """End the running phase (booking it under ``as_phase`` where that is given) and resume the outer one."""
        phase = self._phases.pop()
        self._write((phase if as_phase is None else as_phase, self._read()))

    def _inside(self, phase: int, call: Fetch) -> Any:
        self.enter(phase)
        try:
            return call()
        finally:
            self.leave()

    # -- events from the hooks -----------------------------------------------------------------

    def _loader_start(self, loader: Any, start: Fetch) -> Any:
        iterator = self._inside(DATA_WAIT, start)
        self._counts.loader_started(loader, iterator)
        return iterator

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        self._write((self._phases[-1], self._read()))  # no other phase begins within a fetch
        try:
            batch = fetch()
        except StopIteration:
            # The end of an evaluation's loader comes after its last forward, and is no training step's either.
            self._write((self.outside_phase if self.evaluating else DATA_WAIT, self._read()))
            raise
        except BaseException:  # goes on to the script; only the phase is written down
            self._write((DATA_WAIT, self._read()))
            raise
        self._write((DATA_WAIT, self._read()))
        if self._torch.is_grad_enabled():  # what is fetched under no_grad is not trained on
            self._fetched_samples += self._counts.of_batch(iterator, batch)
        else:
            self._fetched_untracked()
        return batch

    def _fetched_untracked(self) -> None:
        """A batch was fetched under no_grad: for an evaluation, if the model is in that mode. Its forward may not be
        seen, as that of a module within the one which trains."""
        self._fetched_without_gradients = True
        root = self._root()
        if not self.saw_forward and root is not None and not root.training and not self._trains_in_evaluation_mode:
            self._outside_so_far(EVALUATION)

    def _optimizer_made(self, optimizer: Any) -> None:
        self._has_optimizer = True

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self._stopwatch_chosen:
            self._choose_stopwatch(root)
            self._root = weakref.ref(root)
        phases = self._phases
        self._write((phases[-1], self._read()))
        if root.training or self._trains_in_evaluation_mode:
            if self._perhaps or self.evaluating:
                self._training_goes_on(root)
            self.saw_forward = True
        elif not self.saw_forward:
            self._evaluations = self._evaluations + 1 if self._perhaps == id(root) else 1
            self._perhaps = id(root)
        if not self._fetched_samples:
            self._forward_samples = max(self._forward_samples, leading_size(args) or leading_size(kwargs))
        phases.append(FORWARD)
        return args, kwargs

    def _forward_ends(self, root: Any, output: Any) -> None:
        self._write((self._phases.pop(), self._read()))
        if self._perhaps and not self.saw_forward:
            self._watch.fold(PERHAPS_EVALUATION)
            self._perhaps_fetched = self._fetched_samples
            if self._evaluations == 1:
                self._single.returned(output)

    def _evaluation(self, root: Any, call: Fetch) -> Any:
        if self.saw_forward:
            return self._inside(FORWARD, call)
        phase = OUTSIDE if root.training and not self._fetched_without_gradients else EVALUATION
        result = self._inside(phase, call)
        self._outside_so_far(phase)
        return result

    def _outside_so_far(self, phase: int) -> None:
        """Move all time since the last step out of training."""
        self._watch.fold(FOLD_INTO_OUTSIDE if phase == OUTSIDE else FOLD_INTO_EVALUATION)
        self.evaluating = True
        self.outside_phase = phase
        self._evaluations += 1
        self._perhaps = self._fetched_samples = 0
        for tell in self._was_outside:
            tell(phase)

    def _training_goes_on(self, root: Any) -> None:
        """Begin a training forward after forwards that evaluated, or seem to have."""
        in_a_loop = self._evaluations >= FORWARDS_OF_A_LOOP
        if self._perhaps == id(root) and not in_a_loop:
            samples = self._perhaps_fetched, self._forward_samples
            if self._single.training_goes_on(self.steps_done, *samples):
                self._forward_samples = 0
        elif self._perhaps == id(root):  # back in training mode, without a backward in between
            self._watch.fold(WAS_EVALUATION)
            self.evaluating, self.outside_phase = True, EVALUATION
            self._fetched_samples -= self._perhaps_fetched
            self._forward_samples = 0
            for tell in self._was_outside:
                tell(EVALUATION)
        if self.evaluating and self.outside_phase == EVALUATION and in_a_loop:
            self._watch.fold(OTHER_WAS_EVALUATION)
        self._perhaps = 0
        self.evaluating = False

    def _save(self, save: Fetch) -> Any:
        if threading.get_ident() != self.trainer:  # phases are one thread's; what another saves takes none of its time
            return save()
        return self._inside(CHECKPOINT, save)

    def _backward_begins(self, loss: Any) -> Any:
        self._write((self._phases[-1], self._read()))
        if self._perhaps:
            self._trains_in_evaluation_mode = True
            self._perhaps = 0
            self.evaluating = False
        elif not self.saw_forward:
            self._watch.fold(OTHER_WAS_FORWARD)
        self._phases.append(BACKWARD)
        # The loss without waiting for it: on a CPU its value, on a device a copy that is read later.
        read = loss if self._scaling.unscaled is None else self._scaling.before_scaling(loss)
        is_one_number = isinstance(read, self._tensor) and read.numel() == 1
        self._losses.append(self._read_loss(read) if is_one_number else None)
        self._step_fetched += self._fetched_samples
        self._step_forwarded += self._forward_samples
        self._fetched_samples = self._forward_samples = 0
        return loss

    def _backward_ends(self) -> None:
        self._write((self._phases.pop(), self._read()))
        if self._single.waits:
            self._settle_single_forward()
        self.backwards += 1
        if (not self._has_optimizer or self.source == "backward") and self.counts_backwards():
            self._end_step()

    def _settle_single_forward(self) -> None:
        """Move the forward pass before this training out of the step, if it was an evaluation of one batch."""
        if not self._single.was_evaluation():
            self._step_forwarded = max(self._step_forwarded, self._single.forwarded)
            return
        self._watch.fold(WAS_EVALUATION)
        self._step_fetched -= self._single.fetched
        for tell in self._evaluated_once:
            tell()

    def _update_begins(self, optimizer: Any) -> None:
        phases = self._phases
        self._write((phases[-1], self._read()))
        if phases[-1] != OPTIMIZER:
            self._updating = id(optimizer)
        phases.append(OPTIMIZER)

    def _update_ends(self, optimizer: Any) -> None:
        self._write((self._phases.pop(), self._read()))
        if self._phases[-1] == OPTIMIZER and self._updating == id(optimizer):
            return  # a class whose step calls its parent's: torch reports both
        if self.source != "backward" and (self._only_anchor == id(optimizer) or self._is_anchor(id(optimizer))):
            self._end_step()

    def _update_skipped(self, optimizer: Any) -> None:
        """A step without its update is one as well: its batch is trained on no more, and the next row is the next
        batch's."""
        self._write((self._phases[-1], self._read()))
        if self.source != "backward" and (self._only_anchor == id(optimizer) or self._is_anchor(id(optimizer))):
            self._end_step()

    def _replayed(self, captured: CapturedStep) -> None:
        """Note that a graph ran backward passes, and perhaps updates, that no hook reported."""
        if not self._stopwatch_chosen:
            self._follow("cuda", (self._torch.cuda.current_device(),))
        if self._perhaps or self.evaluating:
            self._training_goes_on(self._root())
        self._write((self._phases[-1], self._read()))
        loss = captured.loss() if captured.loss is not None else None
        self._losses.append(_copy_of(loss) if loss is not None and loss.numel() == 1 else None)
        self._step_fetched += self._fetched_samples
        self._fetched_samples = self._forward_samples = 0
        self.backwards += captured.backwards
        updated = self.source != "backward" and any(self._is_anchor(it) for it in captured.optimizers)
        if updated or ((not self._has_optimizer or self.source == "backward") and self.counts_backwards()):
            self._end_step()

    def _is_anchor(self, optimizer: int) -> bool:
        """Whether an update ends the step. The first optimizer that steps sets the pace.

        Another one succeeds it at once where the first had stepped alone for a while, as in a script that trains one
        module after the other. If the first steps again soon, the other is one that steps occasionally (a generator
        after many updates of its critic), and from then on belongs to the first one's step. If both took turns
        from the beginning, the other takes over once it has stepped many times without the first.
        """
        if self._anchor is None:
            return self._take_over(optimizer)
        if optimizer == self._anchor:
            self._only_anchor = optimizer
            self._alone_since = self.steps_done
            self._others.clear()
            return True
        alone = self.steps_done - self._alone_since if self._only_anchor is not None else 0
        if optimizer == self._predecessor and alone < STEPS_ALONE:
            self._occasional.add(self._anchor)
            return self._take_over(optimizer)
        if alone >= STEPS_ALONE and optimizer not in self._occasional:
            predecessor = self._anchor
            self._take_over(optimizer)
            self._predecessor = predecessor
            return True
        self._only_anchor = None
        self._others[optimizer] = self._others.get(optimizer, 0) + 1
        return self._others[optimizer] >= UPDATES_BEFORE_NEW_ANCHOR and self._take_over(optimizer)

    def _take_over(self, optimizer: int) -> bool:
        self._anchor = self._only_anchor = optimizer
        self._predecessor = None
        self._alone_since = self.steps_done
        self._others.clear()
        return True

    @property
    def phase(self) -> int:
        """The current phase of the script."""
        return self._phases[-1]

    def counts_backwards(self) -> bool:
        """Whether steps are counted by backwards, since there is no optimizer."""
        return self.source == "backward" or (self.source == "auto" and not self._has_optimizer)

    @property
    def counted(self) -> Literal["optimizer", "backward", "call"]:
        """What ended the steps so far."""
        return "backward" if self.counts_backwards() else "optimizer"

    # -- steps ---------------------------------------------------------------------------------

    def _choose_stopwatch(self, root: Any) -> None:
        self._stopwatch_chosen = True
        kind = device_kind(root)
        if kind in WITH_TIMED_EVENTS:
            devices = dict.fromkeys(it.device.index for it in root.parameters() if it.device.type == kind)
            self._follow(kind, tuple(devices))
        elif kind != "cpu":
            self._wait_for_device = getattr(getattr(self._torch, kind, None), "synchronize", self._wait_for_device)
            self._note(
                f"Phases on {kind} are timed on the host, which runs ahead of the device and synchronizes only at the "
                "end of a block: step times are exact, and work that one phase launched may be counted in a later one."
            )

    def _follow(self, kind: str, devices: tuple[int, ...]) -> None:
        self._stopwatch_chosen = self.follows_device = True
        self._rows.extend(self._watch.drain())
        self._use(StreamStopwatch(getattr(self._torch, kind), devices))

    def synchronise(self) -> None:
        """Synchronise the device; nothing to do on a CPU."""
        watch = self._watch
        if isinstance(watch, StreamStopwatch):
            watch.synchronise()
        else:
            self._wait_for_device()

    def resume(self) -> None:
        """Begin the running step now, since the time after the last one was not the script's."""
        self._watch.restart()

    def drain(self) -> None:
        """Resolve what was recorded; the device must be synchronised."""
        self._rows.extend(self._watch.drain())
        for index in range(self._read_losses, len(self._losses)):
            loss = self._losses[index]
            self._losses[index] = None if loss is None else float(loss)
        self._read_losses = len(self._losses)

    def _end_step(self) -> None:
        # Inside a nested call (an optimizer's closure) outer phases go on: record what they had so far. Else the phase
        # that has just ended was marked a moment ago.
        if len(self._phases) > 1:
            self._write((self._phases[-1], self._read()))
        self._write(CLOSED)
        if self.follows_device:
            self._watch.step_closed()
        self._losses_until.append(len(self._losses))
        # What the loaders delivered; what the model was called with only where there is no loader.
        self._samples.append(self._step_fetched or self._step_forwarded or 1)
        if self._step_fetched:
            self.samples_from = self._counts.source
        else:
            self.samples_from = self._forwarded_source if self._step_forwarded else "none"
        self._step_fetched = self._step_forwarded = 0
        self.saw_forward = self._fetched_without_gradients = False
        self._perhaps = self._evaluations = 0
        self.steps_done += 1
        self._on_step()

    def kept_losses(self) -> list[Any]:
        """Copies of losses that remain on their device until :meth:`drain` reads them."""
        return [it for it in self._losses[self._read_losses :] if hasattr(it, "untyped_storage")]

    def steps(self) -> Steps:
        """The account so far; call :meth:`drain` first."""
        rows = self._rows[: len(self._losses_until)]
        columns = list(zip(*rows, strict=True)) if rows else [()] * MARKS
        starts = [0, *self._losses_until]
        means = [_mean(self._losses[begin:end]) for begin, end in pairwise(starts)]
        return Steps(
            wall_seconds=tuple(sum(row[:OUTSIDE]) for row in rows),
            phases=tuple(zip(STEP_PHASES, columns[:OUTSIDE], strict=True)),
            outside_seconds=tuple(sum(row[OUTSIDE:]) for row in rows),
            evaluation_seconds=columns[EVALUATION],
            checkpoint_seconds=columns[CHECKPOINT],
            samples=tuple(self._samples),
            loss=tuple(it if it is not None and it - it == 0 else None for it in means),
            not_finite=tuple(i for i, it in enumerate(means) if it is not None and it - it != 0),
        )


def _value_or_copy(loss: Any) -> Any:
    return loss.item() if loss.is_cpu else _copy_of(loss)


def _copy_of(loss: Any) -> Any:
    """A compiled graph may overwrite the tensor itself at its next replay."""
    return loss.detach().reshape(()).clone()


def _mean(losses: list[Any]) -> float | None:
    if not losses or any(loss is None for loss in losses):
        return None
    return float(sum(losses)) / len(losses)
