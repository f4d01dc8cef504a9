"""The facts about the script: its loaders, optimizers, models, switches and their lines.

Call sites are looked up in the first steps only, since walking the stack costs more than a step may.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import random
import time
from collections.abc import Iterable
from typing import Any

from hotlap.evidence import FEWEST_COLLECTIONS
from hotlap.levers.support.micro_batches import is_by_sample
from hotlap.records import (
    ENGINE_PACKAGES,
    Assignment,
    CallSite,
    LoaderFacts,
    ModelFacts,
    Observe,
    ScriptFacts,
)
from hotlap.runtime import randomness
from hotlap.runtime.autocast_watch import AutocastWatch
from hotlap.runtime.batches import leading_size, size_in_bytes, sizes_of, tensors
from hotlap.runtime.blocks_watch import BlocksWatch, has_compile_of_its_own, has_forward_of_torch
from hotlap.runtime.call_sites import digests, exact_user_site
from hotlap.runtime.compile_report import is_compiled
from hotlap.runtime.data_parallel import DataParallelWatch
from hotlap.runtime.deepspeed_facts import DeepSpeedWatch
from hotlap.runtime.devices import cudnn_tf32, device_kind, matmul_precision, weights_dtype
from hotlap.runtime.flops_watch import FlopsWatch
from hotlap.runtime.garbage_timer import GarbageTimer
from hotlap.runtime.gradient_clearing import ClearingWatch, UsedGradientsWatch
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.last_read import LastRead
from hotlap.runtime.optimizer_facts import optimizer_facts
from hotlap.runtime.outside import OutsideWatch
from hotlap.runtime.saved_models import operators_of
from hotlap.runtime.sharded_facts import sharded_facts
from hotlap.runtime.training_mode import behaves_otherwise
from hotlap.runtime.unit_clock import UnitClock

STEPS_WITH_SITES = 3
FETCHES_WATCHED_FOR_RANDOMNESS = range(2, 5)
MAXIMUM_SHAPES = 32
_TRAINING_PACKAGES = ("torchao", "liger_kernel")
_PATIENCE = 2.0


class Observer:
    """Collects :class:`ScriptFacts` while the script runs."""

    def __init__(self, interception: Interception, clock: UnitClock, assignment: Assignment) -> None:
        self._torch = interception.hooks.torch
        self._clock = clock
        self._roots = interception.roots
        self._observing = assignment.instrument(Observe) is not None
        self._sites: dict[tuple[str, str, int, int | None], CallSite] = {}
        self._loaders: dict[int, _Loader] = {}
        self._fetched_with_gradients: set[_Loader] = set()
        self._constructed: dict[int, CallSite | None] = {}
        self._optimizers: list[tuple[Any, CallSite | None, dict[str, Any]]] = []
        self._models: dict[int, _Model] = {}
        self._autocast = AutocastWatch(self._torch)
        self._blocks = BlocksWatch(self._torch)
        self._data_parallel = DataParallelWatch(interception.hooks, digests=self._observing)
        self._deepspeed = DeepSpeedWatch(interception.hooks)
        self._scaler = False
        self._clips = False
        self._clearing: ClearingWatch | None = None
        self._used_gradients: UsedGradientsWatch | None = None
        self._garbage: GarbageTimer | None = None
        self._garbage_since = 0.0
        self._random_in_forward = False
        self._flops = FlopsWatch(self._torch, self._roots)
        self._requested: dict[str, Any] = {}
        self._processes = 1
        self._iterating: _Loader | None = None
        self._states_before_forward: tuple[Any, ...] | None = None
        self._last_read: LastRead[_Loader] = LastRead()
        self._outside: OutsideWatch | None = None
        if self._observing:
            self._clearing = ClearingWatch(self._torch, interception.patches.replace)
            self._used_gradients = UsedGradientsWatch(interception.hooks)
            self._garbage = GarbageTimer()
            self._outside = OutsideWatch(interception, clock, lambda: self._last_read.source, self._evaluates)
        self._awaited: tuple[int, float] | None = None  # another start of the training loader, until when
        self._hang_on(interception)

    def _hang_on(self, interception: Interception) -> None:
        self._interception = interception
        hooks = interception.hooks
        hooks.after_loader.append(self._loader_made)
        hooks.around_loader_start.append(self._loader_start)
        hooks.around_fetch.append(self._fetch)
        hooks.before_optimizer.append(self._optimizer_requested)
        hooks.after_optimizer.append(self._optimizer_made)
        hooks.before_compile.append(self._compile)
        hooks.before_forward.append(self._forward_begins)
        hooks.after_forward.append(self._forward_ends)
        hooks.before_backward.append(self._backward)
        hooks.after_backward.append(self._blocks.backward_ends)
        hooks.before_clip.append(self._clip)
        hooks.before_update.append(self._update)
        hooks.step_ended.append(self._step_ended)

    def _retire(self) -> None:
        """Remove the hooks of every step, once all facts that are cheap to observe are known."""
        hooks = self._interception.hooks
        hooks.step_ended = [it for it in hooks.step_ended if it != self._step_ended]
        for listeners, own in (
            (hooks.around_fetch, self._fetch),
            (hooks.before_forward, self._forward_begins),
            (hooks.after_forward, self._forward_ends),
            (hooks.before_backward, self._backward),
            (hooks.after_backward, self._blocks.backward_ends),
            (hooks.before_update, self._update),
        ):
            if own in listeners:
                listeners.remove(own)  # type: ignore[arg-type]

    # -- loaders -------------------------------------------------------------------------------

    def _loader_made(self, loader: Any) -> None:
        self._constructed[id(loader)] = exact_user_site("loader", type(loader).__name__)

    def _loader_start(self, loader: Any, start: Fetch) -> Any:
        iterator = start()
        facts = self._loaders.setdefault(id(loader), _Loader(loader, self._constructed.get(id(loader))))
        facts.fetches = 0
        facts.starts += 1
        self._iterating = facts
        return iterator

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        loader = self._loader_of(iterator)
        if loader is None:
            return fetch()
        loader.fetches += 1
        self._last_read.ask(loader)
        if self._torch.is_grad_enabled():
            self._fetched_with_gradients.add(loader)
        batch = self._watched_fetch(loader, fetch) if self._observing else fetch()
        self._last_read.got(loader)
        return batch

    def _watched_fetch(self, loader: _Loader, fetch: Fetch) -> Any:
        if loader.fetches not in FETCHES_WATCHED_FOR_RANDOMNESS or loader.loader.num_workers > 0:
            batch = fetch()
        else:
            before = randomness.states(self._torch)
            batch = fetch()
            loader.draws_random |= randomness.differ(self._torch, before, randomness.states(self._torch))
        if not loader.batch_bytes:
            loader.batch_bytes = size_in_bytes(batch)
        return batch

    def _evaluates(self, loader: _Loader) -> None:
        loader.evaluates = True
        self._fetched_with_gradients.discard(loader)
        self._last_read.evaluated(loader)

    def awaits_epoch_end(self, limit_seconds: float, step_seconds: float) -> bool:
        """Whether to go on until the training loader has come to its end and one more step is done, if it does so
        within the limit by the time that a step takes, and no evaluation was seen before."""
        trained = [it for it in self._loaders.values() if it.trains]
        length = _length(trained[-1].loader) if trained else None
        if length is None or self._outside is None or self._outside.seen:
            return False
        starts = sum(it.starts for it in trained)
        if self._awaited is None:
            batches_per_step = max(1.0, self._clock.backwards / max(1, self._clock.steps_done))
            remaining_seconds = (length - trained[-1].fetches + 1) / batches_per_step * step_seconds
            if starts > 1 or remaining_seconds > limit_seconds:
                return False
            self._awaited = starts, time.perf_counter() + _PATIENCE * limit_seconds
        return self._awaited[0] == starts and time.perf_counter() < self._awaited[1]

    def _loader_of(self, iterator: Any) -> _Loader | None:
        dataset = getattr(iterator, "_dataset", None)
        running = self._iterating
        if running is not None and running.loader.dataset is dataset:
            return running
        return next((it for it in self._loaders.values() if it.loader.dataset is dataset), None)

    # -- optimizers ----------------------------------------------------------------------------

    def _optimizer_requested(self, kind: type, arguments: dict[str, Any]) -> None:
        self._requested = {name: arguments.get(name) for name in ("fused", "foreach")}

    def _optimizer_made(self, optimizer: Any) -> None:
        self._optimizers.append((optimizer, exact_user_site("optimizer", type(optimizer).__name__), self._requested))
        self._requested = {}

    # -- compiling -----------------------------------------------------------------------------

    def _compile(self) -> None:
        if self._early():
            self._note(exact_user_site("compile"))

    # -- forward, backward, update -------------------------------------------------------------

    def _early(self) -> bool:
        return self._clock.steps_done < STEPS_WITH_SITES

    def _forward_begins(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._observing or self._early():
            model = self._models.get(id(root))
            if model is None:
                model = self._models[id(root)] = _Model(root)
            model.saw(args, kwargs)
            if self._early():
                self._processes = _process_count(self._torch)  # a script may leave its group before it ends
                self._data_parallel.forward_begins(root, self._note(exact_user_site("model", type(root).__name__)))
                self._watch_autocast(root)
        if self._observing and self._early():
            self._blocks.forward_begins(root)
            self._states_before_forward = randomness.states(self._torch)
        return args, kwargs

    def _watch_autocast(self, root: Any) -> None:
        """Observe inside the model from the second step on, when it is known whether the script compiles."""
        device = device_kind(root)
        self._autocast.around(device)
        if self._clock.steps_done:
            self._autocast.within(root, device)

    def _forward_ends(self, root: Any, output: Any) -> None:
        self._autocast.forward_ends()
        self._blocks.forward_ends(root)
        if id(root) in self._models and (self._observing or self._early()):
            self._models[id(root)].gave(self._torch, output)
        before = self._states_before_forward
        if before is not None:
            self._states_before_forward = None
            self._random_in_forward |= randomness.differ(self._torch, before, randomness.states(self._torch))

    def _backward(self, loss: Any) -> Any:
        self._scaler = self._scaler or self._interception.unscaled is not None
        self._note_loaders_that_train()
        if self._early():
            self._note(exact_user_site("backward"))
            self._data_parallel.backward_begins()
        self._blocks.backward_begins()
        return loss

    def _note_loaders_that_train(self) -> None:
        """A batch of the loader read last led to this backward, as did those of others that are read with gradients on
        between backwards again and again: evaluation in between reads its batches without."""
        last = self._last_read.backward()
        if last is not None:
            last.trains = True
        for loader in self._fetched_with_gradients:
            loader.backwards += 1
            loader.trains |= loader.backwards > 1
        self._fetched_with_gradients.clear()

    def _clip(self, parameters: Any, limit: float) -> None:
        self._clips = True
        if self._early():
            self._note(exact_user_site("clip"))

    def _update(self, optimizer: Any) -> None:
        if self._early():
            self._note(exact_user_site("step", type(optimizer).__name__))

    def _step_ended(self) -> None:
        if not self._observing:
            if not self._early():
                self._retire()
            return
        if self._garbage is not None and not self._garbage.counting and self._clock.steps_done > STEPS_WITH_SITES:
            self._garbage.counting, self._garbage_since = True, time.perf_counter()
        self._flops.step_ended(self._clock.steps_done)

    def _note(self, site: CallSite | None) -> CallSite | None:
        if site is not None:
            self._sites.setdefault((site.role, site.file, site.line, site.column), site)
        return site

    # -- the result ----------------------------------------------------------------------------

    def facts(self) -> ScriptFacts:
        """All observed facts."""
        torch, steps = self._torch, max(self._clock.steps_done, 1)
        evaluation, checkpoints = self._outside.facts() if self._outside is not None else (None, None)
        models = tuple(it.facts(self._flops.flops, self._sites, self._blocks) for it in self._models.values())
        device = models[0].device if models else "cpu"
        return ScriptFacts(
            device=device,
            step_source=self._clock.counted,
            torch_version=str(torch.__version__),
            processes=self._processes,
            threads=torch.get_num_threads(),
            loaders=tuple(it.facts(torch, self._observing) for it in self._loaders.values() if it.used),
            optimizers=tuple(optimizer_facts(*it) for it in self._optimizers),
            models=models,
            data_parallel=self._data_parallel.facts(),
            sharded=sharded_facts(torch, self._roots.all()),
            deepspeed=self._deepspeed.facts(),
            autocast_dtype=self._autocast.dtype,
            grad_scaler=self._scaler,
            matmul_precision=matmul_precision(torch, device),
            cudnn_tf32=cudnn_tf32(torch, device),
            cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
            deterministic=bool(torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic),
            clips_gradients=self._clips,
            zeroes_gradients=self._clearing is not None and self._clearing.fills_with_zeros,
            used_gradient_bytes=self._used_gradients.held_bytes() if self._used_gradients is not None else 0,
            keeps_gradients=self._used_gradients is not None and self._used_gradients.keeps,
            garbage_share=self._garbage_share(),
            backwards_per_step=self._clock.backwards / steps,
            random_in_forward=self._random_in_forward,
            evaluation=evaluation,
            checkpoints=checkpoints,
            sites=tuple(self._sites.values()),
            files=digests(self._all_sites()) if self._observing else (),
            samples_from=self._clock.samples_from,
            inputs=self._interception.hooks.inputs,
            lengths=self._interception.hooks.lengths,
            shared_calls=self._interception.hooks.shared_calls,
            calls_in_script=self._interception.hooks.calls_in_script,
            generation=tokens.facts if (tokens := self._interception.hooks.generation) is not None else None,
            packages=_installed(ENGINE_PACKAGES if self._interception.hooks.inputs else _TRAINING_PACKAGES),
        )

    def _garbage_share(self) -> float | None:
        if self._garbage is None or not self._garbage.counting:
            return None
        if self._garbage.collections < FEWEST_COLLECTIONS:
            return 0.0
        return self._garbage.seconds / max(time.perf_counter() - self._garbage_since, self._garbage.seconds, 1e-9)

    def _all_sites(self) -> list[CallSite | None]:
        return [
            *self._sites.values(),
            *(it.site for it in self._loaders.values() if it.used),
            *(site for _, site, _ in self._optimizers),
            *self._data_parallel.sites(),
        ]


def _installed(packages: Iterable[str]) -> tuple[str, ...]:
    return tuple(it for it in packages if _is_installed(it))


def _is_installed(package: str) -> bool:
    """By the name that is imported; a distribution that is imported by another one's name has a hyphen in its own."""
    if "-" not in package:
        return importlib.util.find_spec(package) is not None
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


