"""The first launch: the kind of script, the time of its steps, and whether there is anything to tune."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from statistics import fmean, median

import msgspec

from hotlap.errors import ScriptError
from hotlap.experiment.costs import (
    BLOCK_SECONDS,
    BLOCK_STEPS,
    FEWEST_ROUNDS,
    FEWEST_ROUNDS_OF_A_SHORT_SCRIPT,
    MOST_ROUNDS,
    SHORTEST_STEP_SECONDS,
    Shape,
)
from hotlap.experiment.denied import failure_of, way_out
from hotlap.experiment.failures import ran_through, steps_done
from hotlap.experiment.trials import Trials
from hotlap.levers.support.situations import shapes_vary
from hotlap.measure.account import account, warm_up_steps
from hotlap.measure.turns_of_a_block import turns_of_a_block
from hotlap.records import (
    Completed,
    Crashed,
    Observe,
    OutOfMemory,
    PhaseAccount,
    Run,
    ScriptFacts,
    TimedOut,
    Workload,
)
from hotlap.redact import redacted
from hotlap.trial.progress import WHILE_STOPPED
from hotlap.wording import ending_text

FEWEST_STEPS = 24
"""A warm-up of four blocks and eight rounds, of two steps each: the least that can be compared."""

_OBSERVED_STEPS = 300
_OBSERVED_SECONDS = 10.0
_BUDGET_SHARE = 0.05
_EPOCH_END_SECONDS = 15.0
"""A script whose first epoch ends that soon is observed until then, since it usually evaluates there."""

_MOST_OF_WHAT_IS_LEFT = 0.5
"""Steps to observe if not even :data:`FEWEST_STEPS` fit into half of the budget: no comparison is possible then."""
_PATIENCE = 4
_WARM_UP_BLOCKS = 4

_FIRST_WITHOUT = (
    "Make it run without hotlap first. If it does, hotlap is at fault: please report it, with the lines above."
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one run of the unmodified script showed."""

    run: Run
    account: PhaseAccount
    shape: Shape
    warnings: tuple[str, ...] = ()

    @property
    def facts(self) -> ScriptFacts:
        return self.run.facts


def first_run(trials: Trials, patience_seconds: float = 0.0) -> Run:
    """Run the unmodified script for some seconds.

    One that called backward but no optimizer of torch runs once more, with its steps counted by calls of backward.
    """
    run = _run(trials, patience_seconds)
    counts_calls = trials.step_source == "call"
    if not counts_calls and not run.steps.wall_seconds and run.facts.backwards_per_step > 0 and ran_through(run):
        trials.step_source = "backward"
        run = _run(trials)
    return run


def interpret(run: Run, trials: Trials) -> Observation:
    """Interpret the first run; all later ones count steps the same way.

    Raises :class:`ScriptError` if the script failed, has no training step, waits for the terminal, or ends too soon.
    """
    _check(run, trials.workload, counts_calls=trials.step_source == "call")
    trials.step_source = run.facts.step_source
    phases, warnings = account_of(run)
    fewest = _fewest_of_a_block(run.facts, wants_p99=trials.options.objective.p99_seconds is not None)
    shape, short = _shape(run, phases, fewest)
    return Observation(run=run, account=phases, shape=shape, warnings=(*warnings, *short))


def account_of(run: Run) -> tuple[PhaseAccount, tuple[str, ...]]:
    """The mean time account of a run without its warm-up, and a warning if its phases do not add up."""
    skip = warm_up_steps(run.steps)
    try:
        return _with_source(account(run.steps, skip=skip), run.facts), ()
    except ValueError as error:
        wall = fmean(run.steps.wall_seconds[skip:])
        samples = fmean(run.steps.samples[skip:]) if run.steps.samples else 1.0
        whole = PhaseAccount(wall=wall, phases=(("other", wall),), samples_per_step=samples)
        return _with_source(whole, run.facts), (f"The time of a step could not be split into phases: {error}",)


def _with_source(phases: PhaseAccount, facts: ScriptFacts) -> PhaseAccount:
    return msgspec.structs.replace(phases, trainers=max(1, facts.processes), samples_from=facts.samples_from)


