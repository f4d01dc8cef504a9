"""Shared conditions of levers, and constructing and reading settings. Not a lever itself."""

from __future__ import annotations

from typing import Literal

from hotlap.records import Accelerator, ModelFacts, Setting, Situation, Skipped, StepPhase, Value

PROGRAM = "GraphModule"
"""The kind of a model that is an exported program: a graph of operators, without layers."""

NO_MODEL = (
    "No model was observed: the script trains none that torch's `Module.__call__` calls, so there is nothing to wrap."
)


def make_setting(lever: str, **values: Value) -> Setting:
    """Return a setting with sorted values, so that equal settings compare equal."""
    return Setting(lever=lever, values=tuple(sorted(values.items())))


def device_kind(situation: Situation) -> str:
    """``cpu``, ``cuda``, ``mps`` ...: the type of the training device, without a number."""
    return situation.facts.device.partition(":")[0] or "cpu"


def is_nvidia_like(situation: Situation) -> bool:
    """Whether training runs on a device that torch calls ``cuda``."""
    return device_kind(situation) == "cuda"


def accelerator(situation: Situation) -> Accelerator | None:
    """Return the machine's facts of the training device, if known."""
    if not is_nvidia_like(situation):
        return None
    number = situation.facts.device.partition(":")[2]
    index = int(number) if number.isdecimal() else 0
    devices = [it for it in situation.machine.accelerators if it.kind in ("cuda", "rocm")]
    return devices[index] if index < len(devices) else next(iter(devices), None)


def shapes_vary(model: ModelFacts) -> bool:
    """Whether the inputs of one call have other shapes than those of another; for a study of an earlier version,
    whether they have several at all."""
    return len(model.input_shapes) > 1 if model.shapes_vary is None else model.shapes_vary


def native_dtypes(situation: Situation) -> tuple[str, ...]:
    """Return the dtypes that the training device multiplies in hardware; empty if unknown."""
    if device_kind(situation) == "cpu":
        return situation.machine.native_dtypes
    device = accelerator(situation)
    return device.native_dtypes if device else ()


def cores_per_process(situation: Situation) -> int:
    """Return the cores per training process if all of them share the machine's."""
    return max(1, situation.machine.cores // max(1, situation.facts.processes))


def without_layers(situation: Situation) -> Skipped | None:
    """The obstacle of levers that replace layers, for a program that torch.export saved."""
    if any(it.kind == PROGRAM for it in situation.facts.models):
        return Skipped(reason="An exported program has no layers to replace: give a function that makes the model.")
    return None


def bound_without(situation: Situation, *phases: StepPhase) -> float | None:
    """Return the speedup if these phases took no time (Amdahl's law).

    None if the account is empty or consists only of these phases: then there is no bound.
    """
    account = situation.account
    rest: float = account.wall - sum(account.seconds_in(phase) for phase in phases)
    if account.wall <= 0 or rest <= 0:
        return None
    return account.wall / rest


def bound_without_wait(situation: Situation) -> float | None:
    """Return the speedup if no step waited for data; None where workers take cores from the training, so that what they
    no longer do shortens all of the step."""
    return None if workers_take_cores(situation) else bound_without(situation, "data_wait")


def workers_take_cores(situation: Situation) -> bool:
    """Whether a CPU has fewer cores for a training process than its loader has workers and torch has threads."""
    facts = situation.facts
    workers = max((it.workers for it in facts.training_loaders), default=0)
    too_few = workers > 0 and workers + facts.threads > cores_per_process(situation)
    return too_few and device_kind(situation) == "cpu"


def bound_of_computing(situation: Situation) -> float | None:
    """Return the speedup if this process's computation took no time, including its own fetching."""
    fetches_itself = any(loader.workers == 0 for loader in situation.facts.loaders)
    fetching: tuple[StepPhase, ...] = ("data_wait",) if fetches_itself else ()
    return bound_without(situation, "forward", "backward", "optimizer", "other", *fetching)


def without_model(situation: Situation) -> Skipped | None:
    """Return the obstacle of every lever that needs a model object."""
    return None if situation.facts.models else Skipped(reason=NO_MODEL)


def models_with(situation: Situation, layer: Literal["convolutions", "recurrent"]) -> tuple[ModelFacts, ...]:
    """Return the models that have such layers."""
    return tuple(model for model in situation.facts.models if getattr(model, layer) > 0)
