"""Predict the script's step on more devices than this machine has, from its own measured step."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hotlap.errors import HotlapError, ScriptError, UsageError
from hotlap.experiment.ceilings import Bounds, flop_utilisation
from hotlap.experiment.collective_rates import collectives_request
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.observe import command_line
from hotlap.experiment.options import Options, ScaleChoices, check
from hotlap.experiment.plan_ahead import Forecast, Launches
from hotlap.experiment.profiled_launch import take_profile
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Trials
from hotlap.levers.api import all_levers
from hotlap.measure.account import warm_up_steps
from hotlap.procedures.forecast import profile_launch
from hotlap.records import (
    AccountMemory,
    Cluster,
    CollectiveRates,
    Link,
    Machine,
    MeasuredStep,
    MemoryAccount,
    Observe,
    ScalePrediction,
    ScriptFacts,
    Situation,
    Study,
    Workload,
)
from hotlap.scaling import predict, step_of
from hotlap.scaling.links import ADDED
from hotlap.scaling.published import Device, devices, validated_errors
from hotlap.study import Journal, load_study
from hotlap.traces import read_trace
from hotlap.trial.executor import Executor

_MEMORY_STEPS = 4
_STEPS_AFTER = 2
_MOST_MEASURED_PROCESSES = 4
_ONE_PASS = (
    "Gradients are exchanged once per step, as with `no_sync`: the script calls backward {times:g} times in each."
)


def scale(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Measure the step of one process, its trace, memory and, unless links are given, collectives; then predict.

    Raises as :func:`hotlap.procedures.search.tune` does, except that no budget is too small, and :class:`ScriptError`
    for a script of several processes.
    """
    check(options, all_levers())
    device_of(options.scale)
    trials, draft = opened(workload, options, executor, on_progress, journal, clock, kind="scale")
    return guarded(draft, lambda: _measure(trials, draft), lambda: draft.close("interrupted"))


def _measure(trials: Trials, draft: StudyDraft) -> None:
    machine, observation = begin(trials, draft)
    if observation.facts.processes > 1:
        raise ScriptError(
            f"The script ran in {observation.facts.processes} processes; predictions start from the step of one.",
            where=command_line(trials.workload),
            remedy="Start it in one process: `hotlap scale torchrun --nproc-per-node 1 train.py`.",
        )
    memory_launch = Launches(1, None, f"to count the memory of {_MEMORY_STEPS} steps")
    draft.plan_ahead("baseline", Forecast.of(profile_launch(trials), memory_launch))
    situation = Situation(facts=observation.facts, machine=machine, account=observation.account)
    utilisation, _ = flop_utilisation(observation.facts, machine, observation.account, draft)
    draft.update(model_flop_utilisation=utilisation)
    take_profile(trials, draft, observation, Bounds(situation))  # which may show that the rate is too low
    memory = _memory(trials, draft)
    draft.update(memory=memory)
    step = _step(draft.study, memory)
    choices = trials.options.scale
    rates = _collectives(trials, draft, observation.facts, machine, step)
    try:
        found = predicted(step, observation.facts, machine, choices, rates, draft.study.model_flop_utilisation)
    except UsageError:
        draft.close("finished")  # `--from` can use what was measured
        raise
    draft.update(scale=found)
    draft.close("finished")


def _memory(trials: Trials, draft: StudyDraft) -> MemoryAccount | None:
    draft.report("profile", "The unmodified script, its storages counted")
    instruments = (Observe(), AccountMemory(steps=_MEMORY_STEPS))
    assignment = msgspec.structs.replace(trials.assignment(), instruments=instruments)
    run = trials.launch(assignment, steps=_MEMORY_STEPS + _STEPS_AFTER)
    if run.memory is None:
        draft.warn("Memory could not be counted, so that memory per rank is unknown.")
    return run.memory


def _step(study: Study, memory: MemoryAccount | None) -> MeasuredStep:
    """The step of a study with a first run and a trace. Raises :class:`ScriptError` where its trace has none."""
    run, account = study.baseline, study.account_before
    found = None
    if study.trace_path and run is not None and account is not None:
        facts = run.facts
        found = step_of(
            read_trace(study.trace_path, with_inputs=True),
            account,
            backwards=facts.backwards_per_step,
            step_seconds=run.steps.wall_seconds[warm_up_steps(run.steps) :],
            units=1 + max((it.count for model in facts.models for it in model.repeated), default=0),
            threads=min(facts.threads, study.machine.cores) if _on_processor(facts) else 0,
            amounts=memory.peak if memory is not None else None,
        )
    if found is None:
        raise ScriptError(
            "No trace of a backward pass was recorded, so it is unknown when gradients are ready.",
            where=command_line(study.workload),
            remedy="`hotlap profile` shows why the script cannot be profiled.",
        )
    return found


