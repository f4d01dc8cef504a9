"""``hotlap new``: a complete, fast training script to begin with."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import UsageError
from hotlap.source.scaffold.compose import TASKS
from hotlap.source.scaffold.project import create

if TYPE_CHECKING:
    from hotlap.api import Engine

_DESCRIPTION = """\
Writes a training script with every knob of speed wired and explained: workers and pinned memory, half precision,
compilation, accumulation, a fused optimizer, losses read without waits, exact resume, a profiler, several GPUs. It
needs torch and nothing of hotlap, and runs at once, without a network, on real data:

  image  a residual network on scikit-learn's handwritten digits
  text   a transformer that predicts which package of Python's library a piece of code is from
  lm     a language model of the code of Python's library, byte by byte

What exists is never replaced unless --force is given."""


def parser() -> Parser:
    """The command's options."""
    usage = f"hotlap new [DIR] --task {'|'.join(TASKS)} [options]"
    made = Parser("hotlap new", _DESCRIPTION, usage=usage)
    made.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="write to this folder (default: the current one)"
    )
    made.add_argument("--task", choices=TASKS, help="task that the script trains for")
    made.add_argument(
        "--script-only", action="store_true", help="write only train.py, without README.md and requirements.txt"
    )
    made.add_argument("--force", action="store_true", help="overwrite existing files")
    made.add_json("print one JSON document: what was written")
    made.add_debug()
    return made


def main(words: list[str], engine: Engine | None) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    if choices.task is None:
        raise UsageError(
            "No task was given.", remedy="Give --task image, --task text or --task lm; --help explains them."
        )
    if not choices.directory:
        raise UsageError("The folder's name is empty.", remedy="Give a folder, or omit it to use this one.")
    project = create(Path(choices.directory), choices.task, force=choices.force, script_only=choices.script_only)
    if choices.json:
        made = {"directory": str(project.directory), "files": project.files, "replaced": project.replaced}
        screen.document("new", made, exact=True)
        return 0
    for name in project.files:
        replaced = "replaced" if name in project.replaced else "written"
        screen.say(f"{replaced:<8}  {project.directory / name}")
    folder = "" if project.directory == Path() else f"cd {shlex.quote(str(project.directory))} && "
    screen.say(f"\nBegin with `{folder}python train.py`; `--help` lists every knob.")
    if choices.task == "image" and importlib.util.find_spec("sklearn") is None:
        screen.note("the digits come with scikit-learn, which is not installed here: `pip install scikit-learn`")
    return 0
