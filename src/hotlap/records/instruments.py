"""What a trial does besides running the script: each instrument does one thing, and has its own file in
``runtime/instruments`` (or is part of what every session records).

An instrument makes steps longer, feeds them other data, or changes what they compute, so a run with an instrument is
compared only with runs that have the same one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.script import CallSite
from hotlap.records.workload import Plan, Setting

FEWEST_KEPT_STEPS: Final = 5
"""Fewer single steps say nothing about a training."""

KEPT_STEPS: Final = "HOTLAP_KEPT_STEPS"
"""The variable with the folder of :class:`KeepSteps` and :class:`RestoreSteps`."""


class Observe(Record, frozen=True, kw_only=True, tag="observe"):
    """Counts operations and records randomness and the work between steps, which slows down a few of the first steps.

    A launch of one process whose time or steps are over goes on for ``epoch_end_seconds`` at most, where the training
    loader comes to its end by then, up to the step after it: so that an evaluation between two epochs is seen.
    """

    epoch_end_seconds: float = 0.0


class CollectEvidence(Record, frozen=True, kw_only=True, tag="collect-evidence"):
    """Watches for the causes of slowness (:mod:`hotlap.evidence`); ``profiled_steps`` of the last steps run under
    ``torch.profiler``."""

    profiled_steps: int = 0


class ReplayBatch(Record, frozen=True, kw_only=True, tag="replay-batch"):
    """Replays the first training batch, so that only the model is timed; with ``scale`` times its samples, repeated or
    left out."""

    scale: float = 1.0


class SweepLoader(Record, frozen=True, kw_only=True, tag="sweep-loader"):
    """Times the training loader alone with each of these settings, and no model: instead of the first step, which ends
    the process, or ``after_steps``, when the process is told to end (not if it ends by itself)."""

    settings: tuple[Setting, ...]
    after_steps: bool = False


class WatchNumbers(Record, frozen=True, kw_only=True, tag="watch-numbers"):
    """Ends the run at the first loss, gradient or weight that is NaN or infinite; from step ``check_from`` on (0: from
    torch's import on; None: never) every operation is checked too, without ``torch.compile``."""

    check_from: int | None = None


class AlignRandomness(Record, frozen=True, kw_only=True, tag="align-randomness"):
    """Compiled code draws the same random numbers as eager code, and a fetch of the same samples the same in whatever
    process; the invariants of each step are recorded."""


class WithoutDropout(Record, frozen=True, kw_only=True, tag="without-dropout"):
    """Every dropout probability is zero."""


class CaptureGradients(Record, frozen=True, kw_only=True, tag="capture-gradients"):
    """Saves the loss and the gradients of the first step."""


class CaptureOutputs(Record, frozen=True, kw_only=True, tag="capture-outputs"):
    """Saves what an inference target's model returns for each of its inputs, and a digest of each weight; with
    ``in_float32`` it computes in float32, whatever format its weights came in."""

    in_float32: bool = False


class WriteArtefact(Record, frozen=True, kw_only=True, tag="write-artefact"):
    """Writes an inference target's model, in the form that the plan gives it, into the folder ``artefact`` of the run,
    and all inputs next to it. Must be the last of an assignment's instruments.

    ``compile_mode`` is that of torch.compile (empty: the plan does not compile), and ``threads`` those that the plan
    sets (0: none).
    """

    compile_mode: str = ""
    threads: int = 0


class UseArtefact(Record, frozen=True, kw_only=True, tag="use-artefact"):
    """Calls the deployed model in ``folder``, through its own loader, in place of an inference target's model."""

    folder: str


class ShiftSeeds(Record, frozen=True, kw_only=True, tag="shift-seeds"):
    """Every seed that the program sets has ``offset`` added to it: weights that then differ were drawn at random."""

    offset: int = 1


class NudgeWeights(Record, frozen=True, kw_only=True, tag="nudge-weights"):
    """Every initial weight is moved by one unit in the last place: above or below itself, or outward from zero."""

    towards: Literal["above", "below", "outward"] = "above"


class RoundWeights(Record, frozen=True, kw_only=True, tag="round-weights"):
    """Initial weights are rounded to that number format, and computed with in their own."""

    number_format: str


class ComputeInFloat64(Record, frozen=True, kw_only=True, tag="compute-in-float64"):
    """Everything is computed in float64."""


class KeepSteps(Record, frozen=True, kw_only=True, tag="keep-steps"):
    """Keeps what these steps (the first one is 0) start from and what they change, in place of what was kept before: as
    many of them, evenly spaced, as fit into ``most_bytes``; none if these are fewer than :data:`FEWEST_KEPT_STEPS`.

    The executor has a folder for that (:data:`KEPT_STEPS`), for as long as it lives.
    """

    steps: tuple[int, ...]
    most_bytes: int


class RestoreSteps(Record, frozen=True, kw_only=True, tag="restore-steps"):
    """Starts the steps that were kept from what they started from, and compares what they change."""


class ReseedAugmentation(Record, frozen=True, kw_only=True, tag="reseed-augmentation"):
    """What the data pipeline draws comes from another seed, but for aligned fetches; weights and sample order stay."""

    seed: int


class SwitchLevers(Record, frozen=True, kw_only=True, tag="switch-levers"):
    """Switches levers on and off while the script trains: each block runs one of these configurations, which are added
    to the assignment's plan. Before the first block none is on."""

    configurations: tuple[Plan, ...]


class ResizeBatches(Record, frozen=True, kw_only=True, tag="resize-batches"):
    """Gives ``size`` to each DataLoader whose batch size is ``own``; where ``site`` is known, to those made there."""

    own: int
    size: int
    site: CallSite | None = None


class WatchEvaluation(Record, frozen=True, kw_only=True, tag="watch-evaluation"):
    """Notes the mean loss of each evaluation: of the loss functions of torch that are called without gradients after a
    forward pass of the model without gradients."""


class AwaitEvaluation(Record, frozen=True, kw_only=True, tag="await-evaluation"):
    """Lets the first block go on until the script has evaluated once, for ``most_seconds`` at most."""

    most_seconds: float


class MeasureGradientNoise(Record, frozen=True, kw_only=True, tag="measure-gradient-noise"):
    """Compares gradients of different batches at the same weights: in each of ``groups`` groups of ``gradients`` steps
    only the last step updates the weights."""

    groups: int = 6
    gradients: int = 6


class MeasureBlocks(Record, frozen=True, kw_only=True, tag="measure-blocks"):
    """Measures each repeated block of the model: the seconds of its forward pass, and the bytes it keeps."""


class LargestSamples(Record, frozen=True, kw_only=True, tag="largest-samples"):
    """Delivers the largest samples of the data set as one of the first batches, where samples vary in size."""


class WatchFailedPasses(Record, frozen=True, kw_only=True, tag="watch-failed-passes"):
    """Ends the run as out of memory when a forward or backward pass or an optimizer's update failed and the script
    continued, or ended by itself."""


class GuardMemory(Record, frozen=True, kw_only=True, tag="guard-memory"):
    """Ends the run as out of memory once less than ``headroom`` (a share) of the main memory that this machine or its
    control group allows is available, so that nothing is swapped and the kernel kills no process."""

    headroom: float


class WatchMemory(Record, frozen=True, kw_only=True, tag="watch-memory"):
    """Notes the memory in use at the end of each step: the device's, or without one the host's."""


class AccountMemory(Record, frozen=True, kw_only=True, tag="account-memory"):
    """Counts the storages of the first ``steps`` steps: what they are for, when they are freed, what keeps them."""

    steps: int = 12


class FakeTensors(Record, frozen=True, kw_only=True, tag="fake-tensors"):
    """Parameters, buffers, the model's inputs and everything computed from them have no data and take no memory. The
    script reads 1 from such a tensor."""


Instrument: TypeAlias = (
    Observe
    | CollectEvidence
    | ReplayBatch
    | SweepLoader
    | SwitchLevers
    | WatchNumbers
    | AlignRandomness
    | WithoutDropout
    | CaptureGradients
    | CaptureOutputs
    | WriteArtefact
    | UseArtefact
    | ShiftSeeds
    | NudgeWeights
    | RoundWeights
    | ComputeInFloat64
    | KeepSteps
    | RestoreSteps
    | ReseedAugmentation
    | ResizeBatches
    | LargestSamples
    | WatchEvaluation
    | AwaitEvaluation
    | MeasureGradientNoise
    | MeasureBlocks
    | WatchFailedPasses
    | GuardMemory
    | WatchMemory
    | AccountMemory
    | FakeTensors
)
