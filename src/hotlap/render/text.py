"""Format numbers and foreign text for readers.

Everything that came out of a script (its name, its arguments, its errors) passes through :func:`clean`
before it is shown, so that it can neither move the cursor nor reorder the line.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence

from hotlap.records import Estimate, Setting, Workload
from hotlap.wording import from_package
from hotlap.wording import interval as interval
from hotlap.wording import is_worth_showing as is_worth_showing
from hotlap.wording import number as number
from hotlap.wording import ratio as ratio
from hotlap.wording import ratio_in_interval as ratio_in_interval
from hotlap.wording import share as share

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links
    r"|\x1b[@-Z\\-_a-z0-9=>]"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_MARKDOWN = re.compile(r"^(?:[-+](?=[-+\s]|$)|=(?==*$)|\d+(?=[.)](?:\s|$)))|(?<=\])\(|[\\`*_{}\[\]<>#|~@$&]")
"""What means something in Markdown: signs anywhere, and what would make an item or a heading of a whole line."""

_MARKDOWN_SIGNS = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "@<!-- -->", "#": "#<!-- -->"}
_HOSTS_SHOWN = 20
_TORCHRUN_MODULE = ("-m", "torch.distributed.run")
_OF_THE_RUN = "of the run"
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, *, limit: int = 4000) -> str:
    """Text without escape sequences, control characters and direction marks; newlines stay.

    Text longer than ``limit`` characters loses its beginning, where the least is said.
    """
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    shown = "".join(map(_visible, _ESCAPE_SEQUENCE.sub("", text[-4 * limit :])))
    return shown if len(shown) <= limit else "..." + shown[-limit:]


def one_line(text: str, *, limit: int = 400) -> str:
    """Cleaned text on one line, its end cut off where it is longer than ``limit`` characters."""
    shown = " ".join(clean(text).split())
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def last_lines(text: str, count: int) -> str:
    """The last non-empty lines of a script's output, cleaned.

    A progress bar's carriage returns are taken as the terminal takes them: what was last written stays.
    """
    lines = [clean(_last_written(line)).rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return "\n".join([line for line in lines if line][-count:])


def sentence(text: str) -> str:
    """One line that begins with a capital and ends with a full stop."""
    shown = one_line(text, limit=2000)
    if not shown:
        return ""
    shown = shown[0].upper() + shown[1:]
    return shown if shown[-1] in ".!?:" else shown + "."


def duration(seconds: float) -> str:
    """A short time in a suitable unit: ``812 us``, ``34.1 ms``, ``2.31 s``, ``4 min 12 s``."""
    if seconds >= 60:
        return clock(seconds)
    if seconds >= 1:
        return f"{_significant(seconds)} s"
    if seconds >= 1e-3:
        return f"{_significant(seconds * 1e3)} ms"
    return f"{_significant(seconds * 1e6)} us" if seconds > 0 else "0 ms"


def length(nanoseconds: float) -> str:
    """A duration in nanoseconds, as traces give it."""
    return duration(nanoseconds / 1e9)


def duration_unit(seconds: float) -> tuple[str, float, int]:
    """A unit for a whole column of durations of which the longest takes ``seconds``: name, factor, decimals."""
    for name, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or name == "us":
            return name, factor, 1 if seconds * factor >= 10 else 2
    raise AssertionError("the last unit always fits")


def clock(seconds: float) -> str:
    """A long time to the second: ``12 s``, ``4 min 12 s``, ``1 h 03 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float) -> str:
    """Bytes in binary units: ``1.4 GiB``."""
    unit = 0
    while abs(count) >= 1000 and unit < len(_BINARY_UNITS) - 1:
        count /= 1024
        unit += 1
    digits = 1 if unit and abs(count) < 9.95 else 0
    return f"{count:.{digits}f} {_BINARY_UNITS[unit]}"


def change_of_size(before: int, after: int) -> str:
    """How a peak of memory changed: ``+120 MiB``, ``-1.2 GiB``, ``same`` within one percent, empty if unknown."""
    if before <= 0 or after <= 0:
        return ""
    if abs(after - before) < 0.01 * before:
        return "same"
    return f"{'+' if after > before else '-'}{size(abs(after - before))}"


def rate(per_second: float, unit: str) -> str:
    """A rate with a decimal prefix: ``1.3 TFLOP/s``, ``25 GB/s``."""
    prefix = 0
    while per_second >= 1000 and prefix < len(_DECIMAL_PREFIXES) - 1:
        per_second /= 1000
        prefix += 1
    return f"{_significant(per_second)} {_DECIMAL_PREFIXES[prefix]}{unit}/s"


def share_of(part: float, whole: float) -> str:
    """A part as a share of a whole; ``-`` if the whole is zero."""
    return share(part / whole) if whole else "-"


