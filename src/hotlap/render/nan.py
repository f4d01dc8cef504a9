"""The origin of the first NaN or infinity: the operation, its inputs, and the line."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from hotlap.records import BadNumber, CallSite, Completed, NumberOrigin, NumberRange, NumbersHunt, Stopped
from hotlap.render import text
from hotlap.render.layout import Trimmed, paragraphs
from hotlap.render.nan_advice import advice
from hotlap.render.presentable import presentable

_WIDEST = 110
_ROWS_KEPT = 5
_UNSEEN = "No operation visible to torch produced it: a custom kernel did, or its memory is shared with other code."
_PHASES = {
    "setup": "before the first step",
    "data": "while the batch was made",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's update",
    "other": "outside forward, backward and update",
}


def nan_report(hunt: NumbersHunt) -> RenderableType:
    """The report of one hunt."""
    hunt = presentable(hunt, hunt.workload.directory)
    pieces: list[RenderableType] = [
        Text("hotlap nan  ", style="dim").append(text.command(hunt.workload), style="default"),
        Text(),
    ]
    pieces += _nothing(hunt) if hunt.noticed is None else _found(hunt, hunt.noticed)
    return Trimmed(Constrain(Group(*pieces), _WIDEST))


def _nothing(hunt: NumbersHunt) -> Iterator[RenderableType]:
    sentence, *details = finite_words(hunt)
    yield Text(sentence, style="bold green")
    yield from paragraphs(details)


def finite_words(hunt: NumbersHunt) -> Iterator[str]:
    """That everything was finite, over how many steps, and why the check ended."""
    steps = text.count(hunt.finite_steps, "step")
    yield f"Everything was finite for {steps}: losses, gradients and weights."
    unread = hunt.finite_steps - hunt.losses_read
    if unread > 0:
        yield f"In {unread} of them the loss could not be read; gradients and weights could."
    why = "The script ended by itself." if isinstance(hunt.ending, Completed) else "The limit was reached."
    yield f"{why} It took {text.clock(hunt.wall_seconds)}, with seed {hunt.seed}."


def _found(hunt: NumbersHunt, noticed: BadNumber) -> Iterator[RenderableType]:
    yield Text(noticed_words(noticed), style="bold red")
    yield from paragraphs(repeated_words(hunt), style="")
    if hunt.repeated is not None:
        yield from _explained(hunt.repeated, hunt.workload.directory)
    yield Text()
    yield from paragraphs(method(hunt))


def repeated_words(hunt: NumbersHunt) -> Iterator[str]:
    """How the run that checks every operation differed from the first one; nothing if it did not."""
    noticed, repeated = hunt.noticed, hunt.repeated
    if noticed is None:
        return
    if repeated is None:
        yield from _not_repeated(hunt, noticed)
    elif (repeated.step, repeated.noticed_in) != (noticed.step, noticed.noticed_in):
        yield f"The run that checks differed. {noticed_words(repeated)}"


def _explained(bad: BadNumber, directory: str) -> Iterator[RenderableType]:
    """The origin: a sentence, facts, what happened before and after it, and what to do."""
    origin = bad.origin
    if origin is None:
        yield from paragraphs([origin_words(bad)], style="")
        return
    yield Text(origin_words(bad), style="bold")
    yield Text()
    yield _table(fact_rows(origin, bad.step, directory))
    for sentence in chain(bad, directory):
        yield from (Text(), *paragraphs([sentence], style=""))
    todo = advice(bad)
    if todo:
        yield from (Text(), Text("What to do", style="bold"), *paragraphs([todo], style=""))


# ---------------------------------------------------------------------------------------------
# Sentences
# ---------------------------------------------------------------------------------------------


def noticed_words(bad: BadNumber) -> str:
    """In which step what was not finite."""
    number = "NaN" if bad.nan else "infinite"
    step = f"In step {bad.step + 1}"
    name = f" of {text.one_line(bad.name)}" if bad.name else ""
    match bad.noticed_in:
        case "loss":
            return f"{step} the loss was {number}."
        case "gradients":
            return f"{step} the gradient{name} was {number}, and the optimizer used it."
        case "weights":
            return f"{step} the weights{name} were {number} after the update."
        case "script":
            return f"{step} the script read a number that was {number}, and ended."


def origin_words(bad: BadNumber) -> str:
    """The operation that made the number, or that none was seen."""
    return _origin_sentence(bad.origin) if bad.origin is not None else _UNSEEN


def _origin_sentence(origin: NumberOrigin) -> str:
    name, operation = text.one_line(origin.name), text.one_line(origin.operation)
    where = _PHASES[origin.phase]
    match origin.source:
        case "operation":
            of_parameter = f" of {name}" if origin.phase == "optimizer" and name else ""
            return f"It came from {_call(origin)}, which made {_amount(origin.outputs)} {where}{of_parameter}."
        case "written":
            return f"The script itself wrote {_amount(origin.outputs)} with {_call(origin)}, and they were used."
        case "uninitialised":
            return f"It came from {operation}: nothing was written to its memory before it was read."
        case "batch":
            dataset = f" of {name}" if name and name != "NoneType" else ""
            return f"The batch{dataset} for step {origin.step + 1} already held {_amount(origin.outputs)}."
        case "state":
            return f"It came from {name}, which already held {_amount(origin.inputs)} when the check began."
        case "entered":
            given = _amount(origin.inputs)
            return f"{operation} was the first to read {given}, made where torch's operations are not seen."


def _call(origin: NumberOrigin) -> str:
    """``log``, or ``masked_fill(value=-inf)`` with a non-finite argument."""
    arguments = f"({text.one_line(', '.join(origin.arguments))})" if origin.arguments else ""
    return f"{text.one_line(origin.operation).lstrip('_')}{arguments}"


def _amount(ranges: tuple[NumberRange, ...]) -> str:
    """``3 NaN``, ``2 NaN and 12 infinities``, of all tensors together."""
    nan, infinite = sum(it.nan for it in ranges), sum(it.infinite for it in ranges)
    amounts = [f"{nan} NaN"] * bool(nan) + [text.count(infinite, "infinity", "infinities")] * bool(infinite)
    return text.listed(amounts) or "numbers that are not finite"


def _not_repeated(hunt: NumbersHunt, noticed: BadNumber) -> Iterator[str]:
    if isinstance(hunt.repeated_ending, (Completed, Stopped)):
        steps = text.count(hunt.repeated_steps, "step")
        yield f"It did not recur: in a second run with seed {hunt.seed} everything was finite for {steps}."
    else:
        error = text.sentence(getattr(hunt.repeated_ending, "error", ""))
        yield f"The second run, in which every operation is checked, ended before step {noticed.step + 1}. {error}"
    if hunt.compiled:
        yield (
            "The second run did not use torch.compile, so compiled code may be the cause: run the script with "
            "TORCH_COMPILE_DISABLE=1 to see whether it trains."
        )
    else:
        yield (
            "The script is therefore not reproducible: seed all its generators, try "
            "torch.use_deterministic_algorithms(True), and run this again."
        )


def method(hunt: NumbersHunt) -> Iterator[str]:
    """How the figures were obtained."""
    start = f"step {hunt.checked_from + 1}" if hunt.checked_from else "the script's first line"
    yield (
        f"Steps count from 1, rows from 0. The first run had {text.count(hunt.finite_steps, 'step')} in which all was "
        f"finite; the last one repeated them with seed {hunt.seed} and checked every operation from {start} on."
    )
    if hunt.compiled:
        yield "The script uses torch.compile; the checking run did not."


# ---------------------------------------------------------------------------------------------
# Facts
# ---------------------------------------------------------------------------------------------


def _table(facts: Iterator[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, fact in facts:
        table.add_row(Text(f"  {name}"), Text(fact))
    return table


def fact_rows(origin: NumberOrigin, step: int, directory: str) -> Iterator[tuple[str, str]]:
    """Names and facts: the line, the layer, and what the tensors held; an empty name continues the one above."""
    yield "forward line" if origin.autograd_node else "line", _place(origin.site, directory) or "not in your code"
    if origin.site is not None and origin.site.what:
        yield "", f"  {text.one_line(origin.site.what, limit=160)}"
    if origin.module:
        yield "layer", text.one_line(origin.module)
    if origin.autograd_node:
        yield "autograd node", text.one_line(origin.autograd_node)
    if origin.phase == "setup":
        yield "when", _PHASES["setup"]
    elif origin.step != step:
        yield "when", f"step {origin.step + 1}"
    made = "made" if origin.source == "operation" else "held"
    for name, ranges in (("given", origin.inputs), (made, origin.outputs)):
        for index, it in enumerate(ranges):
            yield name if index == 0 else "", _range(it)


def _range(it: NumberRange) -> str:
    """``self  float32 (32, 8)  from -0.021 to 3.2, 3 NaN of 256 in rows 0, 7``."""
    shape = f"({', '.join(map(str, it.shape))})"
    pieces = [f"from {_number(it.low)} to {_number(it.high)}"] if it.low is not None and it.high is not None else []
    if it.nan or it.infinite:
        pieces.append(f"{_amount((it,))} of {it.numbers}")
    name = f"{text.one_line(it.name)}  " if it.name else ""
    rows = f", in {_rows(it)}" if it.rows and it.nan + it.infinite < it.numbers else ""
    return f"{name}{text.one_line(it.dtype)} {shape}  {', '.join(pieces)}{rows}".rstrip()


def _rows(it: NumberRange) -> str:
    """``row 3``, ``rows 0, 7``; the record holds the first few."""
    more = ", ..." if len(it.rows) >= _ROWS_KEPT else ""
    return f"{'row' if len(it.rows) == 1 else 'rows'} {', '.join(map(str, it.rows))}{more}"


def chain(bad: BadNumber, directory: str) -> Iterator[str]:
    """What happened after and before the origin: what turned its infinity into NaN, and what the script wrote."""
    after, before = bad.first_nan, bad.written
    if bad.replaced is not None and bad.overflow is not None:
        place = _at(bad.replaced.site, directory)
        yield f"{_call(bad.replaced)} made finite numbers of it, {_extent(bad.replaced.outputs)}{place}."
        made = f"{_call(bad.overflow)} made {_amount(bad.overflow.outputs)} of these {_PHASES[bad.overflow.phase]}"
        yield f"Then {made}{_at(bad.overflow.site, directory)}."
    if after is not None:
        node = f" ({text.one_line(after.autograd_node)})" if after.autograd_node else ""
        made = f"{_call(after)}{node} made {_amount(after.outputs)} of it {_PHASES[after.phase]}"
        yield f"Then {made}{_at(after.site, directory)}."
    if before is not None:
        yield f"It was given infinities that the script wrote with {_call(before)}{_at(before.site, directory)}."


def _extent(ranges: tuple[NumberRange, ...]) -> str:
    """``from -3.403e+38 to 0``, of all tensors together."""
    low = min((it.low for it in ranges if it.low is not None), default=0.0)
    high = max((it.high for it in ranges if it.high is not None), default=0.0)
    return f"from {_number(low)} to {_number(high)}"


def _at(site: CallSite | None, directory: str) -> str:
    place = _place(site, directory)
    return f", {place}" if place else ""


def _place(site: CallSite | None, directory: str) -> str:
    """``train.py:41 in forward``, files named from the directory that the script runs in where they are below it."""
    if site is None:
        return ""
    function = text.one_line(site.function)
    inside = f" in {function}" if function and function != "<module>" else ""
    return f"{text.file_name(site.file, directory)}:{site.line}{inside}"


def _number(value: float) -> str:
    return f"{value:.4g}"
