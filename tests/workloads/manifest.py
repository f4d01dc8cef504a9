"""The expected account of each workload of this folder, with which the tests compare hotlap's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Launcher = Literal["script", "module", "torchrun"]
PlainEnding = Literal["completed", "failed", "hangs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One script and the truth about it when it runs plainly, to its own end.

    ``expected_steps`` are optimizer cycles: real steps of the optimizer that steps first (the anchor), or backwards
    where there is no optimizer; on each process alike. A script that trains one module after the other has several
    anchors in turn.

    ``samples_per_step`` are the samples of a full step, ``total_samples`` those of the whole run; None where the
    script gives no way to know. A loader may fetch ``samples_ahead`` before they are wanted, which the first step is
    then seen to have too many and the last too few.

    The last line of output is JSON with the script's own ``steps`` and ``losses`` (the first ten and the last). A loss
    there is ``loss_divisor`` times the mean over all backwards since the anchor's last step of what backward was called
    on. ``losses_repeat`` says whether two plain runs agree to the last bit; ``loss_tolerance`` is relative, where the
    script adds up in another order. ``fails_with`` is what the last line of the traceback begins with.
    """

    name: str
    file: str
    arguments: tuple[str, ...] = ()
    launcher: Launcher = "script"
    folder: str = ""
    processes: int = 1
    expected_steps: int
    step_source: Literal["optimizer", "backward"] = "optimizer"
    samples_per_step: int | None = None
    samples_ahead: int = 0
    total_samples: int | None = None
    loss_readable: bool = True
    loss_divisor: int = 1
    loss_tolerance: float = 0.0
    losses_repeat: bool = True
    writes: tuple[str, ...] = ()
    ending: PlainEnding = "completed"
    exit_code: int = 0
    fails_with: str = ""
    slow: bool = False
    notes: str = ""


SHAPES: tuple[Workload, ...] = (
    Workload(
        name="function-train",
        file="function_train.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        notes="DataLoader(**kwargs)",
    ),
    Workload(
        name="module-level",
        file="module_level.py",
        expected_steps=80,
        samples_per_step=4,
        total_samples=320,
        notes="no main guard, steps under 1 ms",
    ),
    Workload(
        name="meters",
        file="meters.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        notes=".item() before backward",
        slow=True,
    ),
    Workload(
        name="memmap-batches",
        file="memmap_batches.py",
        expected_steps=60,
        samples_per_step=8,
        total_samples=480,
        notes="no DataLoader; the next batch comes before backward",
        slow=True,
    ),
    Workload(
        name="gradient-accumulation",
        file="gradient_accumulation.py",
        expected_steps=60,
        samples_per_step=32,
        total_samples=1920,
        loss_divisor=4,
        loss_tolerance=1e-6,
        notes="four backwards a step, a disabled GradScaler",
    ),
    Workload(
        name="accelerate-accumulate",
        file="accelerate_accumulate.py",
        expected_steps=40,
        samples_per_step=32,
        samples_ahead=8,
        total_samples=1280,
        loss_divisor=4,
        loss_tolerance=1e-6,
        slow=True,
        notes="optimizer.step() is called 160 times and taken 40 times",
    ),
    Workload(
        name="hugging-face-trainer",
        file="hugging_face_trainer.py",
        expected_steps=40,
        samples_per_step=16,
        samples_ahead=8,
        total_samples=640,
        loss_divisor=2,
        loss_tolerance=1e-6,
        slow=True,
        notes="next, next, forward, backward, forward, backward, step; the losses of the two are added",
    ),
    Workload(
        name="lightning",
        file="lightning_module.py",
        expected_steps=40,
        samples_per_step=16,
        total_samples=640,
        slow=True,
        notes="all inside optimizer.step(closure); two sanity forwards first",
    ),
    Workload(
        name="lbfgs",
        file="lbfgs.py",
        expected_steps=20,
        loss_tolerance=1e-9,
        notes="up to twenty backwards in one step, float64",
    ),
    Workload(
        name="gan",
        file="gan.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        loss_tolerance=1e-6,
        notes="anchor: the discriminator's optimizer",
    ),
    Workload(
        name="sac",
        file="sac.py",
        expected_steps=60,
        loss_tolerance=1e-6,
        notes="anchor: the critics' optimizer; the actor's and the temperature's step twice at every second cycle",
        slow=True,
    ),
    Workload(name="ppo", file="ppo.py", expected_steps=64, notes="the module's own call is never used", slow=True),
    Workload(
        name="dqn",
        file="dqn.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        notes="acts with gradients on and no backward between steps",
    ),
    Workload(
        name="layerwise",
        file="layerwise.py",
        expected_steps=80,
        notes="one optimizer after the other; self.forward(x) called directly, Net.train overridden",
    ),
    Workload(name="no-optimizer", file="no_optimizer.py", expected_steps=60, step_source="backward"),
    Workload(
        name="graph-network",
        file="graph_network.py",
        expected_steps=60,
        notes="one step an epoch; the evaluation forward runs with gradients on",
        slow=True,
    ),
    Workload(
        name="iterable-stream",
        file="iterable_stream.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        notes="evaluation opens eight more iterators and fetches 24 batches that are not trained on",
    ),
    Workload(
        name="infinite-loader", file="infinite_loader.py", expected_steps=60, samples_per_step=24, total_samples=1440
    ),
    Workload(
        name="dict-batches",
        file="dict_batches.py",
        expected_steps=60,
        samples_per_step=12,
        total_samples=720,
        slow=True,
    ),
    Workload(
        name="spawned-trainer",
        file="spawned_trainer.py",
        expected_steps=60,
        samples_per_step=20,
        total_samples=1200,
        notes="the parent never steps and prints the line",
    ),
    Workload(
        name="spawned-ddp",
        file="spawned_ddp.py",
        processes=2,
        expected_steps=60,
        samples_per_step=8,
        total_samples=480,
        notes="steps and samples are each process's own; rank 0 prints",
    ),
    Workload(
        name="torchrun-ddp",
        file="torchrun_ddp.py",
        launcher="torchrun",
        processes=2,
        expected_steps=60,
        samples_per_step=8,
        total_samples=480,
        notes="the scheduler steps twice a step; steps and samples are each process's own; rank 0 prints",
    ),
    Workload(
        name="packaged",
        file="packaged.train",
        launcher="module",
        expected_steps=60,
        samples_per_step=10,
        total_samples=600,
        notes="python -m, relative imports",
    ),
)

