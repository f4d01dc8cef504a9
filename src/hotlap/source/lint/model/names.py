"""Resolve names: where each was bound, which bindings reach a use, and the full dotted name of an expression."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from hotlap.source.lint.model.tree import COMPREHENSIONS, FUNCTIONS, Block, Function, Scope, Tree

How: TypeAlias = Literal[
    "import", "assign", "unpack", "augmented", "loop", "with", "parameter", "function", "class", "deleted", "other"
]
_BUILTINS = frozenset(dir(builtins))
_DEEPEST = 20
"""The largest number of assignments from name to name that are followed."""

# Names by the modules in which torch defines them: the public names that rules use.
_CANONICAL: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), to)
    for pattern, to in (
        (r"^torch\.amp(?:\.autocast_mode)?\.autocast$", "torch.autocast"),
        (r"^torch\.cuda\.amp\.autocast_mode\.", "torch.cuda.amp."),
        (r"^torch\.cuda\.amp\.grad_scaler\.", "torch.cuda.amp."),
        (r"^torch\.amp\.grad_scaler\.", "torch.amp."),
        (r"^torch\.GradScaler$", "torch.amp.GradScaler"),
        (r"^torch\.utils\.data\.(?:dataloader|dataset|sampler|distributed)\.", "torch.utils.data."),
        (r"^torch\.nn\.modules\.[a-z_]+\.", "torch.nn."),
        (r"^torch\.nn\.parallel\.(?:distributed|data_parallel)\.", "torch.nn.parallel."),
        (r"^torch\.nn\.parallel\.DataParallel$", "torch.nn.DataParallel"),
        (r"^torch\.optim\.(?!lr_scheduler\.|swa_utils\.)[a-z_]+\.(?=[A-Z])", "torch.optim."),
        (r"^torch\.distributed\.fsdp\.fully_sharded_data_parallel\.", "torch.distributed.fsdp."),
        (r"^torch\.autograd\.(?:anomaly_mode|grad_mode)\.", "torch.autograd."),
        (r"^torch\.autograd\.(no_grad|enable_grad|inference_mode|set_grad_enabled)$", r"torch.\1"),
        (r"^torch\.functional\.", "torch."),
        (r"^torch\.tensor\.Tensor$|^torch\._tensor\.Tensor$", "torch.Tensor"),
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place where a name is given a value.

    ``value`` is the expression it comes from: the assigned one, that of a loop, or that of a ``with``.
    ``index`` is the path into it if a tuple was unpacked: ``for i, (x, y) in it`` binds y at (1, 1).
    ``path`` is the full name of an import.
    """

    name: str
    how: How
    node: ast.AST
    value: ast.expr | None = None
    index: tuple[int, ...] = ()
    path: str = ""


Links: TypeAlias = Callable[[ast.Module, str], tuple[ast.Module, str] | None]
"""The project's module that a full name begins with, as one of its modules imports it, and the rest of the name."""


