"""Mixed precision goes by the names of torch.cuda.amp or torch.cpu.amp, which are deprecated.

## What it does
Finds calls of `autocast` and `GradScaler`, and the decorators `custom_fwd` and `custom_bwd`, by the names of
`torch.cuda.amp` and `torch.cpu.amp`, however they were imported. It is silent where a file chooses between the old and
the new names by itself, for old versions of torch.

## Why it is wrong
Since torch 2.4 each of these calls warns, and one day they will be gone. The names in `torch.amp` take the device as
their first argument and serve every accelerator.

## Example
    from torch.cuda.amp import GradScaler, autocast

    scaler = GradScaler()
    with autocast(dtype=torch.bfloat16):
        loss = model(batch)

## Use instead
    from torch.amp import GradScaler, autocast

    scaler = GradScaler("cuda")
    with autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)

## Fix safety
Safe: the old names call the new ones with just these arguments. The import is changed where everything that it
brought is fixed; else the new name is reached by another import, and the old one stays. `torch.amp.GradScaler`
needs torch 2.3. There is no fix where the file asks whether something is an old `GradScaler`.

## References
- https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from hotlap.source.edits.kinds import Change, Code, Edit, ReplaceExpression, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL601"
title = "Mixed precision goes by the names of torch.cuda.amp or torch.cpu.amp, which are deprecated"
fix_safety: FixSafety = "safe"

_DEVICES = {"torch.cuda.amp.": "cuda", "torch.cpu.amp.": "cpu"}
_MODULES = frozenset(it.rstrip(".") for it in _DEVICES)
_NAMES = frozenset({"autocast", "GradScaler", "custom_fwd", "custom_bwd"})
# Such as TORCH_2_4, TORCH_GE_2_4, torch_version.
_VERSION = re.compile(r"version|torch_?(g|\d)", re.IGNORECASE)
# The parameters of autocast, as they could be given by position and as they can now, behind the device.
_OLD_ORDER = ("enabled", "dtype", "cache_enabled")
_NEW_ORDER = ("dtype", "enabled", "cache_enabled")


def check(context: Context) -> Iterator[Violation]:
    """Each use of an old name; all that came by one import is fixed together."""
    uses = [it for it in _uses(context) if not _chosen_by_version(context, it)]
    for use in uses:
        found = _old(context, _function(use))
        assert found is not None
        device, name = found
        yield Violation(
            use,
            f"`torch.{device}.amp.{name}` is deprecated; use `torch.amp.{name}` with the device `{device}`.",
            edits=_edits(context, use, uses) if name != "GradScaler" or not _tests_for_class(context) else (),
        )


def _uses(context: Context) -> Iterator[ast.expr]:
    """The calls of old names, and the decorators that are no calls."""
    for call in context.tree.of(ast.Call):
        if _old(context, call.func) is not None:
            yield call
    for definition in context.tree.of(ast.FunctionDef):
        for decorator in definition.decorator_list:
            found = _old(context, decorator)
            if found is not None and found[1].startswith("custom"):
                yield decorator


def _function(use: ast.expr) -> ast.expr:
    return use.func if isinstance(use, ast.Call) else use


def _old(context: Context, function: ast.expr) -> tuple[str, str] | None:
    """The device and the last name, for one of the old names."""
    name = context.qualified_name(function) or ""
    for module, device in _DEVICES.items():
        last = name.removeprefix(module)
        if last != name and last in _NAMES:
            return device, last
    return None


def _chosen_by_version(context: Context, use: ast.expr) -> bool:
    """Whether the file first checks which names torch has: ``if hasattr(torch.amp, "GradScaler") ... else``,
    ``except``."""
    for above in context.tree.ancestors(use):
        if isinstance(above, ast.ExceptHandler):
            return True
        if isinstance(above, (ast.If, ast.IfExp)):
            for it in ast.walk(above.test):
                word = it.id if isinstance(it, ast.Name) else it.attr if isinstance(it, ast.Attribute) else ""
                if word == "hasattr" or _VERSION.search(word):
                    return True
    return False


def _tests_for_class(context: Context) -> bool:
    """Whether the file checks for an old GradScaler, which no new one is."""
    for call in context.calls("builtins.isinstance", "builtins.issubclass"):
        for it in ast.walk(call):
            if isinstance(it, (ast.Name, ast.Attribute)) and (_old(context, it) or ("", ""))[1] == "GradScaler":
                return True
    return False


# -- the fix ------------------------------------------------------------------------------------------


def _edits(context: Context, use: ast.expr, uses: Sequence[ast.expr]) -> Change:
    """All that came by one import together, with the import; a single use by another import otherwise."""
    statement = _import(context, use)
    if statement is not None:
        together = [it for it in uses if _import(context, it) is statement]
        path = _new_path(context, statement, together)
        if path is not None:
            parts = [_use_edits(context, it, by_import=True) for it in together]
            return (path, *(edit for part in parts for edit in part)) if all(parts) else ()
    return tuple(_use_edits(context, use, by_import=False))


def _use_edits(context: Context, use: ast.expr, by_import: bool) -> list[Edit]:
    """The new function, and the device before the other arguments; none if they must stay unchanged.

    ``by_import`` means that the import gives the function's name its new meaning, so that its text stays.
    """
    function = _function(use)
    found = _old(context, function)
    assert found is not None
    device, name = found
    text = context.tree.source(function, limit=200) if by_import else f"torch.amp.{name}"
    needs = () if by_import else (f"torch.amp.{name}",)
    if not isinstance(use, ast.Call):
        return [ReplaceExpression(Span.of(use), Code(f'{text}(device_type="{device}")', needs))]
    if use.args or use.lineno == use.end_lineno:
        arguments = _arguments(context, use, name)
        if arguments is None:
            return []
        first = f'device_type="{device}"' if name.startswith("custom") else f'"{device}"'
        return [ReplaceExpression(Span.of(use), Code(f"{text}({', '.join([first, *arguments])})", needs))]
    parameter = "device" if name == "GradScaler" else "device_type"
    edits: list[Edit] = [SetKeyword(Span.of(use), parameter, Code(f'"{device}"'))]
    return edits if by_import else [*edits, ReplaceExpression(Span.of(function), Code(text, needs))]


def _arguments(context: Context, call: ast.Call, name: str) -> list[str] | None:
    """The arguments but the device: those by position as keywords, since their order is another one now."""
    if call.lineno != call.end_lineno or any(isinstance(it, ast.Starred) for it in call.args):
        return None
    texts = [context.tree.source(it, limit=10_000) for it in call.args]
    keywords = [f"{it.arg}=" if it.arg else "**" for it in call.keywords]
    named = [key + context.tree.source(it.value, limit=10_000) for key, it in zip(keywords, call.keywords, strict=True)]
    if name == "GradScaler":
        return [*texts, *named]
    if name.startswith("custom"):
        return named if not texts else None
    if len(texts) > len(_OLD_ORDER):
        return None
    given = dict(zip(_OLD_ORDER, texts, strict=False))
    return [*(f"{it}={given[it]}" for it in _NEW_ORDER if it in given), *named]


def _import(context: Context, use: ast.expr) -> ast.Import | ast.ImportFrom | None:
    """The import of the old name, or of the module ``amp``; None for ``import torch`` and assigned names."""
    function = _function(use)
    while isinstance(function, ast.Attribute):
        function = function.value
    bindings = context.bindings(function) if isinstance(function, ast.Name) else ()
    if len(bindings) != 1 or bindings[0].how != "import" or bindings[0].path == "torch":
        return None
    statement = context.tree.parent(bindings[0].node)
    return statement if isinstance(statement, (ast.Import, ast.ImportFrom)) else None


def _new_path(context: Context, statement: ast.Import | ast.ImportFrom, uses: Sequence[ast.expr]) -> Edit | None:
    """The edit of the import's module; None where the import brings anything that is not fixed."""
    if not _all_uses(context, statement, uses):
        return None
    lines = context.tree.text.splitlines()
    match statement:
        case ast.Import(names=[ast.alias(name=module, asname=str()) as alias]) if module in _MODULES:
            return ReplaceExpression(_span(alias.lineno, alias.col_offset, module), Code("torch.amp"))
        case ast.ImportFrom(module=str() as module, names=names, level=0):
            start = lines[statement.lineno - 1].encode()[statement.col_offset :].decode(errors="replace")
            at = _span(statement.lineno, statement.col_offset + len("from "), module)
            brought = {it.name for it in names}
            if start.startswith(f"from {module} import") and module in _MODULES and brought <= _NAMES:
                return ReplaceExpression(at, Code("torch.amp"))
            if start.startswith(f"from {module} import") and f"{module}.amp" in _MODULES and brought == {"amp"}:
                return ReplaceExpression(at, Code("torch"))
    return None


