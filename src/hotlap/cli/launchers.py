"""Interpreters with options, launchers, and environment tools in front of a script.

A launcher is replaced by the module that it starts, with everything that follows as its arguments. A tool such as
``uv run`` is replaced by the interpreter of the environment that it would use.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from hotlap.errors import UsageError
from hotlap.trial.interpreter import has_torch

_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")

_MODULES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "torchrun": ((), "torch.distributed.run"),
    "accelerate": (("launch",), "accelerate.commands.launch"),
    "accelerate-launch": ((), "accelerate.commands.launch"),
    "fabric": (("run",), "lightning.fabric.cli"),
    "deepspeed": ((), "deepspeed.launcher.runner"),
}
"""A launcher's name, the words that must follow it, and the module that its command starts."""

_MACHINES: Mapping[str, tuple[str, ...]] = {
    "torch.distributed.run": ("--nnodes",),
    "accelerate.commands.launch": ("--num_machines", "--num-machines"),
    "lightning.fabric.cli": ("--num-nodes", "--num_nodes"),
    "lightning_fabric.cli": ("--num-nodes", "--num_nodes"),
    "deepspeed.launcher.runner": ("--num_nodes",),
}
"""A launcher's module, and the names of its option for the number of machines."""

_OTHER_HOMES = {"lightning.fabric.cli": "lightning_fabric.cli"}
"""The same module in its separate package."""

_TOOLS = ("uv", "poetry", "pdm", "rye", "pipenv", "hatch")
_OF_THE_TOOL = {
    "uv": frozenset({"--frozen", "--locked", "--no-sync", "--offline", "--active", "-q", "--quiet", "-v", "--verbose"}),
}
"""Options of a tool's ``run`` that change nothing in the environment that is used."""