def command_line(workload: Workload) -> str:
    """The command that runs the workload, without its secrets."""
    if workload.kind == "inference":
        return shlex.join(["hotlap", "infer", workload.target, *redacted(workload).arguments])
    target = [workload.target] if workload.kind == "script" else ["-m", workload.target]
    return shlex.join(["python", *workload.interpreter_options, *target, *redacted(workload).arguments])


def _run(trials: Trials, patience_seconds: float = 0.0) -> Run:
    assignment = trials.first_assignment()
    patience = _PATIENCE * assignment.block_limit_seconds  # the limit holds for all observed steps together
    budget_seconds = trials.options.budget_seconds or math.inf
    assignment = msgspec.structs.replace(
        assignment,
        instruments=(Observe(epoch_end_seconds=min(_EPOCH_END_SECONDS, _BUDGET_SHARE * budget_seconds)),),
        block_limit_seconds=patience,
    )
    left = trials.most_seconds
    return trials.launch(
        assignment,
        steps=_OBSERVED_STEPS,
        seconds=observed_seconds(trials.options.budget_seconds),
        minimum_steps=FEWEST_STEPS,
        most_seconds=None if left is None else _MOST_OF_WHAT_IS_LEFT * left,
        patience_seconds=patience_seconds,
    )


FEWEST_ALIKE = 2
"""The fewest units of a block if one is like the other: a pass over all inputs, or a call with inputs of one shape."""


def observed_seconds(budget_seconds: float | None) -> float:
    """How long the first run is observed, if that suffices for :data:`FEWEST_STEPS`."""
    return min(_OBSERVED_SECONDS, max(1.0, _BUDGET_SHARE * (budget_seconds or math.inf)))


def _fewest_of_a_block(facts: ScriptFacts, *, wants_p99: bool) -> int:
    """The fewest units of a block. Several steps average over what a script does every few of them, and calls over
    inputs of different sizes; a p99 takes many calls, slow ones too."""
    if facts.lengths is not None and facts.lengths.whole_passes:
        return FEWEST_ALIKE
    hotlap_calls = facts.step_source == "call" and not facts.calls_in_script and facts.generation is None
    is_alike = all(it.input_shapes and not shapes_vary(it) for it in facts.models)
    return FEWEST_ALIKE if hotlap_calls and facts.models and is_alike and not wants_p99 else BLOCK_STEPS


