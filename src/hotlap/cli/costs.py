"""The options for costs, and the costs of a study."""

from __future__ import annotations

import argparse
import math
import re
from functools import partial

from hotlap.cli.arguments import Parser, whole
from hotlap.errors import UsageError
from hotlap.measure.cost import costs, samples_of_epochs
from hotlap.records import Costs, Price, Study

_CURRENCY = r"[^\W\d_]{1,8}|[$€£¥₹]"
_PRICE = re.compile(rf"(?P<before>{_CURRENCY})? ?(?P<amount>\d+(?:\.\d*)?|\.\d+) ?(?P<behind>{_CURRENCY})?")
_SAMPLES = re.compile(r"(?P<amount>\d+(?:\.\d*)?)(?P<unit>[kMB]?)")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9}
_MOST_SAMPLES = 10**18


def add_cost_options(parser: Parser, *, epochs: bool = False) -> None:
    """Add the options that turn time into money. None of them is measured, so a report can use another price.

    ``epochs`` is for commands that take no script, which could have an option of that name.
    """
    group = parser.add_argument_group("costs")
    group.add_argument(
        "--price", type=price, metavar="PER_HOUR", help="price of one hour of this machine: 2.50, or 2.50EUR"
    )
    length = group.add_mutually_exclusive_group()
    length.add_argument("--samples", type=samples, metavar="N", help="samples that a whole run trains on: 1281167, 90M")
    if epochs:
        length.add_argument("--epochs", type=partial(whole, 1), metavar="N", help="epochs of a whole run")


def costs_of(study: Study, choices: argparse.Namespace) -> Costs | None:
    """Compute the costs of a study; None if no sample was timed.

    Raises :class:`UsageError` for epochs if the study does not record their length.
    """
    length = choices.samples
    if getattr(choices, "epochs", None) is not None:
        length = samples_of_epochs(study, choices.epochs)
        if length is None:
            raise UsageError(
                "This study does not record the number of samples per epoch.", remedy="Give --samples instead."
            )
    return costs(study, price=choices.price, samples=length)


def price(text: str) -> Price:
    """Parse ``2.50``, ``2.50EUR`` or ``$2.50`` as a price.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    match = _PRICE.fullmatch(text.strip())
    amount = float(match["amount"]) if match else 0.0
    currencies = [it for it in (match["before"], match["behind"]) if it] if match else []
    if not 0 < amount < math.inf or len(currencies) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price per hour above zero; write it like 2.50 or 2.50EUR")
    return Price(per_hour=amount, currency="".join(currencies))


def samples(text: str) -> int:
    """Parse ``1281167``, ``50k``, ``1.28M`` or ``2B`` as a number.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    match = _SAMPLES.fullmatch(text.strip().replace("_", ""))
    found = round(float(match["amount"]) * _UNITS[match["unit"]]) if match and len(text) < 30 else 0
    if not 0 < found <= _MOST_SAMPLES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of samples; write it like 1281167, 50k or 1.28M")
    return found
