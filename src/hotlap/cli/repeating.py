"""The options that a printed command keeps when it runs the same again.

Every option is kept as it was typed, unless it is listed here with the reason, so that one that is added later is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hotlap.cli.arguments import Parser

_PRINTED = "how an answer is printed, which decides nothing"

NOT_REPEATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "budget": "the printed command names the budget that is needed",
        "quick": "a quick look is repeated to prove what it showed",
        "python": "an interpreter belongs to the workload, which names it",
        "inputs": "functions belong to the workload, which names them",
        "metric": "functions belong to the workload, which names them",
        "lengths": "belongs to the workload, which names it",
        "resume": "continues a study, and begins none",
        "yes": "is for --resume",
        "nproc": "another measurement, which has next commands of its own",
        "help": "runs nothing",
        **dict.fromkeys(("full", "no_pager", "json", "quiet", "debug", "show_output"), _PRINTED),
    }
)
"""By the name of the option's value, with the reason."""


def repeated_options(parser: Parser, words: Sequence[str]) -> tuple[str, ...]:
    """The options among a command's words, as typed, that its repetition keeps."""
    return tuple(
        word for option, typed in parser.options_in(words) if option.dest not in NOT_REPEATED for word in typed
    )
