"""``python -m bench.first_gradients --out docs/benchmarks/first-gradients``: the gate of the first step, on networks.

Networks with ReLUs and pools, whose first gradient jumps where rounding moves an activation across a threshold, and a
small transformer without any. The lever is channels_last for the former, and another order of the sums (one thread
instead of two) for the latter: both keep the precision. Each first step is judged by the rule of errors against float64
alone, then together with what weights show that were moved by one unit in the last place, as a proof does. Faults are
planted in the same gradients. Some three minutes on two cores.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from bench.report import command_line, table, write
from hotlap.measure.parity.first_step import first_step
from hotlap.measure.parity.losses import percent
from hotlap.records import NudgeWeights, Run
from hotlap.runtime.instruments.nudge_weights import nudge_weights

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from resnet import BasicBlock, Bottleneck, ResNet

CLASSES = 8
DIRECTIONS = ("above", "below", "outward")


class Vgg(nn.Sequential):
    """Convolutions and ReLUs without a normalization, and the maximum of a pool after every other one."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        inputs = 3
        for width in (32, 64, 128):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            inputs = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


class Patches(nn.Module):
    """A transformer over patches of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 96, 8, 8)
        layer = nn.TransformerEncoderLayer(96, 4, 384, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(96, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


@dataclass(frozen=True)
class Network:
    """How it is made, and whether the lever changes the layout or the number of threads."""

    make: Callable[[], nn.Module]
    batch: int
    is_convolutional: bool = True


NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        "ResNet-18, batches of 16": Network(partial(ResNet, BasicBlock, [2, 2, 2, 2], 32, CLASSES), 16),
        "ResNet-18, batches of 4": Network(partial(ResNet, BasicBlock, [2, 2, 2, 2], 32, CLASSES), 4),
        "ResNet-50, batches of 16": Network(partial(ResNet, Bottleneck, [3, 4, 6, 3], 32, CLASSES), 16),
        "VGG, batches of 16": Network(Vgg, 16),
        "transformer of patches, batches of 16": Network(Patches, 16, is_convolutional=False),
    }
)

Gradients = dict[str, Any]


def _scale(gradients: Gradients) -> None:
    """The gradient of one weight is a fifth too large."""
    name = _weight(gradients)
    gradients[name] = gradients[name] * 1.2


def _lose(gradients: Gradients) -> None:
    """The gradient of half of one weight is lost."""
    name = _weight(gradients)
    gradients[name] = gradients[name].copy()
    gradients[name][: len(gradients[name]) // 2] = 0.0


def _turn(gradients: Gradients) -> None:
    """The gradient of one weight has the other sign."""
    name = _weight(gradients)
    gradients[name] = -gradients[name]


def _weight(gradients: Gradients) -> str:
    """One in the middle of the network."""
    names = [it for it in gradients if it.endswith("weight") and gradients[it].ndim > 1]
    return names[len(names) // 2]


FAULTS: tuple[Callable[[Gradients], None], ...] = (_scale, _lose, _turn)


class Counted(msgspec.Struct, kw_only=True, frozen=True):
    """First steps of one network: how many a healthy lever fails by the rule of errors alone, and as a proof judges
    them; the largest error, in times the baseline's; the shares of their norm by which the lever or a nudge moved the
    whole gradient, and a tensor, most; and how many of the planted faults pass."""

    network: str
    steps: int
    failed_by_errors: int
    failed: int
    largest_error: float
    moved_whole: float
    moved_tensor: float
    faults: int
    faults_passed: int


def counted(name: str, count: int) -> Counted:
    """Count so many first steps, each with weights and a batch of its own."""
    alone = failed = passed = 0
    largest = whole_moved = tensor_moved = 0.0
    for seed in range(count):
        with tempfile.TemporaryDirectory(prefix="hotlap-gradients-") as folder:
            step = _Step(NETWORKS[name], seed, Path(folder))
            by_errors, whole = step.judge(nudged=()), step.judge(nudged=step.nudged)
            alone += by_errors is False
            failed += whole is False
            largest = max(largest, step.error)
            whole_moved, tensor_moved = max(whole_moved, step.moved_whole), max(tensor_moved, step.moved_tensor)
            passed += sum(step.judge(nudged=step.nudged, fault=it) is not False for it in FAULTS)
    return Counted(
        network=name,
        steps=count,
        failed_by_errors=alone,
        failed=failed,
        largest_error=largest,
        moved_whole=whole_moved,
        moved_tensor=tensor_moved,
        faults=count * len(FAULTS),
        faults_passed=passed,
    )


class _Step:
    """The first step of a network, without and with the lever, in float64, and with nudged weights."""

    def __init__(self, network: Network, seed: int, folder: Path) -> None:
        torch.manual_seed(seed)
        self._folder = folder
        self._labels = torch.randint(0, CLASSES, (network.batch,))
        model, images = network.make(), torch.randn(network.batch, 3, 64, 64)
        plain = self._gradients(model, images)
        self._baseline = self._run("baseline", plain)
        self._reference = self._run("reference", self._gradients(copy.deepcopy(model).double(), images.double()))
        self._with_lever = self._other(network, model, images)
        nudged = [self._gradients(_nudged(model, it), images) for it in DIRECTIONS]
        self.nudged = tuple(self._run(name, it) for name, it in zip(DIRECTIONS, nudged, strict=True))
        self.error = 0.0
        moved = [_moved(plain[1], it) for it in (self._with_lever[1], *(it[1] for it in nudged))]
        self.moved_whole, self.moved_tensor = (max(it) for it in zip(*moved, strict=True))

    def judge(self, *, nudged: Sequence[Run], fault: Callable[[Gradients], None] | None = None) -> bool | None:
        """Whether the lever's first step passes, perhaps with a planted fault."""
        loss, gradients = self._with_lever[0], dict(self._with_lever[1])
        if fault is not None:
            fault(gradients)
        candidate = self._run("candidate", (loss, gradients))
        found = first_step(self._baseline, candidate, changes_precision=False, reference=self._reference, nudged=nudged)
        if fault is None:
            self.error = max(self.error, found.found or 0.0)
        return found.passed

    def _other(self, network: Network, model: nn.Module, images: torch.Tensor) -> tuple[Any, Gradients]:
        if network.is_convolutional:
            other = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            return self._gradients(other, images.to(memory_format=torch.channels_last))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        found = self._gradients(model, images)
        torch.set_num_threads(threads)
        return found

    def _gradients(self, model: nn.Module, images: torch.Tensor) -> tuple[Any, Gradients]:
        model = copy.deepcopy(model)
        loss = nn.functional.cross_entropy(model(images), self._labels)
        loss.backward()
        return loss.detach().numpy(), {
            name: it.grad.numpy() for name, it in model.named_parameters() if it.grad is not None
        }

    def _run(self, name: str, captured: tuple[Any, Gradients]) -> Run:
        path = self._folder / f"{name}.npz"
        loss, gradients = captured
        np.savez(path, loss=loss, **{f"gradient/{key}": it for key, it in gradients.items()})
        return Run(gradients_path=str(path))


