"""A page's first screen: what changed, the figures, and the command to run next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotlap.gain import claimed, own_comparison
from hotlap.objective import is_speed
from hotlap.records import Kept, Outcome, Setting, Study, Value
from hotlap.render import text
from hotlap.render.blocks import Fact
from hotlap.render.html.parts import Command
from hotlap.render.kinds.api import presenter_of
from hotlap.render.lever_table import kept_words, own_gain
from hotlap.render.material import Material
from hotlap.render.quality import quality_phrase, quality_question
from hotlap.render.step_times import StepTimes, step_times


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of the plan as one line of code; ``gain`` is what its lever gave next to the others, if measured."""

    code: str
    gain: str = ""


def changes(study: Study) -> tuple[Change, ...]:
    """What the plan changes: a line for each setting."""
    gains = {it.lever: _gain(study, it) for it in study.outcomes}
    return tuple(Change(_as_code(it), gains.get(it.lever, "")) for it in study.plan.settings)


def next_command(material: Material) -> Command | None:
    """The first of the commands to run next."""
    study = material.study
    found = next(iter(presenter_of(study.kind).next_commands(study, material.plan_path)), None)
    return Command(*found) if found is not None else None


def _as_code(setting: Setting) -> str:
    """``loader: num_workers=4, pin_memory=True``."""
    values = ", ".join(f"{name}={_literal(it)}" for name, it in setting.values)
    return text.one_line(f"{setting.lever}: {values}" if values else setting.lever)


def _literal(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _gain(study: Study, outcome: Outcome) -> str:
    """What a lever gains; where the search was for something else than speed, only if it gains speed too."""
    if not isinstance(outcome.verdict, Kept):
        return ""
    comparison = own_comparison(outcome)
    is_faster = comparison is not None and comparison.speed.verdict == "faster"
    return own_gain(outcome) if is_faster or is_speed(study.objective) else ""


def facts(study: Study) -> Iterator[Fact]:
    """The figures of the first screen."""
    times = step_times(study)
    if times is not None:
        yield _step_fact(times)
        rates = [text.number(it) for it in (times.rate_with_plan, times.rate) if it is not None]
        yield Fact(_capital(times.rate_name), *rates)
    verification = study.verification
    if verification is not None and claims_gain(study):
        if verification.baseline_peak_bytes and verification.candidate_peak_bytes:
            peaks = text.size(verification.candidate_peak_bytes), text.size(verification.baseline_peak_bytes)
            yield Fact("Peak memory", *peaks)
        yield Fact(quality_question(verification.quality), _capital(quality_phrase(verification.quality)))
    if study.outcomes:
        yield Fact("Levers kept", kept_words(study.outcomes))
    yield from presenter_of(study.kind).facts(study)
    if study.spent_seconds:
        yield Fact("Time spent measuring", text.clock(study.spent_seconds))


def claims_gain(study: Study) -> bool:
    """Whether the plan may be compared with the unmodified script."""
    return claimed(study) is not None


def _step_fact(times: StepTimes) -> Fact:
    seconds = [text.duration(it) for it in (times.seconds_with_plan, times.seconds) if it is not None]
    return Fact(f"Mean {times.unit}", *seconds)


def script_name(study: Study) -> str:
    """The script without its folders."""
    target = study.workload.target
    return text.one_line(Path(target).name if study.workload.kind == "script" else target, limit=80)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
