"""What a lever may not change (gate G0), and the gradients of the first step (gate G2).

Recorded only in runs that compare numbers; timing runs do not have its overhead.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hotlap.records import AlignRandomness, Assignment, CaptureGradients, Invariants, Steps
from hotlap.runtime.batches import tensors
from hotlap.runtime.devices import local_part
from hotlap.runtime.hooks import Fetch
from hotlap.runtime.interception import Interception
from hotlap.runtime.whole_gradients import engine_gradients, whole_gradients

MAXIMUM_GRADIENT_ELEMENTS = 50_000_000
_OTHER = ("betas", "eps", "momentum", "nesterov", "dampening", "amsgrad", "maximize")


class InvariantsRecorder:
    """One row per step: learning rates, decays, clip limits, sample identities, modes."""

    def __init__(self, interception: Interception, assignment: Assignment) -> None:
        self._torch = interception.hooks.torch
        self._roots = interception.roots
        self._before_scaling = interception.before_scaling
        self._capture = assignment.instrument(CaptureGradients) is not None
        self._on = self._capture or assignment.instrument(AlignRandomness) is not None
        self._optimizers: list[Any] = []
        self._rates: list[tuple[float, ...]] = []
        self._decays: list[tuple[float, ...]] = []
        self._other: str = ""
        self._clips: list[float] = []
        self._hash = 0
        self._hashes: list[str] = []
        self._modes: list[bool] = []
        self._trainable: list[int] = []
        self.gradients_path = ""
        hooks = interception.hooks
        if self._on:
            hooks.after_optimizer.append(self._optimizers.append)
            hooks.before_clip.append(lambda parameters, limit: self._clips.append(limit))
            hooks.around_fetch.append(self._fetch)
            hooks.before_forward.append(self._forward)
            hooks.step_ended.append(self._step_ended)
        if self._capture:
            hooks.before_backward.append(self._remember_loss)
            hooks.before_update.append(self._save_gradients)
            hooks.before_engine_step.append(self._save_gradients_of_engine)
        self._loss: Any = None
        self.directory = Path()

    def _fetch(self, iterator: Any, fetch: Fetch) -> Any:
        batch = fetch()
        self._mix(batch)
        return batch

    def _forward(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._training = bool(root.training)
        return args, kwargs

    def _mix(self, batch: Any) -> None:
        """Fold a batch into the running step's hash. Workers deliver batches in the sampler's order, so equal data
        give equal hashes whatever loads them. Floating tensors are left out: augmentation may be random."""
        for tensor in tensors(batch):
            if not tensor.is_floating_point() and tensor.device.type == "cpu" and not tensor.is_sparse:
                self._hash = zlib.crc32(tensor.detach().contiguous().numpy().tobytes(), self._hash)

    def _step_ended(self) -> None:
        """Close the row of this step."""
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        self._rates.append(tuple(float(group.get("lr", 0.0)) for group in groups))
        self._decays.append(tuple(float(group.get("weight_decay", 0.0)) for group in groups))
        if not self._other:
            self._other = msgspec.json.encode(
                [{key: _plain(group[key]) for key in _OTHER if key in group} for group in groups]
            ).decode()
        self._hashes.append(f"{self._hash:08x}")
        self._hash = 0
        self._modes.append(getattr(self, "_training", True))
        self._trainable.append(sum(it.requires_grad for root in self._roots.all() for it in root.parameters()))

    def result(self, steps: Steps) -> Invariants:
        """All rows."""
        if not self._on:
            return Invariants(samples=steps.samples)
        return Invariants(
            learning_rates=tuple(self._rates),
            weight_decays=tuple(self._decays),
            other_hyperparameters=(self._other,),
            clip_values=tuple(self._clips),
            samples=steps.samples,
            batch_hashes=tuple(self._hashes),
            dropout=tuple(
                float(module.p)
                for root in self._roots.all()
                for module in root.modules()
                if "Dropout" in type(module).__name__ and hasattr(module, "p")
            ),
            training=tuple(self._modes),
            trainable=tuple(self._trainable),
        )

    # -- gradients -----------------------------------------------------------------------------

    def _remember_loss(self, given: Any) -> Any:
        loss = self._before_scaling(given)
        if self._loss is None and isinstance(loss, self._torch.Tensor) and loss.numel() == 1:
            self._loss = local_part(loss).detach().double().cpu().numpy()
        return given

    def _save_gradients(self, optimizer: Any) -> None:
        """Of a parameter that processes share the whole gradient: a lever may share others. All ranks gather it."""
        if not self.gradients_path:
            self._write(
                (f"{index}.{name}", found)
                for index, root in enumerate(self._roots.all())
                for name, found in whole_gradients(self._torch, root)
            )

    def _save_gradients_of_engine(self, engine: Any) -> None:
        """DeepSpeed moves gradients elsewhere before its optimizer's update."""
        if not self.gradients_path and engine.is_gradient_accumulation_boundary():
            self._write((f"0.{name}", found) for name, found in engine_gradients(engine))

    def _write(self, gradients: Iterator[tuple[str, Any]]) -> None:
        """The first elements, up to a limit, in a file. All ranks go through all gradients, as gathering them is a
        collective."""
        import numpy

        arrays: dict[str, Any] = {}
        left = MAXIMUM_GRADIENT_ELEMENTS
        for name, found in gradients:
            if found.is_sparse:
                continue
            gradient = found.detach().reshape(-1)
            gradient = gradient[: min(left, gradient.numel())]
            left -= gradient.numel()
            wide = self._torch.float64 if gradient.dtype == self._torch.float64 else self._torch.float32
            arrays[f"gradient/{name}"] = gradient.to("cpu", wide).numpy()
            if left <= 0:
                break
        if self._loss is not None:
            arrays["loss"] = self._loss
        path = self.directory / f"gradients{_of_rank(self._torch)}.npz"
        numpy.savez(path, **arrays)
        self.gradients_path = str(path)


def _of_rank(torch: Any) -> str:
    """What a file's name carries where several processes write one each: ``-1`` on rank 1, nothing on rank 0."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0:
        return ""
    return f"-{distributed.get_rank()}"


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(it) for it in value]
    return str(value)