class Names:
    """Scopes and bindings of one file; joined with others, also what it imports from them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._bound: dict[Scope, dict[str, list[Binding]]] = {}
        self._weak: set[Binding] = set()
        """Bindings made from within another scope (``global``, ``nonlocal``), at an unknown time."""
        self._reaching: dict[ast.Name, tuple[Binding, ...]] = {}
        self._qualified: dict[ast.expr, frozenset[str]] = {}
        self.imported_roots: set[str] = set()
        self._links: Links | None = None
        self._others: tuple[Names, ...] = ()
        self._also_called: dict[str, set[str]] | None = None
        self._collect()

    def joined(self, tree: Tree, others: Sequence[Names], links: Links) -> Names:
        """These names together with those of other files, ``tree`` being all files joined."""
        names = copy(self)
        names._tree, names._links = tree, links
        names._bound = {**self._bound}
        names._weak, names.imported_roots = set(self._weak), set(self.imported_roots)
        names._reaching, names._qualified = {}, {}
        names._others = (self, *others)
        for it in others:
            names._bound.update(it._bound)
            names._weak |= it._weak
            names.imported_roots |= it.imported_roots
        return names

    # -- bindings ---------------------------------------------------------------------------------

    def bindings_in(self, scope: Scope, name: str) -> Sequence[Binding]:
        """All bindings of a name in one scope, in source order."""
        return self._bound.get(scope, {}).get(name, ())

    def all_bindings(self) -> Iterator[Binding]:
        """Every binding of the file."""
        for names in self._bound.values():
            for found in names.values():
                yield from found

    def also_called(self, name: str) -> set[str]:
        """Aliases by an import or a plain assignment: ``as``, ``run = step``."""
        if self._others:
            return set().union(*(it.also_called(name) for it in self._others))
        if self._also_called is None:
            self._also_called = {}
            for it in self.all_bindings():
                to = it.path.rpartition(".")[2] if it.how == "import" else ""
                if it.how == "assign" and isinstance(it.value, ast.Name):
                    to = it.value.id
                if to and to != it.name:
                    self._also_called.setdefault(to, set()).add(it.name)
        return self._also_called.get(name, set())

    def reaching(self, use: ast.Name) -> tuple[Binding, ...]:
        """The bindings that the name may have when it is read here; empty for a name that is bound nowhere.

        A binding hides earlier ones if its block also contains the use. In a function that reads
        a name of a scope around it, that scope counts as run to its end.
        """
        found = self._reaching.get(use)
        if found is None:
            found = self._reaching[use] = tuple(self._reaching_at(use))
        return found

    def home(self, use: ast.Name) -> Scope | None:
        """The scope that the name belongs to."""
        scope = self._tree.scope(use)
        first = True
        while True:
            if (first or not isinstance(scope, ast.ClassDef)) and use.id in self._bound.get(scope, ()):
                return scope
            if isinstance(scope, ast.Module):
                return None
            scope, first = self._tree.scope(scope), False

    def definition(self, use: ast.expr) -> ast.ClassDef | Function | None:
        """The one function or class that a name refers to, of this file or of those that it is joined with."""
        for _ in range(_DEEPEST):
            if isinstance(use, ast.Name):
                bindings = self.reaching(use)
                binding = bindings[0] if len(bindings) == 1 else None
            else:
                binding = None
            if self._links is not None and (binding is None or binding.how == "import"):
                binding = self.linked(use)
            if binding is None:
                return None
            if isinstance(binding.node, (ast.ClassDef, *FUNCTIONS)):
                return binding.node
            if binding.how != "assign" or not isinstance(binding.value, ast.Name):
                return None
            use = binding.value
        return None

    def value(self, expression: ast.expr | None) -> ast.expr | None:
        """The expression that a name was assigned, where there is only one; anything else unchanged."""
        for _ in range(_DEEPEST):
            if not isinstance(expression, ast.Name):
                break
            bindings = self.reaching(expression)
            if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].value is None:
                break
            expression = bindings[0].value
        return expression

    def linked(self, use: ast.expr) -> Binding | None:
        """The one binding in another file of the project that an imported name, or ``module.name``, refers to."""
        if self._links is None:
            return None
        rest: list[str] = []
        root = use
        while isinstance(root, ast.Attribute):
            rest.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return None
        bindings = self.reaching(root)
        if len(bindings) != 1 or bindings[0].how != "import":
            return None
        path = ".".join((bindings[0].path, *reversed(rest)))
        return self._in_other(self._tree.module_of(root), path, _DEEPEST)

    def imported(self, binding: Binding) -> Binding | None:
        """The one binding in another file of the project that an import brings."""
        if self._links is None:
            return None
        return self._in_other(self._tree.module_of(binding.node), binding.path, _DEEPEST)

    def _in_other(self, module: ast.Module, path: str, depth: int) -> Binding | None:
        assert self._links is not None
        found = self._links(module, path)
        if found is None or depth == 0:
            return None
        there, name = found
        bindings = self._bound.get(there, {}).get(name, ())
        if len(bindings) != 1:
            return None
        return self._in_other(there, bindings[0].path, depth - 1) if bindings[0].how == "import" else bindings[0]

    def _reaching_at(self, use: ast.Name) -> Iterator[Binding]:
        home = self.home(use)
        if home is None:
            return
        bindings = self._bound[home][use.id]
        if len(bindings) == 1:
            yield bindings[0]
            return
        local = self._executes_in(use, home)
        around: set[Block] = set(self._tree.blocks(use)) if local else {(home, "body")}
        position = _position(use)
        statement = self._tree.statement(use)
        hiding: Binding | None = None
        later: list[Binding] = []
        for binding in reversed(bindings):
            if local and self._comes_after(binding, position, statement):
                later.append(binding)
                continue
            yield binding
            if binding not in self._weak and self._hides(binding, around):
                hiding = binding
                break
        # A later binding is read in the next pass of a loop around both, unless each pass binds the name again.
        loops = list(self._tree.loops(use)) if local and later else []
        if hiding is not None:
            loops = [it for it in loops if not self._tree.within(hiding.node, it)]
        yield from (it for it in later if any(self._tree.within(it.node, loop) for loop in loops))

    def _executes_in(self, use: ast.Name, home: Scope) -> bool:
        scope = self._tree.scope(use)
        while scope is not home and isinstance(scope, COMPREHENSIONS):
            scope = self._tree.scope(scope)
        return scope is home

    def _comes_after(self, binding: Binding, position: tuple[int, int], statement: ast.stmt) -> bool:
        """Whether a binding takes place after the use; one by the use's own statement does, ``x = f(x)``."""
        if binding.how == "parameter":
            return False
        if binding.how in ("assign", "unpack", "augmented") and self._tree.statement(binding.node) is statement:
            return not isinstance(self._tree.parent(binding.node), ast.NamedExpr)
        return _position(binding.node) > position

    def _hides(self, binding: Binding, around: set[Block]) -> bool:
        if binding.how == "parameter":
            return True
        node = binding.node
        if isinstance(node, (ast.arg, ast.ExceptHandler)):
            return False
        statement = node if isinstance(node, ast.stmt) else self._tree.statement(node)
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            # The target is bound in every pass, so it hides earlier bindings within the body.
            return (statement, "body") in around
        return self._tree.block(statement) in around

    # -- full names -------------------------------------------------------------------------------

    def qualified_name(self, expression: ast.expr | None) -> str | None:
        """``torch.nn.functional.relu`` for ``F.relu``; None where it is not known, or not only one thing."""
        names = self.qualified_names(expression)
        return next(iter(names)) if len(names) == 1 else None

    def qualified_names(self, expression: ast.expr | None) -> frozenset[str]:
        """All full names that an expression may have; empty unless all are known."""
        return self._names_of(expression, _DEEPEST)

    def _names_of(self, expression: ast.expr | None, depth: int) -> frozenset[str]:
        if not isinstance(expression, (ast.Name, ast.Attribute)) or depth == 0:
            return frozenset()
        found = self._qualified.get(expression)
        if found is None:
            if isinstance(expression, ast.Attribute):
                base = self._names_of(expression.value, depth - 1)
                found = frozenset(canonical(f"{it}.{expression.attr}") for it in base)
            else:
                found = self._names_of_name(expression, depth)
            self._qualified[expression] = found
        return found

    def _names_of_name(self, use: ast.Name, depth: int) -> frozenset[str]:
        bindings = self.reaching(use)
        if not bindings:
            known = self.home(use) is None and use.id in _BUILTINS
            return frozenset({f"builtins.{use.id}"}) if known else frozenset()
        found: set[str] = set()
        for binding in bindings:
            if binding.how == "import":
                found.add(canonical(binding.path))
                continue
            names = self._names_of(binding.value, depth - 1) if binding.how == "assign" else frozenset()
            if not names:
                return frozenset()
            found |= names
        return frozenset(found)

    # -- collecting -------------------------------------------------------------------------------

    def _collect(self) -> None:
        tree = self._tree
        declared: dict[Scope, dict[str, Scope]] = {}
        statements: list[ast.Global | ast.Nonlocal] = [*tree.of(ast.Global), *tree.of(ast.Nonlocal)]
        for statement in statements:
            scope = tree.scope(statement)
            outer: Scope = tree.module if isinstance(statement, ast.Global) else tree.scope(scope)
            declared.setdefault(scope, {}).update(dict.fromkeys(statement.names, outer))
        for binding, scope in self._found():
            elsewhere = declared.get(scope, {}).get(binding.name)
            if elsewhere is not None:
                self._weak.add(binding)
                scope = elsewhere
            self._bound.setdefault(scope, {}).setdefault(binding.name, []).append(binding)
        for names in self._bound.values():
            for bindings in names.values():
                if len(bindings) > 1:
                    bindings.sort(key=lambda it: _position(it.node))

    def _found(self) -> Iterator[tuple[Binding, Scope]]:
        tree = self._tree
        for name in tree.of(ast.Name):
            if not isinstance(name.ctx, ast.Load):
                scope = tree.scope(name)
                if isinstance(tree.parent(name), ast.NamedExpr):
                    while isinstance(scope, COMPREHENSIONS):
                        scope = tree.scope(scope)
                yield self._of_target(name), scope
        functions: list[Function] = [*tree.of(ast.FunctionDef), *tree.of(ast.AsyncFunctionDef)]
        for definition in functions:
            yield Binding(definition.name, "function", definition), tree.scope(definition)
        for it in tree.of(ast.ClassDef):
            yield Binding(it.name, "class", it), tree.scope(it)
        for argument in tree.of(ast.arg):
            yield Binding(argument.arg, "parameter", argument), tree.scope(argument)
        for handler in tree.of(ast.ExceptHandler):
            if handler.name:
                yield Binding(handler.name, "other", handler), tree.scope(handler)
        patterns: list[ast.MatchAs | ast.MatchStar] = [*tree.of(ast.MatchAs), *tree.of(ast.MatchStar)]
        for pattern in patterns:
            if pattern.name:
                yield Binding(pattern.name, "other", pattern), tree.scope(pattern)
        yield from self._imports()

    def _imports(self) -> Iterator[tuple[Binding, Scope]]:
        for statement in self._tree.of(ast.Import):
            for alias in statement.names:
                root = alias.name.partition(".")[0]
                self.imported_roots.add(root)
                path = alias.name if alias.asname else root
                yield Binding(alias.asname or root, "import", alias, path=path), self._tree.scope(statement)
        for origin in self._tree.of(ast.ImportFrom):
            module = "." * origin.level + (origin.module or "")
            if not origin.level:
                self.imported_roots.add(module.partition(".")[0])
            for alias in origin.names:
                if alias.name != "*":
                    path = f"{module}{'' if module.endswith('.') else '.'}{alias.name}"
                    yield Binding(alias.asname or alias.name, "import", alias, path=path), self._tree.scope(origin)

    def _of_target(self, name: ast.Name) -> Binding:
        """The binding that a name in a storing position makes."""
        if isinstance(name.ctx, ast.Del):
            return Binding(name.id, "deleted", name)
        index: tuple[int, ...] = ()
        node: ast.AST = name
        above = self._tree.parent(node)
        starred = False
        while isinstance(above, (ast.Tuple, ast.List, ast.Starred)):
            if isinstance(above, ast.Starred):
                starred = True
            else:
                index = (next(i for i, it in enumerate(above.elts) if it is node), *index)
            node, above = above, self._tree.parent(above)
        if starred:
            return Binding(name.id, "other", name)
        match above:
            case ast.Assign(value=value):
                return _taken_apart(name, value, index)
            case ast.AnnAssign(value=value) | ast.NamedExpr(value=value):
                return Binding(name.id, "assign" if value is not None else "other", name, value)
            case ast.AugAssign(value=value):
                return Binding(name.id, "augmented", name, value)
            case ast.For(iter=over) | ast.AsyncFor(iter=over) | ast.comprehension(iter=over):
                return Binding(name.id, "loop", name, over, index)
            case ast.withitem(context_expr=entered):
                return Binding(name.id, "with", name, entered, index)
        return Binding(name.id, "other", name)


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The canonical name of an object that can be imported under several."""
    if name.startswith("torch."):
        for pattern, to in _CANONICAL:
            name = pattern.sub(to, name)
    return name


def _taken_apart(name: ast.Name, value: ast.expr, index: tuple[int, ...]) -> Binding:
    """``a, b = 1, 2`` binds b to 2; ``a, b = f()`` binds it to index 1 of the call."""
    while index and isinstance(value, (ast.Tuple, ast.List)):
        if index[0] >= len(value.elts) or any(isinstance(it, ast.Starred) for it in value.elts):
            break
        value, index = value.elts[index[0]], index[1:]
    return Binding(name.id, "unpack" if index else "assign", name, value, index)


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
