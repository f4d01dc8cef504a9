"""The options of a search."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import get_args

import msgspec

from hotlap.errors import UsageError
from hotlap.experiment.costs import FEWEST_ROUNDS_OF_A_SHORT_SCRIPT
from hotlap.experiment.goal import Goal, known_metrics, unknown_names
from hotlap.levers.api import Lever
from hotlap.records import SECONDS_PER_SAMPLE, USUAL_LEVEL, Isolation, NetworkMode, Objective, Record, TrialCluster

QUICK_SECONDS = 120.0
"""The budget of a quick look if no other is given."""


FEWEST_MEMORY_STEPS = 8
"""The fewest steps that show growth: three are warm-up, and variables are examined every other step."""


class BatchChoices(Record, frozen=True, kw_only=True):
    """The options of a search for the batch size.

    ``flag`` is the script's own option for it (empty: the size is changed in its DataLoader), ``headroom`` the share of
    memory that stays free, and ``most`` the largest size to try (None: what fits). With ``model_alone`` the model alone
    is timed at the same sizes.
    """

    flag: str = ""
    headroom: float = 0.1
    most: int | None = None
    model_alone: bool = False


class EstimateChoices(Record, frozen=True, kw_only=True):
    """The options of a memory estimate: batch sizes (none: the script's own), a device's memory in bytes (0: unknown),
    ranks to shard over, and the script's own option for its batch size."""

    batch_sizes: tuple[int, ...] = ()
    device_memory_bytes: int = 0
    ranks: int = 1
    flag: str = ""


class ScaleChoices(Record, frozen=True, kw_only=True):
    """The options of a prediction: the cluster, and what is known of it.

    ``devices_per_node`` 0 is as many as this machine has, and an empty ``device`` this machine's own. ``link`` and
    ``node_link`` are bytes per second of one device to other nodes and within its node (0: of the device's data, or
    measured here), ``link_seconds`` the latency of a message between nodes. ``utilisation`` is the share of the
    device's peak that the script reaches (None: its own here).
    """

    nodes: int = 1
    devices_per_node: int = 0
    device: str = ""
    link: float = 0.0
    node_link: float = 0.0
    link_seconds: float = 0.0
    utilisation: float | None = None
    price_per_device_hour: float | None = None
    currency: str = ""
    failure_seconds: float | None = None
    checkpoint_seconds: float | None = None


class Options(Record, frozen=True, kw_only=True):
    """The options of one search; stored in the journal, so that a resumed study uses the same ones.

    ``objective`` names the metric to improve, and limits of others. ``budget_seconds`` includes verification; None
    means no limit. ``only`` and ``skip`` name levers; ``allow`` those that may be tried although they change what is
    learned. ``accept_unverified`` keeps a faster lever even if it could not be shown that training still produces the
    same results. ``delta`` is the smallest gain of speed worth having, as a share. ``rounds`` fixes the timing rounds
    per replicate (None: chosen adaptively, 8 to 40). With ``batch_sizes`` a profile also times the model at other batch
    sizes; ``batch`` are the options of ``hotlap batch``, and ``memory_steps`` the steps that ``hotlap memory`` counts.
    ``estimate`` computes memory instead, without running. ``scale`` is the cluster that ``hotlap scale`` predicts for,
    and ``processes`` are the numbers of processes that ``hotlap tune --nproc`` compares. ``quality`` is the required
    cosine and agreement of a model's outputs. Prepared samples may take ``sample_cache_bytes`` of a disk (0: none).
    ``quick`` is a quick look without proof. ``repeated`` are the options that a repetition of the command keeps, as
    typed; nothing else depends on them. ``network`` and ``unprotected`` say how trials are isolated
    (:class:`hotlap.records.Isolation`).
    """

    objective: Objective = Objective()
    budget_seconds: float | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    accept_unverified: bool = False
    delta: float = 0.01
    seed: int = 0
    parity_steps: int = 300
    quality: float = USUAL_LEVEL
    rounds: int | None = None
    startup_limit_seconds: float = 600.0
    block_limit_seconds: float = 300.0
    show_output: bool = False
    batch_sizes: bool = False
    batch: BatchChoices = BatchChoices()
    memory_steps: int = 12
    estimate: EstimateChoices | None = None
    scale: ScaleChoices = ScaleChoices()
    processes: tuple[int, ...] = ()
    quick: bool = False
    sample_cache_bytes: int = 0
    cluster: TrialCluster | None = None
    network: NetworkMode = "open"
    unprotected: bool = False
    repeated: tuple[str, ...] = ()

    @property
    def goal(self) -> Goal:
        """The objective during a search."""
        return Goal(self.objective, self.delta)

    @property
    def which_levers(self) -> tuple[str, ...]:
        """The options that say which levers to try, as typed."""
        named = (("--only", self.only), ("--skip", self.skip), ("--allow", self.allow))
        words = [word for flag, names in named if names for word in (flag, ",".join(names))]
        return (*words, *(("--accept-unverified",) if self.accept_unverified else ()))

    @property
    def isolation(self) -> Isolation:
        """What these options require of the executor."""
        return Isolation(network=self.network, unprotected=self.unprotected)


def with_quick_budget(options: Options) -> Options:
    """The options; a quick look without a budget gets the usual one."""
    if not options.quick or options.budget_seconds is not None:
        return options
    return msgspec.structs.replace(options, budget_seconds=QUICK_SECONDS)


def check(options: Options, levers: Mapping[str, Lever]) -> None:
    """Raise :class:`UsageError` for a lever that does not exist and for invalid numbers."""
    for flag, names in (("--only", options.only), ("--skip", options.skip), ("--allow", options.allow)):
        _check_names(flag, names, levers)
    if options.network not in get_args(NetworkMode):
        raise UsageError(f"--network is {options.network!r}.", remedy="Give `open` or `none`.")
    _check_objective(options.objective)
    positive = {
        "--budget": options.budget_seconds,
        "--startup-limit": options.startup_limit_seconds,
        "--block-limit": options.block_limit_seconds,
    }
    for flag, seconds in positive.items():
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            raise UsageError(f"{flag} is {seconds:g} seconds.", remedy="Give a time above zero, such as 90s or 10m.")
    _check_batch(options.batch)
    if options.memory_steps < FEWEST_MEMORY_STEPS:
        raise UsageError(f"--steps is {options.memory_steps}.", remedy=f"Give at least {FEWEST_MEMORY_STEPS}.")
    if not 0 < options.delta < 1:
        raise UsageError(f"--delta is {options.delta:g}.", remedy="Give a share between 0 and 1, such as 0.01 for 1 %.")
    if options.parity_steps < 1:
        raise UsageError(f"--parity-steps is {options.parity_steps}.", remedy="Give at least 1.")
    if options.rounds is not None and not FEWEST_ROUNDS_OF_A_SHORT_SCRIPT <= options.rounds <= 1000:
        remedy = f"Give a number between {FEWEST_ROUNDS_OF_A_SHORT_SCRIPT} and 1000."
        raise UsageError(f"--rounds is {options.rounds}.", remedy=remedy)


def _check_batch(choices: BatchChoices) -> None:
    if not 0 < choices.headroom < 1:
        raise UsageError(f"--headroom is {choices.headroom:g}.", remedy="Give a share between 0 and 1, such as 10%.")
    if choices.most is not None and choices.most < 1:
        raise UsageError(f"--max-batch-size is {choices.most}.", remedy="Give at least 1.")
    if choices.flag and not choices.flag.startswith("-"):
        raise UsageError(
            f"--batch-flag is {choices.flag!r}, which is not an option.",
            remedy="Give the script's own option for its batch size, such as --batch-flag=--batch-size.",
        )


def _check_objective(objective: Objective) -> None:
    most = objective.p99_seconds
    if most is not None and not (math.isfinite(most) and most > 0):
        raise UsageError(f"The p99 asked for is {most:g} s.", remedy="Give a time above zero, such as 20ms.")
    for name in unknown_names(objective):
        raise UsageError(f"The objective's metric {name!r} does not exist.", remedy=f"Use one of {_listed_metrics()}.")
    for it in objective.limits:
        if not (math.isfinite(it.most) and it.most > 0):
            raise UsageError(f"The limit of {it.metric} is {it.most:g} times the script's.", remedy="Give 1 or more.")
        if it.most < 1 and it.metric == SECONDS_PER_SAMPLE:
            raise UsageError(
                f"The limit of {it.metric} is {it.most:g} times the script's, which requires more speed.",
                remedy="Give at least 1; for more speed leave the objective out.",
            )


def _listed_metrics() -> str:
    return ", ".join(known_metrics())


def chosen(options: Options, levers: Mapping[str, Lever]) -> tuple[Lever, ...]:
    """The levers that the options allow, in order of their names."""
    wanted = [it for name, it in levers.items() if not options.only or name in options.only]
    return tuple(it for it in wanted if it.name not in options.skip)


def _check_names(flag: str, names: Iterable[str], levers: Mapping[str, Lever]) -> None:
    for name in names:
        if name in levers:
            continue
        near = difflib.get_close_matches(name, levers, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"{flag} contains {name!r}, which is not a lever.", remedy=f"{hint}`hotlap levers` lists them."
        )
