"""Remarks on figures that were measured while other processes kept the machine busy."""

from __future__ import annotations

from hotlap.records import Finding, Measurement, Study
from hotlap.render import text
from hotlap.render.calls import are_calls

_OF_FINDINGS: tuple[Measurement, ...] = ("account", "profile", "loader-alone", "model-alone", "matmul")


def while_busy(study: Study, *measured: Measurement) -> str:
    """``while others used 1.3 of 2 cores``: the worst of these measurements' disturbances, or nothing."""
    found = [it for it in study.disturbances if it.measured in measured]
    worst = max(found, key=lambda it: it.other_load, default=None)
    return f"while {worst.words}" if worst is not None else ""


def on_threads_left(study: Study) -> str:
    """``with 1 thread, since others kept the other cores busy``, or nothing."""
    if not study.threads_left:
        return ""
    return f"with {text.count(study.threads_left, 'thread')}, since others kept the other cores busy"


def step_takes(study: Study, seconds: float, *, busy_is_said: bool = False) -> str:
    """``takes 212 ms``, ``took 212 ms while others used 1.3 of 2 cores``, or the time with fewer threads.

    With ``busy_is_said`` a sentence before it has the disturbance.
    """
    if busy_is_said:
        return f"took {text.duration(seconds)}"
    busy = while_busy(study, "account") or on_threads_left(study)
    return f"took {text.duration(seconds)} {busy}" if busy else f"takes {text.duration(seconds)}"


def account_doubt(study: Study) -> str:
    """The remark on the time account, or nothing."""
    busy = while_busy(study, "account") or on_threads_left(study)
    return f"Measured {busy}; on a quiet machine the step may be shorter and its shares different." if busy else ""


def ceiling_doubt(study: Study, name: Measurement) -> str:
    """The remark on a ceiling, or nothing; bounds are derived from it."""
    busy = while_busy(study, "account", name)
    return f"Measured {busy}; it may differ on a quiet machine." if busy else ""


def batch_doubt(study: Study) -> str:
    """The remark on other batch sizes, or nothing."""
    busy = while_busy(study, "batch-sizes")
    return f"Measured {busy}; the sizes took turns, so their ratios are affected less than their rates." if busy else ""


def finding_doubt(finding: Finding, study: Study) -> str:
    """The remark on a finding with disturbed times, or nothing."""
    if not finding.disturbed:
        return ""
    return (
        f"Measured {while_busy(study, *_OF_FINDINGS) or 'on a busy machine'}; other processes may have caused "
        "this share."
    )


def in_sentence(study: Study, sentence: str) -> str:
    """A profile's headline, with the disturbance of its shares."""
    busy = while_busy(study, *_OF_FINDINGS)
    if busy and any(it.disturbed for it in study.findings):
        return f"{sentence.removesuffix('.')}, {busy}; other processes may have caused these shares."
    threads = on_threads_left(study)
    return f"{sentence.removesuffix('.')}, {threads}." if threads else sentence


def next_to_headline(study: Study) -> str:
    """The remark below a search's headline, or nothing. Its ratios come from arms that took turns."""
    names = [it.measured for it in study.disturbances]
    if not names:
        return ""
    busy = while_busy(study, *names)
    what = "time of a call and the machine's rates" if are_calls(study) else "time account and the ceilings"
    return text.sentence(f"The {what} were measured {busy}; ratios come from arms that took turns")
