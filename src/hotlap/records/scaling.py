"""Collectives between processes, and what a step takes in more of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate
from hotlap.records.workload import Setting

CollectiveName: TypeAlias = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "fsdp2-gather", "fsdp2-scatter", "fsdp2-update", "zero-1-update"
]
"""Collectives, and what strategies do with them: FSDP2's gathering of a part of the model, and what it does with the
gradients of one; its update of a parameter, and ZeRO-1's, beside computing."""


MeasuredOptimizer: TypeAlias = Literal["AdamW", "Adam", "SGD"]


class TrainedParts(Record, frozen=True, kw_only=True):
    """The parts into which FSDP2 divides a model: so many ``parameters`` each, updated by that class of
    ``torch.optim``, whose implementation is as the script asks for it (None: as torch decides)."""

    parameters: int = 8
    optimizer: MeasuredOptimizer = "AdamW"
    fused: bool | None = None
    foreach: bool | None = None


class CollectiveRate(Record, frozen=True, kw_only=True):
    """What one collective takes between ``processes``: ``latency_seconds`` plus the whole buffer's bytes divided by
    ``bytes_per_second``, fitted to the median times in ``seconds_by_bytes``. Bytes of what a strategy does are those of
    the whole part or parameter.

    ``latency_error_seconds`` and ``bandwidth_error`` are standard errors of the fit, the second as a share of the
    bandwidth. ``largest_error`` is the largest share by which a point is off the line.
    """

    name: CollectiveName
    backend: str
    processes: int
    latency_seconds: float
    bytes_per_second: float
    latency_error_seconds: float = 0.0
    bandwidth_error: float = 0.0
    largest_error: float = 0.0
    seconds_by_bytes: tuple[tuple[int, float], ...] = ()


class CollectiveRates(Record, frozen=True, kw_only=True):
    """The collectives of this machine. ``hidden_share`` is the share of the shorter of a collective and a computation
    that vanished when both ran at the same time: 1 where they do not hinder each other, 0 where they take turns.
    ``error`` says why there are none."""

    rates: tuple[CollectiveRate, ...] = ()
    hidden_share: float | None = None
    error: str = ""


Strategy: TypeAlias = Literal["ddp", "zero-1", "fsdp2"]


class Link(Record, frozen=True, kw_only=True):
    """What one device sends and receives over one link: seconds for each message, and bytes per second in each
    direction."""

    bytes_per_second: float
    latency_seconds: float = 0.0


class ReadyGradient(Record, frozen=True, kw_only=True):
    """A parameter's gradient: its bytes, and the share of the backward pass after which it was ready."""

    share: float
    size_bytes: int


class MeasuredStep(Record, frozen=True, kw_only=True):
    """The step of one process without communication, from which steps of several processes are predicted.

    ``gradients`` are in the order in which backward finished them. ``step_seconds`` are single steps after warm-up,
    whose spread is that of stragglers. ``threads`` is with how many threads the process computed (0: on a device).
    ``units`` is into how many parts FSDP2 divides the model: its repeated blocks and the rest. ``activation_bytes`` are
    all bytes of the peak besides parameters, gradients and optimizer state; None where memory was not counted.
    """

    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    other_seconds: float = 0.0
    gradients: tuple[ReadyGradient, ...] = ()
    step_seconds: tuple[float, ...] = ()
    samples: float = 1.0
    units: int = 1
    threads: int = 0
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    activation_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """The mean step."""
        return self.forward_seconds + self.backward_seconds + self.optimizer_seconds + self.other_seconds


class Cluster(Record, frozen=True, kw_only=True):
    """``nodes`` machines of ``devices_per_node`` devices, or processes on the processor.

    ``within`` and ``between`` are the links of one device to the others of its node, and to other nodes. ``measured``
    are collectives measured on this machine, which are used in place of ``within`` for as many processes.
    ``hidden_share`` is the share of the shorter of a collective and a computation that vanishes when both run at the
    same time. ``cores`` is for processes on the processor (0: devices compute). ``price_per_device_hour``,
    ``failure_seconds`` (the mean time between failures of one device) and ``checkpoint_seconds`` are None where not
    given.
    """

    nodes: int = 1
    devices_per_node: int = 1
    device: str = ""
    device_memory_bytes: int = 0
    within: Link
    between: Link
    measured: tuple[CollectiveRate, ...] = ()
    hidden_share: float = 1.0
    cores: int = 0
    price_per_device_hour: float | None = None
    currency: str = ""
    failure_seconds: float | None = None
    checkpoint_seconds: float | None = None


ScaleLimit: TypeAlias = Literal["compute", "communication", "stragglers", "cores", "memory"]