def _shape(run: Run, phases: PhaseAccount, fewest: int) -> tuple[Shape, tuple[str, ...]]:
    """The shape of a replicate that fits into a script that ends soon."""
    steps = run.steps.wall_seconds[warm_up_steps(run.steps) :]
    step_seconds = max(SHORTEST_STEP_SECONDS, median(steps))
    outside_share = phases.outside / phases.wall if phases.wall > 0 else 0.0
    if not isinstance(run.ending, Completed):
        turns = turns_of_a_block(_alike(run), max(fewest, math.ceil(BLOCK_SECONDS / step_seconds)))
        shape = Shape(step_seconds=step_seconds, outside_share=outside_share, block_steps=fewest, block_turns=turns)
        return shape, _few_steps(len(run.steps.wall_seconds))
    available = len(run.steps.wall_seconds)
    wanted = max(BLOCK_STEPS, math.ceil(BLOCK_SECONDS / step_seconds))
    per_block = min(wanted, max(2, available // (_WARM_UP_BLOCKS + FEWEST_ROUNDS)))
    rounds = min(MOST_ROUNDS, available // per_block - _WARM_UP_BLOCKS)
    short = Shape(
        step_seconds=step_seconds,
        outside_share=outside_share,
        block_steps=min(BLOCK_STEPS, per_block),
        block_seconds=min(BLOCK_SECONDS, per_block * step_seconds),
        most_rounds=max(FEWEST_ROUNDS_OF_A_SHORT_SCRIPT, rounds),
        most_steps=available,
    )
    if per_block == wanted:
        return short, ()
    text = (
        f"The script ends after {available} steps, so it was timed in blocks of {per_block} steps instead of {wanted}; "
        "let it run longer for narrower intervals."
    )
    return short, (text,)


def _alike(run: Run) -> list[float]:
    """The seconds of the steps after the warm-up, of each as if it had the usual number of samples."""
    first = warm_up_steps(run.steps)
    seconds, samples = run.steps.wall_seconds[first:], run.steps.samples[first:]
    if len(samples) != len(seconds) or not all(samples):
        return list(seconds)
    usual = median(samples)
    return [it * usual / count for it, count in zip(seconds, samples, strict=True)]


def _few_steps(steps: int) -> tuple[str, ...]:
    if steps >= FEWEST_STEPS:
        return ()
    seen = "1 step was" if steps == 1 else f"{steps} steps were"
    return (f"Only {seen} measured before half of the budget was spent, warm-up included: the time account is rough.",)


def _check(run: Run, workload: Workload, *, counts_calls: bool) -> None:
    done = steps_done(run)
    command = command_line(workload)
    match run.ending:
        case Crashed() as crash:
            _explain_crash(crash, done, command)
        case OutOfMemory() as ending:
            raise ScriptError(
                f"The unmodified script runs out of memory{_after(done)}. {ending.error}".strip(),
                where=command,
                remedy="Make its batch smaller first; there is no baseline to compare with.",
            )
        case TimedOut() as ending:
            raise ScriptError(
                f"{f'The script hung{_after(done)}' if done else 'No training step was seen'}: {ending_text(ending)}",
                where=command,
                remedy=limit_to_raise(ending),
            )
        case Completed(exit_code=code) if code != 0:
            raise ScriptError(
                f"The script ended with exit code {code}{_after(done)}.",
                where=command,
                remedy="Make it run without hotlap first.",
                exit_code=code,
            )
        case Completed() if done == 0 and counts_calls:
            raise ScriptError(
                "The script ended and no model was called twice without training.",
                where=command,
                remedy="Give hotlap a script that calls a model in a loop, under torch.inference_mode() or no_grad().",
            )
        case Completed() if done == 0:
            raise ScriptError(
                "The script ended and no training step was seen: no backward, no optimizer step.",
                where=command,
                remedy="Give hotlap the script, and the arguments, that train. A loop that takes its gradients from "
                "`torch.autograd.grad` and changes the weights by hand has no step that hotlap knows.",
            )
    unit = "calls of a model" if counts_calls else "training steps"
    if done < FEWEST_STEPS and (isinstance(run.ending, Completed) or not run.steps.wall_seconds):
        raise ScriptError(
            f"The script ended after {done} {unit}; at least {FEWEST_STEPS} are needed for warm-up and timing.",
            where=command,
            remedy="Let it run longer: more epochs, more samples or a smaller batch.",
        )


def _explain_crash(crash: Crashed, done: int, command: str) -> None:
    if "EOFError" in crash.error or "EOF when reading a line" in crash.output_tail:
        raise ScriptError(
            "The script waits for input from the terminal, which a trial does not have.",
            where=command,
            remedy="Pass everything as arguments, then tune it with these.",
            exit_code=crash.exit_code,
        )
    raise ScriptError(
        failure_of(crash, after_steps(done)),
        where=command,
        remedy=remedy_of(crash) or _FIRST_WITHOUT,
        exit_code=crash.exit_code or 1,  # it may have left with 0 before it was done
    )


def remedy_of(crash: Crashed) -> str:
    """What to do if the cause is outside of the script; else empty."""
    if crash.killed_from_outside:
        return "Find what kills processes on this machine: a job scheduler, a memory limit, a person."
    return way_out(crash)


def limit_to_raise(ending: TimedOut) -> str:
    """The remedy for an apparent hang: which option allows for more time."""
    if WHILE_STOPPED in ending.during:
        return "Find what stops it: SIGSTOP or SIGTSTP, sent by the script or from outside."
    if ending.during == "startup":
        return "If its start really takes longer, raise --startup-limit."
    return "If a step, or what comes between two, really takes longer, raise --block-limit."


def after_steps(done: int) -> str:
    """When a script failed, if known: `` after 5 training steps``."""
    return _after(done) or " before its first training step was done"


def _after(steps: int) -> str:
    return f" after {steps} training step{'s' if steps > 1 else ''}" if steps else ""
