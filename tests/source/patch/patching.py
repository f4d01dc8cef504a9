"""Facts as a run would record them, derived from a source; and patches of it, one lever at a time.

A site is known by what is called: ``model(...)``, ``loss.backward()``, ``DataLoader(...)``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    CallSite,
    FileDigest,
    LoaderFacts,
    ModelFacts,
    OptimizerFacts,
    Patch,
    ScriptFacts,
    Setting,
    Value,
)
from hotlap.source.patch.code import digest_of
from hotlap.source.patch.make import make_patch

FACTS = ScriptFacts(device="cpu", torch_version="2.13.0")
_CALLED = {
    "loader": re.compile(r"(DataLoader|Loader|super\(\).__init__|make)$"),
    "optimizer": re.compile(r"(AdamW|Adam|SGD|Opt|cls)$"),
    "model": re.compile(r"(model|net|self\.net|generator|critic|fit)$"),
    "backward": re.compile(r"(\.backward|fit)$"),
    "step": re.compile(r"(\.step|fit)$"),
    "clip": re.compile(r"(clip_grad_norm_)$"),
}


def facts_of(path: Path, base: ScriptFacts = FACTS) -> ScriptFacts:
    """The sites of all roles in the file, by what is called; unless calls are steps, evaluation (below ``no_grad``) has
    none."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    sites: list[CallSite] = []
    calls = [it for it in ast.walk(tree) if isinstance(it, ast.Call)]
    for call in sorted(calls, key=lambda it: (it.lineno, it.col_offset)):
        for role, pattern in _CALLED.items():
            is_step = base.step_source == "call" or not _evaluates(call, parents)
            if pattern.search(ast.unparse(call.func)) and is_step:
                sites.append(_site(role, path, call, parents))
    return msgspec.structs.replace(
        base,
        loaders=base.loaders or tuple(_loader(it) for it in sites if it.role == "loader"),
        optimizers=base.optimizers or tuple(_optimizer(it) for it in sites if it.role == "optimizer"),
        models=base.models
        or tuple(ModelFacts(kind=it, parameters=1) for it in {s.what for s in sites if s.role == "model"}),
        clips_gradients=any(it.role == "clip" for it in sites),
        sites=tuple(it for it in sites if it.role not in ("loader", "optimizer")),
        files=(FileDigest(file=str(path), sha256=digest_of(path.read_bytes())),),
    )


def patched(
    tmp_path: Path, source: str, lever: str, base: ScriptFacts = FACTS, arguments: tuple[str, ...] = (), **values: Value
) -> str:
    """The new source. Fails where the lever is left out."""
    patch = patch_of(tmp_path, source, (make_setting(lever, **values),), base, arguments)
    assert not patch.left_out, patch.left_out[0].reason
    return after(patch, source)


def left_out(
    tmp_path: Path, source: str, lever: str, base: ScriptFacts = FACTS, arguments: tuple[str, ...] = (), **values: Value
) -> str:
    """Why the lever is left out. Fails where it is not, or where anything changed."""
    patch = patch_of(tmp_path, source, (make_setting(lever, **values),), base, arguments)
    assert not patch.files and not patch.written
    (left,) = patch.left_out
    return left.reason


def patch_of(
    tmp_path: Path,
    source: str,
    settings: tuple[Setting, ...],
    base: ScriptFacts = FACTS,
    arguments: tuple[str, ...] = (),
) -> Patch:
    """The patch of a script of that source."""
    path = tmp_path / "train.py"
    path.write_bytes(source.encode())
    facts = facts_of(path, base)
    changes = [(it, find(it.lever).rewrite(facts, it)) for it in settings]
    return make_patch(facts, changes, script=path, directory=tmp_path, arguments=arguments)


def after(patch: Patch, source: str) -> str:
    """The script's new source, which is the old one where nothing changed."""
    return patch.files[0].after if patch.files else source


def _evaluates(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.With) and "no_grad" in ast.unparse(node.items[0]):
            return True
    return False


def _site(role: str, path: Path, call: ast.Call, parents: dict[ast.AST, ast.AST]) -> CallSite:
    above: ast.AST = call
    while above in parents and not isinstance(above, ast.FunctionDef):
        above = parents[above]
    return CallSite(
        role=role,  # type: ignore[arg-type]
        file=str(path),
        line=call.lineno,
        function=above.name if isinstance(above, ast.FunctionDef) else "<module>",
        what=ast.unparse(call.func).rpartition(".")[2],
        column=call.col_offset,
        end_line=call.end_lineno,
        end_column=call.end_col_offset,
    )


def _loader(site: CallSite) -> LoaderFacts:
    return LoaderFacts(dataset="Images", batch_size=4, length=100, site=site)


def _model(what: str) -> ModelFacts:
    return ModelFacts(kind=what, parameters=1, convolutions=1, input_shapes=((4, 3, 8, 8),))


def _optimizer(site: CallSite) -> OptimizerFacts:
    kind = {"Opt": "AdamW", "cls": "AdamW"}.get(site.what, site.what)
    return OptimizerFacts(
        kind=kind, parameters=1, learning_rate=0.1, supports_fused=True, supports_foreach=True, site=site
    )
