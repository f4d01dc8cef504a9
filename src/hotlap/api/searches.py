"""Studies from Python: make a script or model faster or smaller on this machine, or explain why it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hotlap.api.engine import (
    STUDIES,
    OnProgress,
    Search,
    batch_search,
    begin,
    inference_search,
    memory_search,
    profile_search,
    say_nothing,
    scale_search,
    write_plan,
)
from hotlap.api.functions import script_of_function
from hotlap.errors import UsageError
from hotlap.experiment.options import (
    BatchChoices,
    EstimateChoices,
    Options,
    ScaleChoices,
    with_quick_budget,
)
from hotlap.objective import USUAL_SLOWDOWN, for_inference
from hotlap.records import USUAL_LEVEL, InferenceGoal, NetworkMode, Objective, Study, Workload
from hotlap.study import BATCHES, INFERENCES, MEMORIES, PROFILES, SCALES

SPEED = Objective()
"""The default objective of a search."""


def tune(
    script: str | os.PathLike[str] | Callable[..., object],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    objective: Objective = SPEED,
    budget_seconds: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    allow: Iterable[str] = (),
    batch_flag: str = "",
    accept_unverified: bool = False,
    delta: float = 0.01,
    seed: int = 0,
    parity_steps: int = 300,
    quick: bool = False,
    sample_cache_bytes: int = 0,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    plan_path: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Study:
    """Find what makes a training script faster on this machine, prove it, and return the study.

    ``objective`` names the metric to improve, and limits of other metrics:
    ``Objective(metric="peak_bytes", limits=(Limit(metric="seconds_per_sample", most=1.3),))`` is what ``--goal memory
    --slowdown 1.3`` asks for.

    ``script`` is a path, with ``module=True`` a dotted name, or a function without parameters that trains. Trials run
    in fresh processes: a function of a file is imported there; one of a notebook is written to a file below
    ``directory``, with the functions, classes, imports and plain values that it uses. Closures, and functions that use
    other objects of the notebook, are refused. ``arguments`` are the script's own (``sys.argv``). The study is kept
    under ``directory``; the plan is written to ``plan_path`` where one is named and a lever was kept. The other options
    are those of ``hotlap tune``. ``on_progress`` is called whenever something begins or becomes known.

    Raises :class:`HotlapError`: a script that cannot be run or has nothing to tune, options that make no sense, a study
    folder that cannot be written.
    """
    options = Options(
        objective=objective,
        budget_seconds=budget_seconds,
        only=tuple(only),
        skip=tuple(skip),
        allow=tuple(allow),
        batch=BatchChoices(flag=batch_flag),
        accept_unverified=accept_unverified,
        delta=delta,
        seed=seed,
        parity_steps=parity_steps,
        quick=quick,
        sample_cache_bytes=sample_cache_bytes,
        network=network,
        unprotected=unprotected,
    )
    workload = _workload(script, arguments, module, Path(directory))
    found = begin(workload, with_quick_budget(options), root=Path(directory), on_progress=on_progress or say_nothing)
    if plan_path is not None and found.plan.settings:
        write_plan(found, Path(plan_path))
    return found


def profile(
    script: str | os.PathLike[str] | Callable[..., object],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    budget_seconds: float | None = None,
    seed: int = 0,
    batch_sizes: bool = False,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Study:
    """Explain where a training script spends its time on this machine: its ``findings``, costliest first.

    No lever is tried. With ``batch_sizes`` the model alone is also timed with half, twice and four times the batch
    (``batch_rates``). The other arguments are those of :func:`tune`, a function as ``script`` included; the study is
    kept in a folder of its own under ``directory``. Raises as :func:`tune` does.
    """
    options = Options(
        budget_seconds=budget_seconds, seed=seed, batch_sizes=batch_sizes, network=network, unprotected=unprotected
    )
    workload = _workload(script, arguments, module, Path(directory))
    return _begun(workload, options, profile_search, Path(directory) / PROFILES, on_progress)


def batch(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    flag: str = "",
    headroom: float = 0.1,
    most: int | None = None,
    model_alone: bool = False,
    budget_seconds: float | None = None,
    seed: int = 0,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Study:
    """Find the batch size from which larger ones gain nothing: ``batch_search`` of the study.

    The size is changed in the script's DataLoader, or by its option ``flag`` (``"--batch-size"``). ``headroom`` is the
    share of memory that stays free, and ``most`` the largest size to try, in samples (None: what fits). With
    ``model_alone`` the model is also timed without its loader. The other arguments are those of :func:`tune`; the study
    is kept in a folder of its own under ``directory``. Another size changes what is learned, which is not compared.

    Raises as :func:`tune` does; a size that does not fit into memory is part of the answer.
    """
    options = Options(
        budget_seconds=budget_seconds,
        seed=seed,
        batch=BatchChoices(flag=flag, headroom=headroom, most=most, model_alone=model_alone),
        network=network,
        unprotected=unprotected,
    )
    workload = workload_of(script, arguments, module)
    return _begun(workload, options, batch_search, Path(directory) / BATCHES, on_progress)


def infer(
    model: str,
    *,
    inputs: str = "",
    arguments: Sequence[str] = (),
    goal: InferenceGoal = "throughput",
    p99_seconds: float | None = None,
    slowdown: float = USUAL_SLOWDOWN,
    quality: float = USUAL_LEVEL,
    metric: str = "",
    lengths: bool = False,
    budget_seconds: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    allow: Iterable[str] = (),
    accept_unverified: bool = False,
    delta: float = 0.01,
    seed: int = 0,
    quick: bool = False,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Study:
    """Find what makes the calls of a model faster on this machine, with outputs that stay correct.

    ``model`` names a function that returns a ``torch.nn.Module``, and ``inputs`` one that returns a list or generator
    of inputs, both as ``"module:function"``. An input is a tensor, a tuple of positional arguments, or a mapping of
    named ones. ``model`` may also be a script that calls a model in a loop, with ``arguments``; then there are no
    ``inputs``, and :func:`hotlap.patch` writes what was found into the script.

    ``goal`` is what is to become better: samples per second (``"throughput"``), the median time of a call
    (``"latency"``), or peak memory (``"memory"``) with calls that take at most ``slowdown`` times as long. What does
    not answer 99 % of its calls within ``p99_seconds`` is not recommended. ``quality`` is what the cosine between
    outputs and those in float32 must reach, and the share of decisions that stay the same (0 to 1). With ``metric``,
    the name of a function of yours as ``"module:function"``, it is instead the share of that metric which must be kept:
    the function gets a dictionary from the number of an input to the model's output for it, and returns a score for
    each sample, larger if better, or a single one. With ``lengths``, whole passes over all inputs are timed, with their
    sequences in batches of similar length (``baseline.facts.lengths``), and no other lever unless ``only`` names it;
    the inputs need an attention mask. The other arguments are those of :func:`tune`; the study is kept in
    a folder of its own under ``directory``, and ``verification.quality`` of it is what was compared.

    Raises as :func:`tune` does.
    """
    if model.endswith(".py") and not (inputs or metric or lengths):
        workload = workload_of(model, arguments, module=False)
    else:
        workload = inference_workload(model, inputs, metric, lengths=lengths)
    if lengths:
        check_lengths(goal, p99_seconds)
    options = Options(
        budget_seconds=budget_seconds,
        only=tuple(only) or (LENGTH_LEVERS if lengths else ()),
        skip=tuple(skip),
        allow=tuple(allow),
        accept_unverified=accept_unverified,
        delta=delta,
        objective=for_inference(goal, slowdown=slowdown, p99_seconds=p99_seconds),
        seed=seed,
        quality=quality,
        quick=quick,
        network=network,
        unprotected=unprotected,
    )
    return _begun(workload, with_quick_budget(options), inference_search, Path(directory) / INFERENCES, on_progress)


def memory(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    steps: int = Options().memory_steps,
    estimate: bool = False,
    batch_sizes: Iterable[int] = (),
    device_memory_bytes: int = 0,
    ranks: int = 1,
    flag: str = "",
    seed: int = 0,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Study:
    """Account for the memory of the first ``steps`` training steps: ``memory`` of the study, in bytes.

    With ``estimate`` nothing is run on a device: ``memory_estimate`` has the peak for each of ``batch_sizes`` (none:
    the script's own) and for each lever that saves memory, computed on tensors without data. ``device_memory_bytes``
    is the available memory, ``ranks`` the number of processes that states are sharded over, and ``flag`` the script's
    own option for its batch size; all four are for an estimate alone. The other arguments are those of :func:`tune`;
    the study is kept in a folder of its own under ``directory``.

    Raises as :func:`tune` does.
    """
    asked = EstimateChoices(
        batch_sizes=tuple(batch_sizes), device_memory_bytes=device_memory_bytes, ranks=ranks, flag=flag
    )
    if not estimate and asked != EstimateChoices():
        raise UsageError(
            "batch_sizes, device_memory_bytes, ranks and flag are for an estimate.", remedy="Add estimate=True."
        )
    options = Options(
        seed=seed,
        memory_steps=steps,
        estimate=asked if estimate else None,
        network=network,
        unprotected=unprotected,
    )
    workload = workload_of(script, arguments, module)
    return _begun(workload, options, memory_search, Path(directory) / MEMORIES, on_progress)


def scale(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    nodes: int = 1,
    devices_per_node: int = 0,
    device: str = "",
    link_bytes_per_second: float = 0.0,
    node_link_bytes_per_second: float = 0.0,
    link_seconds: float = 0.0,
    utilisation: float | None = None,
    price_per_device_hour: float | None = None,
    seed: int = 0,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Study:
    """Predict the script's step on more devices, from its step measured here: ``scale`` of the study.

    The cluster has ``nodes`` of ``devices_per_node`` each (0: as many as this machine has devices or cores) of the kind
    ``device``, by its published figures ("h100"; empty: this machine's own). Links are those of one device in one
    direction: ``link_bytes_per_second`` between nodes, with a latency of ``link_seconds`` per message, and
    ``node_link_bytes_per_second`` within a node (0: the device's published figure, else measured here).
    ``utilisation`` is the share of the device's peak that the script reaches (None: its share of this machine's rate).
    With ``price_per_device_hour`` each point has the cost of a million samples. The other arguments are those of
    :func:`tune`; the study is kept in a folder of its own under ``directory``. A prediction quotes the errors of
    earlier ones.

    Raises as :func:`tune` does.
    """
    cluster = ScaleChoices(
        nodes=nodes,
        devices_per_node=devices_per_node,
        device=device,
        link=link_bytes_per_second,
        node_link=node_link_bytes_per_second,
        link_seconds=link_seconds,
        utilisation=utilisation,
        price_per_device_hour=price_per_device_hour,
    )
    options = Options(seed=seed, scale=cluster, network=network, unprotected=unprotected)
    workload = workload_of(script, arguments, module)
    return _begun(workload, options, scale_search, Path(directory) / SCALES, on_progress)


def _begun(workload: Workload, options: Options, search: Search, root: Path, on_progress: OnProgress | None) -> Study:
    """A study of another kind than a search for levers, in the folder of its kind."""
    return begin(workload, options, root=root, on_progress=on_progress or say_nothing, search=search)


def _workload(
    script: str | os.PathLike[str] | Callable[..., object], arguments: Sequence[str], module: bool, directory: Path
) -> Workload:
    """As :func:`workload_of`; a function is written as a script below ``directory``."""
    if isinstance(script, str | os.PathLike):
        return workload_of(script, arguments, module)
    if module:
        raise UsageError("A function is no module.", remedy="Leave out `module`.")
    path = script_of_function(script, directory)
    here = Path.cwd()
    return workload_of(path.relative_to(here) if path.is_relative_to(here) else path, arguments, module=False)


def workload_of(script: str | os.PathLike[str], arguments: Sequence[str], module: bool) -> Workload:
    """A script or module of this interpreter, started in the present folder."""
    return Workload(
        kind="module" if module else "script",
        target=os.fspath(script),
        arguments=tuple(arguments),
        directory=os.fspath(Path.cwd()),
        python=sys.executable,
    )


LENGTH_LEVERS = ("length-bucketing",)
"""What is tried with ``--lengths`` unless levers are named."""


def check_lengths(goal: InferenceGoal, p99_seconds: float | None) -> None:
    """Raise :class:`UsageError` for goals of single calls, which passes over all inputs do not time."""
    if goal == "latency" or p99_seconds is not None:
        raise UsageError(
            "--lengths times whole passes over all inputs, so that no single call has a latency.",
            remedy="Leave out --goal latency and --p99.",
        )


def inference_workload(model: str, inputs: str, metric: str = "", *, lengths: bool = False) -> Workload:
    """The functions ``module:function`` that make a model and its inputs, and evaluate its outputs (empty: none does).

    In place of the first there may be the folder of a transformers model, or a file of ``torch.export.save``.
    With ``lengths`` a pass over all inputs is the unit of work instead of a call. Raises :class:`UsageError`.
    """
    _check_model(model)
    for what, name in (("--inputs", inputs), *((("--metric", metric),) if metric else ())):
        if not all(name.partition(":")):
            raise UsageError(f"{what} is {name!r}, which names no function.", remedy="Write it as module:function.")
    return Workload(
        kind="inference",
        target=model,
        arguments=("--inputs", inputs, *(("--metric", metric) if metric else ()), *(("--lengths",) if lengths else ())),
        directory=os.fspath(Path.cwd()),
        python=sys.executable,
    )


def _check_model(model: str) -> None:
    """Raise :class:`UsageError` for what is neither a function nor a saved model."""
    path = Path(model)
    if all(model.partition(":")) or (path / "config.json").is_file() or (path.suffix == ".pt2" and path.is_file()):
        return
    remedy = "Write it as module:function, or name the folder of a transformers model, or a .pt2 file of torch.export."
    if path.is_dir():
        raise UsageError(f"The model is {model!r}, a folder without a config.json.", remedy=remedy)
    raise UsageError(f"The model is {model!r}, which names no function and no saved model.", remedy=remedy)
