"""The origin of the first NaN or infinity on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotlap.records import BadNumber, Completed, NumbersHunt
from hotlap.render import text
from hotlap.render.brief import Brief, Next, Row
from hotlap.render.nan import chain, fact_rows, finite_words, method, noticed_words, origin_words, repeated_words
from hotlap.render.nan_advice import advice
from hotlap.render.presentable import presentable


def nan_summary(hunt: NumbersHunt) -> Brief:
    """The operation, its line, what its tensors held, what to do, and the run that shows whether that helps."""
    hunt = presentable(hunt, hunt.workload.directory)
    command = f"hotlap nan  {text.command(hunt.workload)}"
    top = f"{command}  {text.clock(hunt.wall_seconds)}" if hunt.wall_seconds else command
    if hunt.noticed is None:
        sentence, *details = finite_words(hunt)
        return Brief(top=top, tone="good", sentence=sentence, details=tuple(details), commands=_next(hunt, None))
    bad = hunt.repeated or hunt.noticed
    return Brief(
        top=top,
        tone="bad",
        sentence=noticed_words(hunt.noticed),
        details=tuple(repeated_words(hunt)),
        rows=tuple(_rows(hunt)),
        commands=_next(hunt, bad),
    )


def _rows(hunt: NumbersHunt) -> Iterator[Row]:
    bad = hunt.repeated
    if bad is not None:
        yield Row("Origin", (origin_words(bad),), most=3, least=2)
        facts = fact_rows(bad.origin, bad.step, hunt.workload.directory) if bad.origin is not None else ()
        for name, said in _by_name(facts):
            yield Row(name.capitalize(), said, is_list=True, most=3, least=min(2, len(said)))
        yield Row("Path", tuple(chain(bad, hunt.workload.directory)), most=4)
        todo = advice(bad)
        yield Row("Do", (todo,) if todo else (), most=4, least=2)
    yield Row("Method", tuple(method(hunt)), most=3, style="dim")


def _by_name(facts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The facts of each name; one without a name belongs to that above."""
    groups: list[tuple[str, list[str]]] = []
    for name, said in facts:
        if name:
            groups.append((name, []))
        groups[-1][1].append(said.strip())
    return ((name, tuple(said)) for name, said in groups)


def _next(hunt: NumbersHunt, bad: BadNumber | None) -> tuple[Next, ...]:
    command = text.command(hunt.workload)
    seed = f"--seed {hunt.seed} " if hunt.seed else ""
    if bad is None and isinstance(hunt.ending, Completed):
        return (Next(f"hotlap nan --seed {hunt.seed + 1} {command}", "checks a run with another seed"),)
    if bad is None:
        return (Next(f"hotlap nan --steps {2 * hunt.finite_steps or 1} {seed}{command}", "looks further"),)
    return (Next(f"hotlap nan --steps {bad.step + 1} {seed}{command}", "shows whether a change helps"),)