TRAPS: tuple[Workload, ...] = (
    Workload(
        name="scheduler-constructors",
        file="scheduler_constructors.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
    ),
    Workload(
        name="catches-interrupt",
        file="catches_interrupt.py",
        expected_steps=80,
        samples_per_step=32,
        total_samples=2560,
        writes=("model.pt",),
    ),
    Workload(
        name="bare-except",
        file="bare_except.py",
        expected_steps=80,
        samples_per_step=32,
        total_samples=2560,
        writes=("last.pt",),
    ),
    Workload(
        name="checkpoints",
        file="checkpoints.py",
        expected_steps=60,
        samples_per_step=32,
        total_samples=1920,
        writes=("checkpoints/log.csv", "checkpoints/step-000050.pt", "checkpoints/step-000060.pt"),
        notes="deletes its older checkpoints, and would resume from one that it found",
    ),
    Workload(
        name="configured",
        file="train.py",
        folder="configured",
        arguments=("--batch_size=20",),
        expected_steps=60,
        samples_per_step=20,
        total_samples=1200,
        notes="globals(), __file__, argv, exec of a file of the working directory",
        slow=True,
    ),
    Workload(
        name="bce-module", file="bce_module.py", expected_steps=60, samples_per_step=16, total_samples=960, slow=True
    ),
    Workload(
        name="short-last-batch",
        file="short_last_batch.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=12 * 67,
    ),
    Workload(
        name="evaluation-loop",
        file="evaluation_loop.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        writes=("best.pt",),
    ),
    Workload(
        name="unseeded-dataset",
        file="unseeded_dataset.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        losses_repeat=False,
        slow=True,
    ),
    Workload(
        name="unseeded",
        file="unseeded.py",
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        losses_repeat=False,
    ),
    Workload(
        name="already-tuned",
        file="already_tuned.py",
        expected_steps=60,
        samples_per_step=8,
        total_samples=480,
        notes="workers, autocast, channels_last, fused optimizer: nothing left to try",
    ),
    Workload(
        name="nan",
        file="troubled.py",
        arguments=("--trouble", "nan"),
        expected_steps=60,
        samples_per_step=16,
        total_samples=960,
        notes="losses are NaN from step 30 (counted from 0) on",
    ),
)

FAILURES: tuple[Workload, ...] = (
    Workload(
        name="asks-input", file="asks_input.py", expected_steps=0, ending="failed", exit_code=1, fails_with="EOFError"
    ),
    Workload(name="no-training", file="no_training.py", expected_steps=0),
    Workload(
        name="fails-early",
        file="fails_early.py",
        expected_steps=0,
        ending="failed",
        exit_code=1,
        fails_with="FileNotFoundError",
    ),
    Workload(name="ends-early", file="ends_early.py", expected_steps=3, samples_per_step=8, total_samples=24),
    Workload(
        name="hang", file="troubled.py", arguments=("--trouble", "hang"), expected_steps=30, ending="hangs", slow=True
    ),
    Workload(
        name="worker-crash",
        file="troubled.py",
        arguments=("--trouble", "worker"),
        expected_steps=30,
        ending="failed",
        exit_code=1,
        fails_with="RuntimeError: DataLoader worker",
    ),
    Workload(
        name="leaves",
        file="troubled.py",
        arguments=("--trouble", "leave"),
        expected_steps=30,
        ending="failed",
        exit_code=3,
        notes="os._exit: no traceback, nothing flushed",
    ),
    Workload(
        name="out-of-memory",
        file="troubled.py",
        arguments=("--trouble", "memory"),
        expected_steps=30,
        ending="failed",
        exit_code=1,
        fails_with="torch.OutOfMemoryError",
    ),
    Workload(
        name="error",
        file="troubled.py",
        arguments=("--trouble", "error"),
        expected_steps=30,
        ending="failed",
        exit_code=1,
        fails_with="ValueError",
    ),
)

ALL: tuple[Workload, ...] = SHAPES + TRAPS + FAILURES
