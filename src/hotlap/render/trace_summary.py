"""Traces on one screen: the largest loss, the device's time, the causes, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from hotlap.diagnose.trace_verdict import TraceVerdict
from hotlap.records import Finding
from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.brief import NO_BREAK, Brief, Next, Row
from hotlap.render.presentable import shown
from hotlap.render.trace import conclusion_sentence, most_idle
from hotlap.render.trace_verdict import NOTHING, cost_label
from hotlap.traces.conclusion import conclusion_of
from hotlap.traces.records import Breakdown

_CAUSES_SHOWN = 4


def trace_summary(
    path: str,
    breakdowns: Sequence[Breakdown],
    skipped: Sequence[tuple[str, str]],
    verdicts: Sequence[TraceVerdict],
    together: TraceVerdict | None,
) -> Brief:
    """Summarise the trace, of several the one whose device was idle longest, and what they show ``together``."""
    most = max(breakdowns, key=most_idle)
    verdict = next(it for it in verdicts if it.path == most.facts.path)
    tone, sentence = _answer(most, verdict)
    typed = text.shell_word(shown(path))
    rows = [
        *_ranks(together),
        *_times(most),
        Row("Causes", _causes(verdict), is_list=True, most_items=_CAUSES_SHOWN, most=18, least=3),
        *_not_read(skipped),
    ]
    full = f"hotlap trace --full {typed}" if path != "-" else "hotlap trace --full - < TRACE"
    rules = [it.rule for it in verdict.findings]
    explained = [Next(f"hotlap findings {text.shell_word(rules[0])}", "explains the first cause")] if rules else []
    return Brief(
        top=_top(path, most, len(breakdowns)),
        tone=tone,
        sentence=sentence,
        details=tuple(text.sentence(it) for it in most.notes),
        rows=tuple(rows),
        commands=(*explained, Next(full, "the whole account")),
    )


def _top(path: str, most: Breakdown, count: int) -> str:
    name = f"hotlap trace  {shown(text.one_line(path))}"
    if count == 1:
        return name
    return f"{name}  {PurePath(text.one_line(most.facts.path)).name}, idle longest of {count} traces"


def _answer(it: Breakdown, verdict: TraceVerdict) -> tuple[Tone, str]:
    if it.unreliable:
        return "bad", f"Do not trust these figures: {text.one_line(it.unreliable)}."
    found = conclusion_of(it)
    if found is None:
        return "neutral", NOTHING if not verdict.findings else text.sentence(verdict.findings[0].title)
    return "neutral", conclusion_sentence(found, of="device" if it.devices else "host")


def _ranks(together: TraceVerdict | None) -> Iterator[Row]:
    if together is not None and together.findings:
        yield Row("Ranks", tuple(text.sentence(shown(it.title)) for it in together.findings), most=2)


def _times(it: Breakdown) -> Iterator[Row]:
    device = it.busiest_device
    if device is None:
        return
    time = device.time
    parts = (
        ("computes", time.compute_nanoseconds),
        ("communicates, exposed", time.exposed_communication_nanoseconds),
        ("copies, exposed", time.exposed_copy_nanoseconds),
        ("idle", time.idle_nanoseconds),
    )
    shares = [f"{name} {text.share_of(part, time.window_nanoseconds)}" for name, part in parts if part]
    yield Row("Device", (f"{device.device}, over {text.length(time.window_nanoseconds)}: {', '.join(shares)}.",))


def _causes(verdict: TraceVerdict) -> tuple[str, ...]:
    return tuple(map(_cause, verdict.findings)) or (NOTHING,)


def _cause(it: Finding) -> str:
    where = f" ({shown(text.file_name(it.site.file))}:{it.site.line})" if it.site and it.site.file else ""
    title = shown(text.sentence(it.title)).removesuffix(".")
    return f"{cost_label(it).replace(' ', NO_BREAK)}  {title}{where}. {text.sentence(it.remedy)}".rstrip()


def _not_read(skipped: Sequence[tuple[str, str]]) -> Iterator[Row]:
    if skipped:
        name, why = skipped[0]
        first = f"{shown(text.one_line(name))}: {text.sentence(why)}"
        yield Row("Not read", (text.count(len(skipped), "file") + f"; {first}",), most=2, style="yellow")