_ALONE = "uBOsvqbdPx"
_WITH_VALUE = "XW"
_KEEPS_HOTLAP_OUT = "IES"
_OTHERS = frozenset(
    {"srun", "mpirun", "mpiexec", "horovodrun", "ray", "composer", "colossalai", "conda", "mamba", "micromamba", "pixi",
     "time", "nohup", "nice", "env", "sudo", "numactl", "taskset", "bash", "sh", "ipython", "jupyter", "tune",
     "lightning"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed:
    """A command: the interpreter, its own options, and ``words`` from the script, or ``-m`` and a module, on."""

    python: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()


def understood(words: Sequence[str], command: str, python: str = "") -> Typed:
    """Resolve a command line, whatever precedes the script; ``python`` is the interpreter that an option names.

    Raises :class:`UsageError`, with what to type instead, for unsupported options and launchers, and for two
    interpreters.
    """
    typed = _without_tool(list(words), command, python)
    typed = _without_python(typed, python)
    return _as_module(typed, command) if typed.words else typed


# ---------------------------------------------------------------------------------------------
# Tools that run in an environment
# ---------------------------------------------------------------------------------------------


def _without_tool(words: list[str], command: str, named: str) -> Typed:
    tool = words[0] if words else ""
    if tool not in _TOOLS or _is_script(Path(tool)):
        return Typed(named or sys.executable, tuple(words))
    if named:
        raise UsageError(f"Both --python and `{tool} run` choose an interpreter.", remedy="Omit one of them.")
    inside = f"Put it before hotlap: `{tool} run hotlap {command} ...`."
    if words[1:2] != ["run"]:
        raise UsageError(f"Only `{tool} run` is supported.", remedy=inside)
    rest = words[2:]
    while rest and rest[0] in _OF_THE_TOOL.get(tool, ()):
        del rest[0]
    if rest[:1] == ["--"]:
        del rest[0]
    elif rest and rest[0] in ("--module", "-m"):
        rest[0] = "-m"
    elif rest and rest[0].startswith("-"):
        raise UsageError(
            f"hotlap does not support `{tool} run {rest[0]}`: its effect on the environment is unknown.", remedy=inside
        )
    if not rest:
        raise UsageError(f"`{tool} run` has no script.", remedy=f"Write `hotlap {command} {tool} run train.py`.")
    return Typed(_interpreter_of_the_project(), tuple(rest))


def _interpreter_of_the_project() -> str:
    """Find the interpreter: of a virtual environment here or above, else of the active one, else ours."""
    here = Path.cwd()
    named = os.environ.get("UV_PROJECT_ENVIRONMENT") or ".venv"
    active = [Path(os.environ["VIRTUAL_ENV"])] if os.environ.get("VIRTUAL_ENV") else []
    for folder in (*(it / named for it in (here, *here.parents)), *active):
        if os.access(folder / "bin" / "python", os.X_OK):
            return os.fspath(folder / "bin" / "python")
    return sys.executable


# ---------------------------------------------------------------------------------------------
# The interpreter
# ---------------------------------------------------------------------------------------------


def active_interpreter() -> str:
    """Find the interpreter of the active environment, or of a virtual environment here or above; empty if none."""
    conda = os.environ.get("CONDA_PREFIX", "")
    folders = [Path(it) for it in (os.environ.get("VIRTUAL_ENV", ""), conda) if it]
    here = Path.cwd()
    candidates = (it / "bin" / "python" for it in (*folders, *(it / ".venv" for it in (here, *here.parents))))
    return next((os.fspath(it) for it in candidates if os.access(it, os.X_OK)), "")


def is_usual_interpreter(python: str) -> bool:
    """Return whether scripts are run with this interpreter where no command names one."""
    usual = sys.executable if has_torch() else active_interpreter()
    one, other = Path(python), Path(usual or sys.executable)
    # Names of the same file in one folder are one environment; a link from another folder is another one.
    return one == other or (one.parent == other.parent and one.resolve() == other.resolve())


def _without_python(typed: Typed, named: str) -> Typed:
    """Remove the interpreter and its options if the words begin with one."""
    first = typed.words[0] if typed.words else ""
    if not _PYTHON.fullmatch(Path(first).name):
        return typed
    is_path = os.sep in first
    if Path(first).is_file() and not (is_path and os.access(first, os.X_OK)):
        return typed  # a script of that name
    if named and is_path:
        raise UsageError(f"Both --python and {first!r} name an interpreter.", remedy="Omit one of them.")
    # With a tool in front a bare name means the project's interpreter, else the first one on the path.
    python = shutil.which(first if is_path or typed.python == sys.executable else typed.python)
    if python is None:
        raise UsageError(f"There is no interpreter {first!r}.", remedy="Omit it: hotlap then uses its own interpreter.")
    options, rest = _options_of_python(typed.words[1:])
    return Typed(python, tuple(rest), tuple(options))


def _options_of_python(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the interpreter's options from what follows them.

    Raises :class:`UsageError` for options that trials cannot have.
    """
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--", "-m"):
        word = rest.pop(0)
        letters = word[1:]
        value = next((at for at, it in enumerate(letters) if it in _WITH_VALUE), len(letters))
        _check_options(word, letters[:value])
        options.append(word)
        if value == len(letters) - 1 and rest:
            options.append(rest.pop(0))
    if rest[:1] == ["--"]:
        del rest[0]
    return options, rest


def _check_options(word: str, letters: str) -> None:
    if any(it in _KEEPS_HOTLAP_OUT for it in letters):
        raise UsageError(
            f"With `python {word}` hotlap cannot be loaded into the script's process.",
            remedy="Omit -I, -E and -S.",
        )
    if "c" in letters or "i" in letters:
        raise UsageError(f"`python {word}` has no script.", remedy="Put the code into a file and pass that file.")
    unknown = [it for it in letters if it not in _ALONE and it not in _WITH_VALUE]
    if unknown or word.startswith("--"):
        raise UsageError(
            f"hotlap does not support the option {word!r} of Python.", remedy="Omit it, and pass the script."
        )


# ---------------------------------------------------------------------------------------------
# Launchers
# ---------------------------------------------------------------------------------------------


def _as_module(typed: Typed, command: str) -> Typed:
    """Replace a launcher by the module that it starts."""
    first = typed.words[0]
    path, name = Path(first), Path(first).name
    if _is_script(path) and not (os.sep in first and _is_installed(path, name)):
        return typed
    if name in _MODULES:
        following, module = _MODULES[name]
        rest = typed.words[1:]
        if rest[: len(following)] != following:
            raise UsageError(
                f"Of {name} only `{' '.join((name, *following))}` starts a script.",
                remedy=f"Write `hotlap {command} {' '.join((name, *following))} train.py`.",
            )
        python = os.fspath(path.with_name("python")) if os.sep in first else typed.python
        words = ("-m", _home_of(module, name, python), *rest[len(following) :])
        return replace(typed, python=python, words=words)
    if name in _OTHERS or name in _TOOLS or shutil.which(first) is not None:
        raise UsageError(
            f"hotlap does not support {name!r} as a launcher.",
            remedy=f"Put it before hotlap (`{name} ... hotlap {command} train.py`), or pass the module that it runs: "
            f"`hotlap {command} -m MODULE ...`.",
        )
    return typed


def require_one_machine(module: str, arguments: Sequence[str], command: str) -> None:
    """Raise :class:`UsageError` if the launcher would wait for processes that other machines start."""
    names = _MACHINES.get(module, ())
    for index, word in enumerate(arguments):
        if not word.startswith("-") and word.endswith(".py"):
            return  # what follows the script belongs to the script
        name, equals, value = word.partition("=")
        value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
        fewest = value.partition(":")[0]  # torchrun takes a range, of which the fewest are enough
        if name in names and fewest.isdecimal() and int(fewest) > 1:
            raise UsageError(
                f"hotlap {command} starts processes on this machine alone, and `{name} {value}` waits for those of "
                "others.",
                remedy=f"Use `{name} 1` here. The plan then runs on all machines: on each of them, put "
                "`hotlap run --plan hotlap.toml` in front of the same command.",
            )


def _is_script(path: Path) -> bool:
    """Return whether Python can run it; a folder of a launcher's sources is no script."""
    return path.is_file() or (path / "__main__.py").is_file()


def _is_installed(path: Path, name: str) -> bool:
    """Return whether a path is a launcher next to an environment's interpreter."""
    return name in _MODULES and os.access(path, os.X_OK) and os.access(path.with_name("python"), os.X_OK)


def has_package(package: str) -> bool:
    """Return whether our own interpreter can import a package here."""
    return (
        package in sys.builtin_module_names
        or PathFinder.find_spec(package, [os.fspath(Path.cwd()), *sys.path]) is not None
    )


def _home_of(module: str, launcher: str, python: str) -> str:
    """Return the installed module's name.

    Raises :class:`UsageError` if it is certainly not installed.
    """
    for name in filter(None, (module, _OTHER_HOMES.get(module))):
        if has_package(name.partition(".")[0]):
            return name
    if python != sys.executable:
        return module
    package = module.partition(".")[0]
    raise UsageError(
        f"{launcher} cannot be started: the package {package!r} is not installed here.",
        remedy=f"Install {package} next to hotlap, or run hotlap where it is installed.",
    )
