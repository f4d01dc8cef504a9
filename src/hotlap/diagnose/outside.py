"""Describe the time that a run spends outside of its steps. Not a rule itself."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, is_material
from hotlap.diagnose.wording import count, duration, percent
from hotlap.records import Estimate, OutsideKind, OutsidePart


def part_of(profile: Profile, kind: OutsideKind) -> OutsidePart | None:
    """Return the time that the run spends on this, if it is material."""
    account = profile.run_account
    part = next((it for it in account.outside if it.kind == kind), None) if account is not None else None
    if part is None:
        return None
    if part.every_steps is None:
        return part if part.share.high >= MATERIAL else None
    return part if is_material(part.share) else None


def cost_of(part: OutsidePart) -> Estimate:
    """Return the part's share; a bound if its interval between repetitions is unknown."""
    return part.share if part.every_steps is not None else at_most(part.share.high, part.share.unit)


def share_words(part: OutsidePart) -> str:
    """Return ``85 % of the run``, or ``at most 12 % of the run``."""
    share = cost_of(part)
    return f"{'at most ' if part.every_steps is None else ''}{percent(share.value)} of the run"


def how_often(profile: Profile, part: OutsidePart) -> Iterator[str]:
    """Yield how often it was seen, how long it takes, and the largest gain possible in the step."""
    account = profile.run_account
    assert account is not None
    seen = f"seen {count(part.blocks, 'time')} in {account.steps} steps of {duration(account.step_seconds)}"
    each = f"{duration(part.seconds)}{' each' if part.blocks > 1 else ''}"
    if part.every_steps is None:
        yield f"{seen}: {each}; how often it repeats in a longer run is unknown"
    elif part.at_epoch_ends:
        yield f"{seen}: {each}, at the end of an epoch of {account.epoch_steps} steps"
    else:
        yield f"{seen}: {each}, every {count(round(part.every_steps), 'step')}"
    if account.most_speedup is not None and account.step_share.value < 1 - MATERIAL:
        yield f"tuning the step alone can speed up the whole run at most {account.most_speedup:.2f}x"