def cost(of: Estimate) -> str:
    """A share of a step that something costs: ``36 %``, or ``up to 12 %`` for a bound."""
    return f"up to {share(of.high)}" if of.is_bound else share(of.value)


def whole_of(of: Estimate) -> str:
    """The whole of a share: ``of a step``, or ``of the run`` for time outside of steps."""
    return _OF_THE_RUN if of.unit == _OF_THE_RUN else "of a step"


def confidence(level: float) -> str:
    """The name of an interval: ``95 % interval``, ``98.5 % interval``."""
    return f"{level * 100:.3g} % interval"


def speedup(of: Estimate, level: float) -> str:
    """A speedup with its interval: ``1.83x (95 % interval 1.79 to 1.88)``."""
    return f"{ratio(of.value)} ({confidence(level)} {interval(of)})"


def markdown(foreign: str) -> str:
    """Cleaned text on one line that Markdown shows as it is, in a table as well: none of it becomes markup, and no
    name behind an ``@`` nor number behind a ``#`` a reference (a comment in between prevents that)."""
    return _MARKDOWN.sub(_escaped, one_line(foreign, limit=2000))


def file_name(file: str, directory: str = "") -> str:
    """A file as its reader knows it: relative to the project's ``directory``, or from its package on for a library's
    (``torch/nn/functional.py``)."""
    if directory and file.startswith(f"{directory.rstrip('/')}/"):
        file = file[len(directory.rstrip("/")) + 1 :]
    return one_line(from_package(file))


def count(number: int, one: str, many: str = "") -> str:
    """``1 lever``, ``3 levers``, ``1,200 steps``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def hosts(names: Sequence[str]) -> list[str]:
    """The hosts that trials connected to, cleaned, at most twenty of them and how many more there are."""
    more = [f"and {len(names) - _HOSTS_SHOWN} more"] if len(names) > _HOSTS_SHOWN else []
    return [*(one_line(it, limit=120) for it in names[:_HOSTS_SHOWN]), *more]


def listed(items: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def setting(of: Setting) -> str:
    """``loader (num_workers 4, pin_memory)``, cleaned."""
    values = setting_values(of)
    return f"{one_line(of.lever)} ({values})" if values else one_line(of.lever)


def setting_values(of: Setting) -> str:
    """``num_workers 4, pin_memory``: what is switched on, with its value where it is more than a switch."""
    names = [one_line(name if it is True else f"{name} {it}") for name, it in of.values if it is not False]
    return ", ".join(names)


def command(workload: Workload, *options: str) -> str:
    """The script with its arguments, without secrets, as typed after ``hotlap COMMAND``.

    An interpreter that the command line chose is among the options.
    """
    named = ("--python", workload.python) if workload.python_named else ()
    return script_command(workload, *options, *named)


def script_command(workload: Workload, *options: str) -> str:
    """The same without the interpreter, as typed after a study, which knows it."""
    from hotlap.render.presentable import presentable, shown

    directory = workload.directory
    workload, options = presentable(workload, directory), tuple(shown(it, directory) for it in options)
    interpreter = ("python", *workload.interpreter_options) if workload.interpreter_options else ()
    target = ("-m", workload.target) if workload.kind == "module" else (workload.target,)
    if target == _TORCHRUN_MODULE and not interpreter:
        target = ("torchrun",)
    words = (*options, *interpreter, *target, *workload.arguments)
    return one_line(" ".join(map(_typed, words)), limit=1000)


def of_study(command: str, directory: str) -> str:
    """A command with the study that it is for, which is the last one where the directory is empty."""
    return f"{command} {shell_word(directory)}".rstrip()


def shell_word(word: str) -> str:
    """A word as typed in a shell; empty for an empty word."""
    return one_line(_typed(word), limit=1000) if word else ""


def _typed(word: str) -> str:
    """A word in a shell. The home directory at its beginning is left to the shell to expand."""
    head, at_home, rest = word.partition("~/")
    if at_home and not head and rest:
        return f"{at_home}{shlex.quote(rest)}"
    if at_home and head.endswith("=") and rest:  # where no shell expands a tilde
        return f'{shlex.quote(head)}"$HOME"/{shlex.quote(rest)}'
    return shlex.quote(word)


def _last_written(line: str) -> str:
    parts = [part for part in line.split("\r") if part]
    return parts[-1] if parts else ""


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if sign.isdigit():  # of a numbered item: the sign behind the number is escaped
        return f"{sign}\\"
    return _MARKDOWN_SIGNS.get(sign, f"\\{sign}")


def _visible(character: str) -> str:
    if character in "\t\n":
        return "    " if character == "\t" else "\n"
    return "" if unicodedata.category(character) in _UNSEEN_CATEGORIES else character


def _significant(number: float) -> str:
    """Three significant digits without an exponent."""
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
