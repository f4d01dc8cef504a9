"""The interface of a lever file, and the discovery of all levers in the folders.

One file is one lever, in the folder of its kind: ``levers/precision/mixed_precision.py`` is the lever
``mixed-precision``. Its docstring is its documentation page (what it does, when it helps, what it costs, Before and
After source). Its members are the fields of :class:`Lever`; nothing is registered anywhere else. Code shared by several
levers is in ``levers/support``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hotlap.errors import LeverError, PlanError
from hotlap.records import (
    SECONDS_PER_SAMPLE,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
    Value,
)

if TYPE_CHECKING:
    from hotlap.levers.support.switching import Switch
    from hotlap.runtime.hooks import Hooks


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value in a setting of the lever; ``choices`` is empty if any value is valid."""

    kind: type
    choices: tuple[Value, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    required: bool = True


_NOT_SAID = NoSourceForm(reason="The lever cannot be written into a script.")


Work: TypeAlias = Literal["training", "inference"]


@dataclass(frozen=True, slots=True)
class Lever:
    """One known way to make training faster.

    ``obstacle`` says why the lever cannot or need not be tried (``already=True`` when the script does it
    itself), or None. ``bound`` is the largest speedup it could give here, or None when there is no bound.
    ``candidates`` are the settings worth a trial, best guess first. ``install`` runs in the child, right
    after torch's import, and hangs the lever onto the hooks. ``environment`` are the variables that must be
    set before the process starts. ``improves`` names the metrics that it may make better: a search for
    another one passes it over. ``proof_for`` says what a setting owes, and ``changes_randomness`` whether the
    data pipeline draws other random numbers with it (from the same distribution). ``rewrite`` is what a
    setting wants changed in the script's source, which :mod:`hotlap.source.patch` carries out. ``switch`` hangs the
    lever onto the hooks of a child that puts it on and takes it off while it trains; None for one that is decided when
    the process or its loaders start. ``work`` is what it makes faster: training, the calls of an inference target, or
    both. ``replaces_torch`` says that the model is then run by something else than torch, so that no other lever
    that changes how torch runs a model can be combined with it: those of the kind ``host`` alone. ``samples_factor`` is
    how many times as many samples a step has with a setting: results are then compared at equal samples.
    ``lengthens_calls`` says that several inputs share a call and wait for one another: it is not tried where the time
    of a call is the goal, or a p99 of it is required. ``starts_slowly`` says that each launch, or the first one,
    compiles for tens of seconds: in a short budget what starts faster comes first. ``changes_evaluation`` says that it
    computes the script's evaluations otherwise, whose losses are then compared too. ``kind`` is the name of its folder.
    """

    name: str
    title: str
    page: str
    proof: Proof
    addresses: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    obstacle: Callable[[Situation], Skipped | None]
    bound: Callable[[Situation], float | None]
    candidates: Callable[[Situation], tuple[Setting, ...]]
    install: Callable[[Hooks, Setting], None]
    environment: Callable[[Setting], dict[str, str]]
    proof_for: Callable[[Situation, Setting], Proof]
    improves: tuple[str, ...] = (SECONDS_PER_SAMPLE,)
    changes_randomness: Callable[[Situation, Setting], bool] = lambda situation, setting: False
    rewrite: Callable[[ScriptFacts, Setting], tuple[SourceChange, ...]] = lambda facts, setting: (_NOT_SAID,)
    switch: Callable[[Hooks, Setting], Switch] | None = None
    work: tuple[Work, ...] = ("training",)
    replaces_torch: bool = False
    samples_factor: Callable[[Setting], float] = lambda setting: 1.0
    lengthens_calls: bool = False
    starts_slowly: bool = False
    changes_evaluation: bool = False
    kind: str = ""

    @property
    def keeps_compiled_code(self) -> bool:
        """Whether torch's compiler can load with it what it made without it.

        It cannot for another number of threads, which is a part of the code that it makes for a CPU.
        """
        return self.kind == "optimizer" or (self.kind in ("data", "host") and self.proof == "exact")


_REQUIRED = ("title", "proof", "addresses", "parameters", "obstacle", "bound", "candidates", "rewrite", "install")
_LONGEST_NAME = 100
_SUPPORT = "support"


@cache
def all_levers() -> Mapping[str, Lever]:
    """Return every lever of training by name, in alphabetical order.

    Raises :class:`LeverError` if a file lacks a member.
    """
    return _levers_of("training")


def inference_levers() -> Mapping[str, Lever]:
    """Return every lever of inference by name, in alphabetical order. Raises as :func:`all_levers` does."""
    return _levers_of("inference")


def levers_of_any_work() -> Mapping[str, Lever]:
    """Return every lever by name, in alphabetical order. Raises as :func:`all_levers` does."""
    return {name: find(name) for name in _names()}


@cache
def _levers_of(work: Work) -> Mapping[str, Lever]:
    return {name: it for name, it in levers_of_any_work().items() if work in it.work}


@cache
def _names() -> tuple[str, ...]:
    """Return the names of all levers, in alphabetical order."""
    return tuple(sorted(map(_name, _modules())))


@cache
def _modules() -> Mapping[str, str]:
    """Return the folder of every lever's file: ``{"compile": "kernels"}``; none is imported."""
    import hotlap.levers as levers

    folders = [it.name for it in pkgutil.iter_modules(levers.__path__) if it.ispkg and it.name != _SUPPORT]
    return {
        file.name: folder
        for folder in folders
        for file in pkgutil.iter_modules([f"{path}/{folder}" for path in levers.__path__])
    }


def find(name: str) -> Lever:
    """Return the lever of that name; import only its file.

    Raises :class:`PlanError` if there is none.
    """
    if name not in _names():  # a plan may contain any text: it must not become a module name before this
        raise PlanError(f"There is no lever named {_short(name)!r}.", remedy="`hotlap levers` lists them.")
    module = name.replace("-", "_")
    return _build(name, importlib.import_module(f"hotlap.levers.{_modules()[module]}.{module}"))


def validate(setting: Setting) -> None:
    """Check a setting against its lever's parameters.

    Raises :class:`PlanError` that names the wrong key or value and what is valid.
    """
    lever = find(setting.lever)
    given = dict(setting.values)
    for key, value in given.items():
        if key not in lever.parameters:
            allowed = ", ".join(lever.parameters) or "no keys"
            raise PlanError(f"The lever {lever.name!r} has no key {key!r}.", remedy=f"It takes: {allowed}.")
        _check_value(lever.name, key, value, lever.parameters[key])
    missing = [key for key, it in lever.parameters.items() if it.required and key not in given]
    if missing:
        raise PlanError(f"The lever {lever.name!r} needs the key {missing[0]!r}.", remedy="Add it to the plan.")


def _check_value(lever: str, key: str, value: Value, parameter: Parameter) -> None:
    right_type = type(value) is parameter.kind or (parameter.kind is float and type(value) is int)
    if not right_type:
        raise PlanError(
            f"{lever}.{key} is {value!r}, which is not of type {parameter.kind.__name__}.",
            remedy=f"Give a {parameter.kind.__name__}.",
        )
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(repr(choice) for choice in parameter.choices)
        raise PlanError(f"{lever}.{key} is {value!r}.", remedy=f"It must be one of {choices}.")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        too_small = parameter.minimum is not None and value < parameter.minimum
        too_large = parameter.maximum is not None and value > parameter.maximum
        if too_small or too_large:
            raise PlanError(
                f"{lever}.{key} is {value}.",
                remedy=f"It must be between {parameter.minimum} and {parameter.maximum}.",
            )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _name(module: str) -> str:
    return module.replace("_", "-")


@cache
def _build(name: str, module: ModuleType) -> Lever:
    missing = [member for member in _REQUIRED if not hasattr(module, member)]
    if missing or not module.__doc__:
        lacking = missing[0] if missing else "a docstring"
        raise LeverError(f"The lever file for {name!r} lacks {lacking}.", remedy="See levers/api.py.")
    member: dict[str, Any] = {key: getattr(module, key) for key in _REQUIRED}
    return Lever(
        name=name,
        page=module.__doc__,
        environment=getattr(module, "environment", lambda setting: {}),
        proof_for=getattr(module, "proof_for", lambda situation, setting: module.proof),
        improves=getattr(module, "improves", (SECONDS_PER_SAMPLE,)),
        changes_randomness=getattr(module, "changes_randomness", lambda situation, setting: False),
        work=getattr(module, "work", ("training",)),
        switch=getattr(module, "switch", None),
        replaces_torch=getattr(module, "replaces_torch", False),
        samples_factor=getattr(module, "samples_factor", lambda setting: 1.0),
        lengthens_calls=getattr(module, "lengthens_calls", False),
        starts_slowly=getattr(module, "starts_slowly", False),
        changes_evaluation=getattr(module, "changes_evaluation", False),
        kind=module.__name__.split(".")[-2],
        **member,
    )