class ScalePoint(Record, frozen=True, kw_only=True):
    """A predicted step of ``ranks`` processes, each with the measured batch.

    ``efficiency`` is the step of one process over this one. In ``exposed_seconds`` computing waits for a collective, in
    ``straggler_seconds`` the mean rank waits for the slowest. ``peak_bytes`` is that of one rank (0: not known), and
    ``fits`` says whether a tenth of the device stays free (None: not known). ``limit`` takes the largest part of what
    is lost. ``cost_per_million_samples`` and ``checkpoint_every_seconds`` are None where not asked for.
    ``inside_validation`` says that as many processes of this strategy were compared with real runs.
    """

    ranks: int
    strategy: Strategy
    step_seconds: float
    efficiency: float
    samples_per_second: float
    exposed_seconds: float = 0.0
    straggler_seconds: float = 0.0
    peak_bytes: int = 0
    fits: bool | None = None
    limit: ScaleLimit = "compute"
    cost_per_million_samples: float | None = None
    checkpoint_every_seconds: float | None = None
    inside_validation: bool = False


class ValidatedError(Record, frozen=True, kw_only=True):
    """How far predictions of a strategy were off real runs: over ``cases`` on ``machine``, of up to ``most_ranks``
    processes, the mean and the largest error of the step's time, as shares.

    ``ratio_errors`` are, by number of processes, the largest errors of the ratio between its step and that of DDP.
    """

    strategy: Strategy
    cases: int
    mean_error: float
    largest_error: float
    most_ranks: int
    machine: str = ""
    date: str = ""
    ratio_errors: tuple[tuple[int, float], ...] = ()


class StrategyChange(Record, frozen=True, kw_only=True):
    """From ``ranks`` processes on, ``strategy`` is predicted to be the fastest that fits."""

    ranks: int
    strategy: Strategy


class ScalePrediction(Record, frozen=True, kw_only=True):
    """What ``hotlap scale`` predicts: a point for each number of ranks and strategy, the changes of strategy, what was
    assumed, and the errors of earlier predictions (none: not validated).

    ``step`` is the step of one device of the cluster, and ``measured`` that of this machine where it is another.
    """

    step: MeasuredStep
    measured: MeasuredStep | None = None
    cluster: Cluster
    points: tuple[ScalePoint, ...] = ()
    changes: tuple[StrategyChange, ...] = ()
    errors: tuple[ValidatedError, ...] = ()
    assumptions: tuple[str, ...] = ()
    utilisation: float | None = None


class ProcessRate(Record, frozen=True, kw_only=True):
    """The script in ``processes`` of so many ``threads`` each, measured.

    ``efficiency`` is its samples per second and process against those of the smallest number, with an interval; None
    for that one itself.
    """

    processes: int
    threads: int = 0
    step_seconds: float
    samples_per_second: float
    efficiency: Estimate | None = None
    peak_bytes: int = 0


class ProcessScaling(Record, frozen=True, kw_only=True):
    """What ``hotlap tune --nproc`` measured in ``replicates``: weak scaling, with the same batch in each process."""

    rates: tuple[ProcessRate, ...] = ()
    replicates: int = 0
    confidence: float = 0.95
    cores: int = 0


class StrategyForecast(Record, frozen=True, kw_only=True):
    """What another strategy was predicted to give, before any trial of the lever's ``setting`` that applies it.

    ``ratio`` is its step over the measured one of the script's own strategy. ``error`` is the largest error of such
    ratios that was validated, as a share (None: not validated for these processes). ``peak_bytes`` is that of one rank
    (0: not known), and ``fits`` says whether the device has room for it (None: not known). ``order`` counts the
    settings to be tried from 1; 0 is one that is not, and ``reason`` says why. ``reshards`` is None but for FSDP2.

    ``first_ratio`` and ``first_peak_bytes`` are of its first measurement, one replicate (None and 0: there was none).
    """

    strategy: Strategy
    reshards: bool | None = None
    setting: Setting
    ratio: float
    error: float | None = None
    peak_bytes: int = 0
    fits: bool | None = None
    order: int = 0
    reason: str = ""
    first_ratio: float | None = None
    first_peak_bytes: int = 0


class StrategyChoice(Record, frozen=True, kw_only=True):
    """The strategies for a script of ``ranks`` processes, which uses ``strategy`` itself: its measured step and its
    peak for one rank, and in ``exposed_seconds`` of a step nothing but communication is predicted to run.

    ``measured`` are the collectives of this machine that predictions used. ``validated`` names the machine and the
    date of the predictions' errors (empty: they were not validated for these processes).
    """

    ranks: int
    strategy: Strategy
    reshards: bool | None = None
    step_seconds: float
    exposed_seconds: float = 0.0
    peak_bytes: int = 0
    forecasts: tuple[StrategyForecast, ...] = ()
    measured: tuple[CollectiveRate, ...] = ()
    hidden_share: float | None = None
    validated: str = ""