def _on_processor(facts: ScriptFacts) -> bool:
    return facts.device.partition(":")[0] == "cpu"


def _devices_here(choices: ScaleChoices, machine: Machine) -> int:
    return choices.devices_per_node or len(machine.accelerators) or max(2, machine.cores)


def _collectives(
    trials: Trials, draft: StudyDraft, facts: ScriptFacts, machine: Machine, step: MeasuredStep
) -> tuple[CollectiveRates, ...]:
    """Measured for two and for four processes, unless the links within a node are known; with what strategies do with
    parts like those of the script's model."""
    choices = trials.options.scale
    here = _devices_here(choices, machine)
    if choices.device or choices.node_link or here < 2:
        return ()
    kind = "cpu" if _on_processor(facts) else "cuda"
    most = here if kind == "cpu" else min(here, len(machine.accelerators))
    if most < 2:
        raise UsageError(
            "This machine has one device, so the link between devices cannot be measured here.",
            remedy="Give --node-link, or a --device with published figures.",
        )
    counts = sorted({2, min(_MOST_MEASURED_PROCESSES, most)})
    draft.report("profile", "Collectives between processes of this machine")
    parameters = max(1, round(len(step.gradients) / step.units))
    rates = tuple(trials.executor.collectives(collectives_request(facts, it, parameters)) for it in counts)
    error = next((it.error for it in rates if it.error), "")
    if error:
        raise HotlapError(error, remedy="Give --node-link to do without the measurement.")
    return rates


def device_of(choices: ScaleChoices) -> Device | None:
    """The device that ``--device`` names. Raises :class:`UsageError` for an unknown one."""
    if not choices.device:
        return None
    if choices.device not in devices():
        raise UsageError(
            f"hotlap has no published figures of {choices.device!r}.", remedy=f"Give one of {', '.join(devices())}."
        )
    return devices()[choices.device]


def predicted_from(source: Path, choices: ScaleChoices) -> Study:
    """Predict from a study of ``hotlap scale`` or ``hotlap profile``, or from a trace, without running anything.

    The study returned is not stored. Raises :class:`hotlap.errors.HotlapError` for other files.
    """
    if not source.is_dir():
        return _from_trace(source, choices)
    study = load_study(source)
    if study.baseline is None:
        raise UsageError(f"The study {source} has no measured step.", remedy="Give one of `hotlap scale`.")
    known = study.scale
    rates: tuple[CollectiveRates, ...] = ()
    if known is not None and known.cluster.measured and not (choices.device or choices.node_link):
        rates = (CollectiveRates(rates=known.cluster.measured, hidden_share=known.cluster.hidden_share),)
    step = (known.measured or known.step) if known is not None else _step(study, study.memory)
    share = study.model_flop_utilisation
    found = predicted(step, study.baseline.facts, study.machine, choices, rates, share)
    return msgspec.structs.replace(study, kind="scale", status="finished", scale=found)


def _from_trace(source: Path, choices: ScaleChoices) -> Study:
    step = step_of(read_trace(source, with_inputs=True))
    if step is None:
        raise UsageError(
            f"The trace {source} has no backward pass with shapes of gradients within a marked step.",
            remedy="Record it with `record_shapes=True`, `schedule` and `profiler.step()`, or give a study.",
        )
    if not choices.devices_per_node or not (choices.node_link or choices.link):
        raise UsageError(
            "A trace does not describe the machine.", remedy="Give --gpus-per-node and --node-link or --link."
        )
    found = predicted(step, ScriptFacts(device="cuda"), Machine(), choices)
    of_trace = "The step is that of the trace, which profiling makes longer, and counts as one sample."
    found = msgspec.structs.replace(found, assumptions=(of_trace, *found.assumptions))
    workload = Workload(kind="script", target=str(source), directory=os.fspath(Path.cwd()), python=sys.executable)
    return Study(kind="scale", status="finished", workload=workload, scale=found)