def _all_uses(context: Context, statement: ast.Import | ast.ImportFrom, uses: Sequence[ast.expr]) -> bool:
    """Whether these are all uses of all that an import brings, as far as the file shows."""
    functions = {_function(it) for it in uses}
    brought = [it for it in context.names.all_bindings() if it.how == "import" and it.node in statement.names]
    if any(it.value in {bound.name for bound in brought} for it in context.tree.of(ast.Constant)):
        return False  # named in __all__, or looked up by name
    for name in context.tree.of(ast.Name):
        if not any(it in brought for it in context.bindings(name)):
            continue
        root: ast.AST | None = name
        while isinstance(root, ast.expr) and root not in functions:
            above = context.tree.parent(root)
            root = above if isinstance(above, ast.Attribute) else None
        if root is None:
            return False
    return True


def _span(line: int, column: int, text: str) -> Span:
    return Span(line, column, line, column + len(text.encode()))


bad = {
    "attributes of torch": """
        import torch

        scaler = torch.cuda.amp.GradScaler()
        with torch.cuda.amp.autocast():
            loss = model(batch)
        """,
    "imported by name": """
        from torch.cuda.amp import GradScaler, autocast

        scaler = GradScaler(init_scale=1024.0, enabled=True)
        for batch in loader:
            with autocast():
                loss = model(batch)
        """,
    "the module amp": """
        import torch
        from torch.cuda import amp

        use_amp = True
        scaler = amp.GradScaler(enabled=use_amp)
        with amp.autocast(use_amp):
            loss = model(batch)
        """,
    "aliases": """
        import torch as th
        import torch.cuda.amp as mixed
        from torch.cuda.amp import autocast as cast

        scaler = mixed.GradScaler(512.0, growth_interval=100)
        with cast(True, th.bfloat16):
            with th.cuda.amp.autocast(enabled=False):
                loss = model(batch)
        """,
    "the processor": """
        import torch

        with torch.cpu.amp.autocast(dtype=torch.bfloat16):
            loss = model(batch)
        """,
    "decorators": """
        import torch
        from torch.cuda.amp import autocast, custom_bwd, custom_fwd

        class Exact(torch.autograd.Function):
            @staticmethod
            @custom_fwd(cast_inputs=torch.float32)
            def forward(ctx, x):
                return x.exp()

            @staticmethod
            @custom_bwd
            def backward(ctx, gradient):
                return gradient

        class Net(torch.nn.Module):
            @autocast(enabled=False)
            def forward(self, x):
                return x
        """,
    "over several lines": """
        import torch
        from torch.cuda.amp import GradScaler

        scaler = GradScaler(
            init_scale=1024.0,  # larger ones overflow at once
            enabled=True,
        )
        with torch.cuda.amp.autocast(
            enabled=True,
        ):
            loss = model(batch)
        """,
    "only a part of what was imported": """
        from torch.cuda import Event, amp

        with amp.autocast():
            loss = model(batch)
        """,
    "the class itself is used as well": """
        import torch
        from torch.cuda.amp import GradScaler

        scaler = GradScaler()
        assert isinstance(scaler, GradScaler)
        """,
}
fixed = {
    "attributes of torch": """
        import torch

        scaler = torch.amp.GradScaler("cuda")
        with torch.amp.autocast("cuda"):
            loss = model(batch)
        """,
    "imported by name": """
        from torch.amp import GradScaler, autocast

        scaler = GradScaler("cuda", init_scale=1024.0, enabled=True)
        for batch in loader:
            with autocast("cuda"):
                loss = model(batch)
        """,
    "the module amp": """
        import torch
        from torch import amp

        use_amp = True
        scaler = amp.GradScaler("cuda", enabled=use_amp)
        with amp.autocast("cuda", enabled=use_amp):
            loss = model(batch)
        """,
    "aliases": """
        import torch as th
        import torch.amp as mixed
        from torch.amp import autocast as cast

        scaler = mixed.GradScaler("cuda", 512.0, growth_interval=100)
        with cast("cuda", dtype=th.bfloat16, enabled=True):
            with th.amp.autocast("cuda", enabled=False):
                loss = model(batch)
        """,
    "the processor": """
        import torch

        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch)
        """,
    "decorators": """
        import torch
        from torch.amp import autocast, custom_bwd, custom_fwd

        class Exact(torch.autograd.Function):
            @staticmethod
            @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                return x.exp()

            @staticmethod
            @custom_bwd(device_type="cuda")
            def backward(ctx, gradient):
                return gradient

        class Net(torch.nn.Module):
            @autocast("cuda", enabled=False)
            def forward(self, x):
                return x
        """,
    "over several lines": """
        import torch
        from torch.amp import GradScaler

        scaler = GradScaler(
            init_scale=1024.0,  # larger ones overflow at once
            enabled=True,
            device="cuda",
        )
        with torch.amp.autocast(
            enabled=True,
            device_type="cuda",
        ):
            loss = model(batch)
        """,
    "only a part of what was imported": """
        import torch
        from torch.cuda import Event, amp

        with torch.amp.autocast("cuda"):
            loss = model(batch)
        """,
}
good = {
    "where a flag says that torch has no newer one": """
        import torch
        from project import TORCH_2_4

        scaler = torch.amp.GradScaler("cuda") if TORCH_2_4 else torch.cuda.amp.GradScaler()
        """,
    "the new names": """
        import torch
        from torch.amp import GradScaler

        scaler = GradScaler("cuda")
        with torch.autocast("cuda"), torch.amp.autocast("cuda", enabled=False):
            loss = model(batch)
        """,
    "chosen by what torch has": """
        import torch

        if hasattr(torch.amp, "GradScaler"):
            scaler = torch.amp.GradScaler("cuda")
        else:
            scaler = torch.cuda.amp.GradScaler()
        """,
    "imported for old versions": """
        try:
            from torch.amp import GradScaler
        except ImportError:
            from torch.cuda.amp import GradScaler

        scaler = GradScaler()
        """,
    "another package's amp": """
        import torch
        from apex import amp

        with amp.autocast():
            loss = model(batch)
        """,
    "the file's own autocast": """
        import torch

        def autocast():
            return torch.autocast("cuda")

        with autocast():
            loss = model(batch)
        """,
}
