"""Arguments of the loaders of training, or of evaluation."""

from __future__ import annotations

import ast

from hotlap.records import CallSite, LoaderArguments, LoaderFacts, Value
from hotlap.source.patch.code import Code, Edits, NotPossible, Sources, last_part
from hotlap.source.patch.values import remove_argument, set_arguments

# Positions of DataLoader's parameters that may be passed by position.
_POSITIONS = {"batch_size": 1, "num_workers": 5, "pin_memory": 7, "timeout": 9, "multiprocessing_context": 11}
_USUAL_PREFETCH = 2


def edits_for(sources: Sources, change: LoaderArguments) -> Edits:
    """Each call that made such a loader. Raises :class:`NotPossible`."""
    facts = _concerned(sources, change)
    sites = {it.site for it in facts}
    iterable = {it.site for it in sources.facts.loaders if it.iterable}
    edits: Edits = []
    done: set[tuple[Code, ast.Call]] = set()
    for loader in facts:
        if loader.site in iterable:
            raise NotPossible("One line makes loaders over map-style and over iterable data sets.")
        code, call = sources.of_site(loader.site, f"The DataLoader over {loader.dataset}")
        if (code, call) in done:
            continue
        done.add((code, call))
        _check_callee(code, call)
        wanted = {name: value for name, value in change.values if _present(loader, name) != value}
        spared = _others(code, [it for it in sites if it is not None and it.file == str(code.path)])
        edits += set_arguments(sources, code, call, wanted, _POSITIONS, spared)
        if loader.trains and any(it.site == loader.site and it.trains is False for it in sources.facts.loaders):
            sources.remarks.append(
                f"{code.path.name}:{call.lineno} also makes a loader that is used only for evaluation, which gets the "
                "same arguments."
            )
        for name in change.removed:
            if _present(loader, name) not in (None, False):
                edits += remove_argument(code, call, name, _POSITIONS)
    return edits


def _concerned(sources: Sources, change: LoaderArguments) -> list[LoaderFacts]:
    """The loaders that get the arguments. Raises :class:`NotPossible` without one."""
    if not change.evaluation:
        facts = [it for it in sources.facts.training_loaders if not it.iterable]
        if not facts:
            raise NotPossible("No training loader over a map-style data set was seen.")
        return facts
    facts = [it for it in sources.facts.loaders if it.evaluates and not it.trains and not it.iterable]
    if not facts:
        raise NotPossible("No loader over a map-style data set was seen that is only read for evaluation.")
    if {it.site for it in facts} & {it.site for it in sources.facts.loaders if it.trains}:
        raise NotPossible("One line makes loaders for training and for evaluation.")
    return facts


def _others(code: Code, sites: list[CallSite]) -> list[ast.Call]:
    """The file's calls that made other loaders than those at these sites."""
    concerned = [code.call_at(it) for it in sites]
    made = [it for it in code.of(ast.Call) if last_part(it.func).endswith("DataLoader")]
    return [it for it in made if it not in concerned]


def _present(loader: LoaderFacts, name: str) -> Value | None:
    """The loader's arguments, including defaults."""
    match name:
        case "batch_size":
            return loader.batch_size
        case "num_workers":
            return loader.workers
        case "pin_memory":
            return loader.pin_memory
        case "persistent_workers":
            return loader.persistent_workers
        case "prefetch_factor":
            return loader.prefetch_factor or (_USUAL_PREFETCH if loader.workers else None)
    return None


def _check_callee(code: Code, call: ast.Call) -> None:
    """Raise :class:`NotPossible` for a callable that may not accept DataLoader's arguments."""
    name = last_part(call.func)
    for _ in range(3):
        if name == "DataLoader" or name in _aliases(code):
            return
        classes = [it for it in code.of(ast.ClassDef) if it.name == name]
        own = [it for it in classes for part in it.body if getattr(part, "name", "") == "__init__"]
        if len(classes) != 1 or own or len(classes[0].bases) != 1:
            break
        name = last_part(classes[0].bases[0])
    if name == "__init__" and isinstance(call.func, ast.Attribute) and "super" in code.text(call.func.value):
        return
    raise NotPossible(f"The loader is made by {code.text(call.func)}, which may not take DataLoader's arguments.")


def _aliases(code: Code) -> set[str]:
    return {
        alias.asname
        for it in code.of(ast.ImportFrom)
        for alias in it.names
        if alias.name == "DataLoader" and alias.asname
    }