def predicted(
    step: MeasuredStep,
    facts: ScriptFacts,
    machine: Machine,
    choices: ScaleChoices,
    rates: tuple[CollectiveRates, ...] = (),
    utilisation: float | None = None,
) -> ScalePrediction:
    """Predict for the cluster that the options describe. Raises :class:`UsageError` where a figure is missing."""
    device, measured = device_of(choices), step
    assumed: list[str] = []
    share = choices.utilisation or utilisation
    if device is not None:
        step, sentence = _on_device(step, facts, device, share, given=choices.utilisation is not None)
        assumed.append(sentence)
    here = _devices_here(choices, machine)
    if choices.nodes > 1 and not choices.link:
        raise UsageError("The link between nodes is not known.", remedy="Give it for one device: --link 400Gb.")
    if here > 1 and device is None and not (rates or choices.node_link or choices.link):
        raise UsageError("The link between the devices of a node is not known.", remedy="Give --node-link 300GB/s.")
    node_link = choices.node_link or (device.node_link_bytes_per_second if device is not None else 0.0)
    within = Link(bytes_per_second=node_link or choices.link or 1.0)
    between = Link(bytes_per_second=choices.link or within.bytes_per_second, latency_seconds=choices.link_seconds)
    hidden = min((it.hidden_share for it in rates if it.hidden_share is not None), default=1.0)
    if not rates and here > 1:
        assumed.append("Collectives reach the given bandwidth, and do not slow computing down.")
    if here > 1 and step.threads and not any(rate.name in ADDED for it in rates for rate in it.rates):
        assumed.append("FSDP2 and ZeRO-1 do nothing but compute and exchange: what they add was not measured.")
    if choices.nodes > 1 and not choices.link_seconds:
        assumed.append("Messages between nodes have no latency: --link-latency gives it.")
    if facts.backwards_per_step > 1:
        assumed.append(_ONE_PASS.format(times=facts.backwards_per_step))
    cluster = Cluster(
        nodes=choices.nodes,
        devices_per_node=here,
        device=choices.device,
        device_memory_bytes=device.memory_bytes if device is not None else _memory_here(facts, machine),
        within=within,
        between=between,
        measured=tuple(rate for it in rates for rate in it.rates),
        hidden_share=hidden,
        cores=machine.cores if device is None and step.threads else 0,
        price_per_device_hour=choices.price_per_device_hour,
        currency=choices.currency,
        failure_seconds=choices.failure_seconds,
        checkpoint_seconds=choices.checkpoint_seconds,
    )
    found = predict(step, cluster, errors=validated_errors(), assumptions=assumed)
    if device is None:
        return found
    return msgspec.structs.replace(found, measured=measured, utilisation=share)


def _memory_here(facts: ScriptFacts, machine: Machine) -> int:
    if _on_processor(facts) or not machine.accelerators:
        return 0  # processes on the processor share its memory
    return machine.accelerators[0].memory_bytes


def _on_device(
    step: MeasuredStep, facts: ScriptFacts, device: Device, share: float | None, *, given: bool
) -> tuple[MeasuredStep, str]:
    """The step on another device, all parts of it shorter by the same factor, and the sentence that says so."""
    flops = max((it.flops_per_step for it in facts.models if it.flops_per_step), default=None)
    if not flops or not share:
        raise UsageError(
            "The script's floating-point operations were not counted."
            if not flops
            else "Which share of the device's peak the script reaches is unknown, as the rate of this machine is.",
            remedy="Leave out --device." if not flops else "Give it, as in `--utilisation 40%`, with --from STUDY.",
        )
    factor = flops / (share * device.flops_per_second) / step.seconds
    whose = "as given" if given else "as it does of this machine's matrix multiplication rate"
    sentence = (
        f"On {device.name} the script reaches {100 * share:.0f} % of the peak of "
        f"{device.flops_per_second / 1e12:g} TFLOPS, {whose}, and every part of its step is shorter by the same "
        "factor; what does not shrink, such as launching kernels, is left out."
    )
    changed = msgspec.structs.replace(
        step,
        forward_seconds=factor * step.forward_seconds,
        backward_seconds=factor * step.backward_seconds,
        optimizer_seconds=factor * step.optimizer_seconds,
        other_seconds=factor * step.other_seconds,
        step_seconds=tuple(factor * it for it in step.step_seconds),
        threads=0,
    )
    return changed, sentence
