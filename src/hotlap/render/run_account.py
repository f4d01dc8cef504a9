"""The parts of a run besides its steps, in sentences."""

from __future__ import annotations

from hotlap.records import OutsidePart, RunAccount
from hotlap.render import text

WORTH_A_WORD = 0.005
"""Parts with a smaller share of the run are not mentioned."""

_NAMES = {"evaluation": "evaluation", "checkpoints": "checkpoints", "other": "other work (rollouts and the like)"}
_MOST_SHOWN_SPEEDUP = 50.0


def run_sentences(account: RunAccount) -> list[str]:
    """What steps and the rest take of the run, and start-up where all of it was seen; nothing where steps are all."""
    sentences: list[str] = []
    if account.step_share.low < 1 - WORTH_A_WORD:
        parts = [_part(it, account) for it in _costliest(account)]
        listed = text.listed([f"steps take {_range(account)}", *parts])
        sentences.append(f"Of the run from its first step on, {listed}, as {account.steps} steps showed.")
    if account.startup_share is not None and account.startup_share > WORTH_A_WORD:
        sentences.append(
            f"Start-up, up to the end of the first step, takes {text.duration(account.startup_seconds)}: "
            f"{text.share(account.startup_share)} of this run."
        )
    return sentences


def bound_sentence(account: RunAccount) -> str:
    """Bound the gain of tuning steps for the whole run; empty if too large to matter."""
    if account.most_speedup is None or account.most_speedup > _MOST_SHOWN_SPEEDUP:
        return ""
    shares = [f"{_NAMES[it.kind].partition(' (')[0]} {_share(it)}" for it in _costliest(account)]
    if account.startup_share is not None and account.startup_share > WORTH_A_WORD:
        shares.append(f"start-up {text.share(account.startup_share)}")
    rest = f" (the rest: {text.listed(shares)})" if shares else ""
    return (
        f"Tuning the step can make the whole run at most {text.ratio(account.most_speedup)} as fast, because "
        "steps are "
        f"{_range(account)} of it{rest}."
    )


def whole_run_speedup(account: RunAccount, speedup: float) -> float | None:
    """How much faster the run becomes from its first step on when a step does by this factor; None where what lies
    outside of steps is only bounded, or is nothing."""
    if any(it.every_steps is None for it in account.outside) or account.step_share.value > 1 - WORTH_A_WORD:
        return None
    steps = account.step_share.value
    return 1 / (1 - steps + steps / speedup)


def _costliest(account: RunAccount) -> list[OutsidePart]:
    shown = [it for it in account.outside if it.share.high > WORTH_A_WORD]
    return sorted(shown, key=lambda it: -it.share.value)


def _range(account: RunAccount) -> str:
    if any(it.every_steps is None for it in account.outside):
        return f"at least {text.share(account.step_share.low)}"
    return text.share(account.step_share.value)


def _share(part: OutsidePart) -> str:
    return f"up to {text.share(part.share.high)}" if part.every_steps is None else text.share(part.share.value)


def _part(part: OutsidePart, account: RunAccount) -> str:
    if part.every_steps is None:
        rhythm = "seen once"
    elif part.at_epoch_ends:
        rhythm = f"with every epoch of {account.epoch_steps} steps"
    elif part.every_steps < 1.5:
        rhythm = "before every step"
    else:
        rhythm = f"every {part.every_steps:.0f} steps"
    return f"{_NAMES[part.kind]} {_share(part)} ({text.duration(part.seconds)} {rhythm})"
