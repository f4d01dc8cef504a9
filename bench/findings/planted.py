"""The description of a planted script: which causes it has, and the edits that remove them.

Every script in ``tests/causes``, or folder there with a script ``train.py``, has a file of its name that ends in
``.toml``. ``first`` is the rule that must fire and be ranked before everything else that costs time; ``also`` must fire
too; ``true`` may fire, since it is true of the script as well, and ``busy`` while other work takes cores from it.
Whatever else is found is a false alarm. Each of them, except hints, has a *cure*: the edits that a person would make.
``bench.findings.truth`` runs the script with and without them, in turns, so that what is called true is measured
without hotlap; with ``--busy`` it measures the cures that are ``busy``.

A line that a finding must name ends in the comment ``# planted: rule, rule``; the line of a hint, which is in ``true``
without a cure, in ``# hint: rule``. Scripts for an accelerator have no cures yet: what they have is not measured. A
finding from a trace names the function by its first line, since torch's profiler records no other.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "causes"
_PLANTED = re.compile(r"# planted: ([a-z, -]+)$")
_HINT = re.compile(r"# hint: ([a-z, -]+)$")

Need = Literal["", "two-cores", "bfloat16", "compiler", "device", "two-processes"]
"""What the machine must have for the cause to be there at all."""

Measure = Literal["step", "run", "growth", "finite", "spikes", "skipped", "idle", "breaks", "recompiles"]
"""How a cure is judged: seconds per step with all that lies between steps, seconds of the whole run, memory that
grows from step to step, losses that are not finite, outliers of the gradient's norm, steps that a scaler leaves out,
parameters without a gradient to speak of, breaks between compiled graphs, recompilations."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``old``, which occurs once in the file (the script, where none is named), becomes ``new``."""

    old: str
    new: str
    file: str = ""


class Cure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The edits that remove the cause that ``rules`` name. A cured step has ``samples`` times as many samples, and
    what is measured takes about ``seconds``. ``both`` sides may want edits that take something else out of the way. A
    script that ``sleeps`` cannot be stopped in between: its sleep would go on. What is true on ``busy`` cores alone is
    measured there alone."""

    rules: tuple[str, ...]
    edits: tuple[Edit, ...]
    both: tuple[Edit, ...] = ()
    measure: Measure = "step"
    samples: float = 1.0
    sleeps: bool = False
    seconds: float = 3.0
    busy: bool = False


class Planted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One script. ``name`` and ``folder`` come from where the file lies; a ``project`` is a folder of several files,
    written as people write. Without ``first`` the script is clean."""

    first: str = ""
    also: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    need: Need = ""
    slow: bool = True
    arguments: tuple[str, ...] = ()
    cures: tuple[Cure, ...] = ()
    name: str = ""
    folder: str = ""
    script: str = ""

    @property
    def is_project(self) -> bool:
        """Whether it has a folder of its own."""
        return Path(self.folder) != FOLDER

    @property
    def wanted(self) -> tuple[str, ...]:
        """The rules that must fire, the one to be ranked first before all others."""
        return tuple(it for it in (self.first, *self.also) if it)

    @property
    def path(self) -> Path:
        """The script that is started."""
        return Path(self.folder) / self.script

    def allowed(self, busy: bool) -> frozenset[str]:
        """The rules that may fire, on cores that other work keeps busy or on a quiet machine."""
        return frozenset((*self.wanted, *self.true, *(self.busy if busy else ())))

    def files(self) -> list[Path]:
        """All source files."""
        return sorted(Path(self.folder).rglob("*.py")) if self.is_project else [self.path]

    def lines(self) -> dict[str, tuple[str, int]]:
        """File name and line that each of these rules must name, where one is marked."""
        return self._marked(_PLANTED)

    def hints(self) -> dict[str, tuple[str, int]]:
        """File name and line of what costs nothing here, and may be reported as a hint."""
        return self._marked(_HINT)

    def _marked(self, mark: re.Pattern[str]) -> dict[str, tuple[str, int]]:
        found = {}
        for path in self.files():
            for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                marked = mark.search(text)
                for rule in marked.group(1).split(",") if marked else ():
                    found[rule.strip()] = (path.name, number)
        return found


def planted(described: Path) -> Planted:
    """What a ``.toml`` file describes: the script or the folder of that name. Raises ``msgspec.ValidationError``."""
    fields = tomllib.loads(described.read_text(encoding="utf-8"))
    folder = described.with_suffix("")
    is_project = folder.is_dir()
    return msgspec.convert(
        {
            **fields,
            "name": described.stem,
            "folder": str(folder if is_project else described.parent),
            "script": "train.py" if is_project else f"{described.stem}.py",
        },
        Planted,
    )


def all_planted() -> list[Planted]:
    """Every script that is described, the clean ones last, those for a device after all."""
    found = [planted(it) for it in sorted(FOLDER.rglob("*.toml"))]
    return sorted(found, key=lambda it: (it.need == "device", not it.first, it.is_project, it.name))
