"""What is run, with what, and what one child is asked to do."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record, Values


class Checkout(Record, frozen=True, kw_only=True):
    """A copy of the user's source tree, in which a workload runs in the place of the tree itself.

    ``original`` is the tree's topmost folder and ``copy`` the copy's. ``revision`` is the git commit that the copy
    shows; empty, it shows the tree as it is now. A folder that is searched for modules and lies in the original is
    searched in the copy instead, and ``python_path`` names further ones in the copy.
    """

    original: str
    copy: str
    revision: str = ""
    python_path: tuple[str, ...] = ()


class Workload(Record, frozen=True, kw_only=True):
    """The user's command: what python is told to run, and where.

    ``kind`` is ``script`` (``target`` is a path) or ``module`` (``target`` is a dotted name, run as
    ``python -m`` does). ``torchrun train.py`` is the module ``torch.distributed.run``. ``checkout`` is there where it
    runs in a copy of its source tree. ``interpreter_options`` are those of ``python`` itself, such as ``-u``.
    """

    kind: Literal["script", "module"]
    target: str
    arguments: tuple[str, ...] = ()
    directory: str
    python: str
    checkout: Checkout | None = None
    interpreter_options: tuple[str, ...] = ()


class Source(Record, frozen=True, kw_only=True):
    """The state of the user's source, as far as it could be told.

    ``git_revision`` is the commit that was checked out (empty: no repository, or no git). ``git_modified`` says whether
    files that git tracks differed from it (None: not known). ``script_sha256`` is the script's own digest (empty: it
    was not found, or is very large).
    """

    git_revision: str = ""
    git_modified: bool | None = None
    script_sha256: str = ""


class Setting(Record, frozen=True, kw_only=True):
    """One lever with the values it is used with; ``values`` is sorted by key."""

    lever: str
    values: Values = ()


class Plan(Record, frozen=True, kw_only=True):
    """The levers that are switched on together, in the order in which they are installed."""

    settings: tuple[Setting, ...] = ()


StepSource: TypeAlias = Literal["auto", "optimizer", "backward"]


class Assignment(Record, frozen=True, kw_only=True):
    """Everything that a child process must know about the trial it is.

    ``observe`` also counts operations and watches for randomness, which costs a few of the first steps; ``replay``
    feeds the first training batch again and again, so that only the model is timed; with ``replay_scale`` it has that
    many times its samples, repeated or left out; ``loader_sweep`` times the training loader alone with each of these
    settings, and no model. The fields from ``without_dropout`` on serve the comparison of numbers, never a timing:
    ``reference_precision`` computes in float64, ``nudge`` moves every initial weight by one unit in the last place,
    ``rounded_weights`` rounds them to that number format, ``capture_gradients`` saves the gradients of the first step,
    ``augmentation_seed`` reseeds what the data pipeline draws while weights and sample order stay. ``collect_evidence``
    watches for the causes of slowness (:mod:`hotlap.evidence`), and ``profiled_steps`` of the last steps run under
    ``torch.profiler``; both make steps longer, and such a run's times are compared with nothing. A launch of one
    process whose time or steps are over goes on for ``epoch_end_seconds`` at most, where the training loader comes to
    its end by then, up to the step after it: so that an evaluation between two epochs is seen. ``watch_numbers`` ends
    the run at the first loss, gradient or weight that is NaN or infinite; from step ``check_numbers_from`` on (0: from
    torch's import on) every operation is checked too, without ``torch.compile``. ``block_limit_seconds`` is for all
    steps of a block together (to which a launch's ``seconds`` are added), ``step_limit_seconds`` for a single step of
    it: a block may have many. With ``waits_on_device`` a process whose model lies on an accelerator waits before its
    first step until it is let go on.
    """

    workload: Workload
    plan: Plan = Plan()
    seed: int = 0
    step_source: StepSource = "auto"
    observe: bool = False
    replay: bool = False
    replay_scale: float = 1.0
    loader_sweep: tuple[Setting, ...] = ()
    aligned_randomness: bool = False
    without_dropout: bool = False
    reference_precision: bool = False
    nudge: bool = False
    capture_gradients: bool = False
    rounded_weights: str = ""
    augmentation_seed: int | None = None
    collect_evidence: bool = False
    profiled_steps: int = 0
    epoch_end_seconds: float = 0.0
    watch_numbers: bool = False
    check_numbers_from: int | None = None
    startup_limit_seconds: float = 600.0
    block_limit_seconds: float = 300.0
    step_limit_seconds: float | None = None
    show_output: bool = False
    waits_on_device: bool = False


class LaunchRequest(Record, frozen=True, kw_only=True):
    """One child alone: run until ``steps`` steps are done, or until ``seconds`` have passed since the
    first step and at least ``minimum_steps`` are done, or until the script ends by itself. Before it starts, others on
    the machine are given up to ``patience_seconds`` to leave it alone.

    ``most_seconds`` bounds the whole launch, start-up included: what was begun then, the start or a step, is the last.
    """

    assignment: Assignment
    steps: int
    seconds: float | None = None
    minimum_steps: int = 1
    patience_seconds: float = 0.0
    most_seconds: float | None = None


class TurnRequest(Record, frozen=True, kw_only=True):
    """A set: a fresh launch of every arm; after warm-up each round runs one block of each arm, in
    random order drawn from ``order_seed``. A block is at least ``block_seconds`` and ``block_steps``. Before the arms
    start, others on the machine are given up to ``patience_seconds`` to leave it alone.

    With ``suspended`` an arm's device memory moves to the host while it waits, since the device has no room for all.
    ``most_seconds`` bounds the whole set: no round is begun that would probably end later, so that there may be fewer
    than were asked for, or none.
    """

    arms: tuple[Assignment, ...]
    rounds: int = 15
    block_seconds: float = 0.3
    block_steps: int = 8
    order_seed: int = 0
    warm_up_limit_seconds: float = 120.0
    interleaved: bool = True
    suspended: bool = False
    patience_seconds: float = 0.0
    most_seconds: float | None = None