class _Loader:
    """One DataLoader that is being iterated."""

    def __init__(self, loader: Any, site: CallSite | None) -> None:
        self.loader = loader
        self.site = site
        self.fetches = 0
        self.backwards = 0
        self.trains = False
        self.draws_random = False
        self.batch_bytes = 0
        self.starts = 0
        self.evaluates = False

    @property
    def used(self) -> bool:
        return self.fetches > 0 or self.batch_bytes > 0

    def facts(self, torch: Any, observing: bool) -> LoaderFacts:
        from torch.utils.data import IterableDataset

        loader = self.loader
        iterable = isinstance(loader.dataset, IterableDataset)
        if observing and loader.num_workers > 0 and not iterable:
            self.draws_random = _drawing(torch, loader.dataset)
        return LoaderFacts(
            dataset=type(loader.dataset).__name__,
            batch_size=loader.batch_size,
            workers=loader.num_workers,
            pin_memory=bool(loader.pin_memory),
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=bool(loader.persistent_workers),
            iterable=iterable,
            length=_length(loader),
            draws_random=self.draws_random,
            batch_bytes=self.batch_bytes,
            trains=self.trains,
            evaluates=self.evaluates,
            starts=self.starts,
            site=self.site,
        )


class _Model:
    """One root and the shapes it was called with."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._calls: dict[tuple[tuple[int, ...], ...], None] = {}
        self._samples = 0
        self._outputs_by_sample: bool | None = None

    def gave(self, torch: Any, output: Any) -> None:
        """Whether the output has one entry for each sample of the inputs that came before it."""
        self._outputs_by_sample = self._outputs_by_sample is not False and is_by_sample(torch, output, self._samples)

    def saw(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._samples = leading_size((args, kwargs))
        if len(self._calls) < MAXIMUM_SHAPES:
            shapes = [sizes_of(it) for it in tensors((args, kwargs))]
            self._calls[tuple(shapes)] = None

    def facts(
        self, flops: float | None, sites: dict[tuple[str, str, int, int | None], CallSite], blocks: BlocksWatch
    ) -> ModelFacts:
        root = self._root
        parameters = list(root.parameters())
        kinds = [type(module).__name__ for module in root.modules()] + operators_of(root)
        kind = type(getattr(root, "_orig_mod", root)).__name__
        configuration = getattr(root, "config", None)
        return ModelFacts(
            kind=kind,
            parameters=sum(it.numel() for it in parameters),
            parameter_bytes=sum(it.numel() * it.element_size() for it in parameters),
            dtype=weights_dtype(root),
            device=device_kind(root),
            convolutions=sum(it.startswith(("Conv2d", "Conv3d", "aten.conv2d", "aten.conv3d")) for it in kinds),
            linears=sum(it in ("Linear", "Conv1D", "aten.linear.default") for it in kinds),
            recurrent=sum(it in ("LSTM", "GRU", "RNN", "aten.lstm.input", "aten.gru.input") for it in kinds),
            batch_norms=sum(it.startswith("BatchNorm") for it in kinds),
            dropout=tuple(float(getattr(it, "p", 0.0)) for it in root.modules() if "Dropout" in type(it).__name__),
            trainable=sum(it.requires_grad for it in parameters),
            compiled=is_compiled(root),
            channels_last=_is_channels_last(parameters),
            attention=str(getattr(configuration, "_attn_implementation", "") or ""),
            transformers_model=any(str(it.__module__).startswith("transformers.") for it in type(root).__mro__),
            input_shapes=tuple(dict.fromkeys(it for call in self._calls for it in call))[:MAXIMUM_SHAPES],
            shapes_vary=len(self._calls) > 1,
            flops_per_step=flops,
            blocks=blocks.facts(root),
            outputs_by_sample=bool(self._outputs_by_sample),
            forward_of_torch=has_forward_of_torch(root),
            compile_of_its_own=has_compile_of_its_own(root),
            trains=any(behaves_otherwise(it) for it in root.modules()),
            repeated=blocks.repeated(root),
            site=next((it for it in sites.values() if it.role == "model" and it.what == kind), None),
        )


def _drawing(torch: Any, dataset: Any) -> bool:
    """Whether fetching one sample draws random numbers; tried in a process that is about to end."""
    random.seed(0)
    before = randomness.states(torch)
    try:
        dataset[0]
    except (IndexError, KeyError, TypeError, NotImplementedError):
        return False
    return randomness.differ(torch, before, randomness.states(torch))


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def _is_channels_last(parameters: list[Any]) -> bool:
    import torch

    four = [it for it in parameters if it.dim() == 4 and it.shape[1] > 1 and it.shape[2] > 1]
    return bool(four) and all(it.is_contiguous(memory_format=torch.channels_last) for it in four)


def _process_count(torch: Any) -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1