def _moved(baseline: Gradients, other: Gradients) -> tuple[float, float]:
    """By which share of its norm the whole gradient differs, and the tensor that differs most of those with a size."""
    norms = {name: float(np.linalg.norm(it)) for name, it in baseline.items()}
    moves = {name: float(np.linalg.norm(other[name] - it)) for name, it in baseline.items()}
    whole = math.hypot(*norms.values())
    return math.hypot(*moves.values()) / whole, max(moves[it] / norms[it] for it in norms if norms[it] > 1e-4 * whole)


def _nudged(model: nn.Module, towards: Any) -> nn.Module:
    other = copy.deepcopy(model)
    nudge_weights(torch, other, NudgeWeights(towards=towards))
    return other


def markdown(found: Sequence[Counted]) -> str:
    """The table."""
    header = (
        "network",
        "first steps",
        "refused by errors alone",
        "refused",
        "largest error",
        "moved by",
        "faults passed",
    )
    rows = [
        [
            it.network,
            str(it.steps),
            str(it.failed_by_errors),
            str(it.failed),
            f"{it.largest_error:.3g} times",
            f"{percent(it.moved_whole)}, a tensor {percent(it.moved_tensor)}",
            f"{it.faults_passed} of {it.faults}",
        ]
        for it in found
    ]
    lines = [
        "A lever that keeps the precision (channels_last; for the transformer one thread instead of two) is healthy,",
        "so no first step should be refused. *By errors alone*: the error of each gradient against float64 may be",
        "little more than the unmodified script's. *Refused*: as a proof judges it, which also asks three runs with",
        "weights moved by one unit in the last place. Where the losses of such runs differ by more than usual it",
        "refuses fewer; that needs a trajectory and is not counted here. The largest error is in times the unmodified",
        "script's. *Moved by*: the share of its norm by which the lever or a nudge moves the gradient at most.",
        "Faults: the gradient of one weight a fifth too large, half of it lost, or its sign turned.",
        "",
        table(header, rows),
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Count, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_gradients", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--steps", type=int, default=40, help="first steps of each network")
    options = parser.parse_args(arguments)
    found: list[Counted] = []
    for name in options.networks:
        found.append(counted(name, options.steps))
        print(found[-1], file=sys.stderr, flush=True)
        write(
            options.out,
            title="First gradients of healthy levers and of faults",
            command=command_line("bench.first_gradients"),
            text=markdown(found),
            data={"networks": msgspec.to_builtins(tuple(found))},
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
