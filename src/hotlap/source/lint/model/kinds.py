"""The kind of an expression's value: a loader, a module, an optimizer, a tensor, a loss ... or unknown.

Kinds follow from a name's last binding, annotations, the calls of a function within the file, and use: a value that
``.backward()`` is called on is a loss. A name such as "optimizer" is no evidence. A name that branches bind to
different kinds is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeAlias

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.names import Binding, Names
from hotlap.source.lint.model.tree import FUNCTIONS, Scope, Tree

Kind: TypeAlias = Literal[
    "tensor",  # a tensor that is not known to be a loss
    "loss",  # a tensor that backward is called on, or that a loss function returned
    "tensors",  # a tuple or list of tensors
    "output",  # the output of a module: a tensor, a tuple, a record
    "batch",  # a loader's batch, or a part of it
    "module",
    "criterion",  # a module that returns a loss
    "compiled",  # the result of torch.compile
    "optimizer",
    "scaler",
    "scheduler",
    "loader",
    "dataset",
    "accelerator",
    "fabric",
    "number",
    "text",
]
_DEEPEST = 25
_TENSORS: frozenset[Kind | None] = frozenset({"tensor", "loss"})
_MOST_STEPS_TO_BACKWARD = 4
_OF_MODULES = frozenset({"parameters", "named_parameters"})


class Kinds:
    """Kinds of expressions of one file, each computed once."""

    def __init__(self, tree: Tree, names: Names, calls: Calls) -> None:
        self._tree = tree
        self._names = names
        self._calls = calls
        self._kinds: dict[ast.expr, Kind | None] = {}
        self._of_bindings: dict[Binding, Kind | None] = {}
        self._backward: set[Binding] = set()
        self._find_losses()

    def kind(self, expression: ast.expr | None) -> Kind | None:
        """The kind of an expression; None where it is not known."""
        return self._kind(expression, _DEEPEST)

    def is_tensor(self, expression: ast.expr | None) -> bool:
        """Whether an expression is known to be one tensor."""
        return self.kind(expression) in _TENSORS

    # -- kinds ------------------------------------------------------------------------------------

    def _kind(self, node: ast.expr | None, depth: int) -> Kind | None:
        if node is None or depth == 0:
            return None
        if node not in self._kinds:
            self._kinds[node] = None  # a recursive query is unknown
            self._kinds[node] = self._find(node, depth - 1)
        return self._kinds[node]

    def _find(self, node: ast.expr, depth: int) -> Kind | None:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return "number"
            case ast.Constant(value=str()) | ast.JoinedStr():
                return "text"
            case ast.Name():
                return self._common([self._of_binding(it, depth) for it in self._names.reaching(node)])
            case ast.Attribute():
                return self._of_attribute(node, depth)
            case ast.Call():
                return self._of_call(node, depth)
            case ast.BinOp(left=left, right=right):
                return self._of_operands([self._kind(left, depth), self._kind(right, depth)])
            case ast.Compare(left=left, comparators=others):
                kinds = [self._kind(it, depth) for it in (left, *others)]
                plain = all(isinstance(it, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for it in node.ops)
                return "tensor" if not plain and any(it in _TENSORS for it in kinds) else None
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
                return self._kind(operand, depth)
            case ast.Subscript(value=value, slice=index):
                entry = self._of_entry(value, index, depth)
                if entry is not None:
                    return entry
                kind = self._kind(value, depth)
                return kind if kind == "tensors" and isinstance(index, ast.Slice) else _part_of(kind)
            case ast.IfExp(body=body, orelse=orelse):
                return self._common([self._kind(body, depth), self._kind(orelse, depth)])
            case ast.NamedExpr(value=value) | ast.Await(value=value) | ast.Starred(value=value):
                return self._kind(value, depth)
        return None

    @staticmethod
    def _of_operands(kinds: list[Kind | None]) -> Kind | None:
        if any(it in _TENSORS for it in kinds):
            return "loss" if "loss" in kinds else "tensor"
        return "number" if all(it == "number" for it in kinds) else None

    @staticmethod
    def _common(kinds: list[Kind | None]) -> Kind | None:
        distinct = set(kinds)
        if len(distinct) == 1:
            return distinct.pop()
        return "tensor" if distinct and distinct <= _TENSORS else None

    def _of_attribute(self, node: ast.Attribute, depth: int) -> Kind | None:
        if self._names.qualified_name(node) is not None:
            there = self._names.linked(node)
            return self._of_binding(there, depth) if there is not None else None
        if isinstance(node.value, ast.Name):
            values = self._calls.attribute_values(node)
            if values:
                return self._common([self._kind(it, depth) for it in values])
        base = self._kind(node.value, depth)
        if base in _TENSORS and node.attr in known.TENSOR_ATTRIBUTES:
            return "tensor"
        if base == "output":
            return "loss" if node.attr == "loss" else "tensor" if node.attr == "logits" else None
        if base == "batch":
            return "batch"
        return None

    def _of_call(self, call: ast.Call, depth: int) -> Kind | None:
        name = self._names.qualified_name(call.func)
        definition = self._names.definition(call.func)
        if name is not None and definition is None:
            return self._of_named_call(name, call, depth)
        if isinstance(definition, ast.ClassDef):
            return self._of_class(definition)
        if isinstance(definition, FUNCTIONS):
            return self._of_returns(definition, depth)
        if isinstance(call.func, ast.Attribute):
            method = self._of_method(call.func, call, depth)
            if method is not None:
                return method
        match self._kind(call.func, depth):
            case "criterion":
                return "loss"
            case "module" | "compiled":
                return "loss" if self._of_callee(call, depth) == "loss" else "output"
        found = self._of_callee(call, depth)
        return "output" if found is None and self._is_used_as_module(call.func) else found

    def _of_callee(self, call: ast.Call, depth: int) -> Kind | None:
        """The return value of the method that a call runs: ``self.train_step(batch)``."""
        callee = self._calls.callee(call)
        return self._of_returns(callee, depth) if callee is not None else None

    def _is_used_as_module(self, function: ast.expr) -> bool:
        """Whether the same scope, or the same attribute, uses the parameters of the called object."""
        match function:
            case ast.Name(id=name):
                return (self._names.home(function), name) in self._names_of_modules
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return name in self._attributes_of_modules
        return False

    @cached_property
    def _names_of_modules(self) -> frozenset[tuple[Scope | None, str]]:
        used = (it.value for _, it in self._calls.methods_everywhere(*_OF_MODULES))
        return frozenset((self._names.home(it), it.id) for it in used if isinstance(it, ast.Name))

    @cached_property
    def _attributes_of_modules(self) -> frozenset[str]:
        used = (it.value for _, it in self._calls.methods_everywhere(*_OF_MODULES))
        return frozenset(it.attr for it in used if isinstance(it, ast.Attribute))

    def _of_named_call(self, name: str, call: ast.Call, depth: int) -> Kind | None:
        if name.startswith("builtins."):
            return self._of_builtin(name.removeprefix("builtins."), call, depth)
        exact = _BY_NAME.get(name)
        if exact is not None:
            return exact
        module, _, last = name.rpartition(".")
        if module == "torch.nn.functional":
            return "loss" if last.endswith("_loss") or last in known.LOSS_FUNCTIONS else "tensor"
        if module == "torch.nn" and last[:1].isupper() and last not in known.NOT_MODULES:
            return "criterion" if last.endswith("Loss") else "module"
        if module == "torch.optim" and last[:1].isupper():
            return "optimizer"
        if module == "torch.optim.lr_scheduler" and last[:1].isupper():
            return "scheduler"
        if module.startswith("torchvision.models") and last[:1].islower():
            return "module"
        if module == "torch" and last == "compile":
            return "compiled"
        if module == "torch":
            return self._of_torch_function(last, call)
        if module in ("torch.linalg", "torch.special", "torch.fft", "torch.nn.utils") and last in known.OPERATIONS:
            return "tensor"
        if last == "from_pretrained" and ".AutoModel" in module:
            return "module"
        return None

    @staticmethod
    def _of_torch_function(last: str, call: ast.Call) -> Kind | None:
        if last in known.SEVERAL:
            return "tensors"
        if last in known.CREATORS or last in known.OPERATIONS:
            return "tensor"
        if last in known.PAIRS:
            reduces = len(call.args) > 1 or bool(call.keywords)
            whole = last in ("max", "min", "median") and not reduces
            return "tensor" if whole else None if last in ("max", "min") and len(call.args) > 1 else "tensors"
        return None

    def _of_builtin(self, name: str, call: ast.Call, depth: int) -> Kind | None:
        if name in ("len", "int", "float", "bool", "ord", "hash", "id"):
            return "number"
        if name in ("str", "repr", "format"):
            return "text"
        if name in ("sum", "abs", "round") and call.args and self._kind(call.args[0], depth) in _TENSORS:
            return "tensor"
        return None

    def _of_entry(self, holder: ast.expr, key: ast.expr, depth: int) -> Kind | None:
        """The value at a key of a dictionary, or an index of a tuple, that is a display or returned."""
        if not isinstance(key, ast.Constant) or not isinstance(key.value, (str, int)) or depth == 0:
            return None
        if key.value == "loss" and self._kind(holder, depth) == "output":
            return "loss"
        return self._common([self._kind(_under(it, key.value), depth - 1) for it in self._made(holder)])

    def _made(self, holder: ast.expr) -> Iterator[ast.expr | None]:
        """The displays that a value comes from: through a name, or returned by a function."""
        made = self._names.value(holder)
        if isinstance(made, (ast.Dict, ast.Tuple)):
            yield made
        elif isinstance(made, ast.Call):
            callee = self._calls.callee(made)
            for it in self._calls.returns(callee) if callee is not None else ():
                yield self._names.value(it)

    def _of_class(self, definition: ast.ClassDef) -> Kind | None:
        bases = self._calls.base_names(definition)
        if bases & known.MODULES:
            return "module"
        torch_bases = {it.rpartition(".") for it in bases}
        if any(module == "torch.nn" and last not in known.NOT_MODULES for module, _, last in torch_bases):
            return "module"
        if bases & known.DATASETS:
            return "dataset"
        if bases & known.LOADERS:
            return "loader"
        if any(module == "torch.optim" and last[:1].isupper() for module, _, last in torch_bases):
            return "optimizer"
        return None

    def _of_returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef, depth: int) -> Kind | None:
        returns = self._calls.returns(function)
        return self._common([self._kind(it, depth) for it in returns]) if returns else None

    def _of_method(self, function: ast.Attribute, call: ast.Call, depth: int) -> Kind | None:
        base = self._kind(function.value, depth)
        name = function.attr
        if base in _TENSORS:
            return self._of_tensor_method(base, name, call)
        if base in ("module", "compiled", "criterion"):
            if name in known.KEEPS_KIND:
                return base
            return "output" if name == "forward" else None
        if base in ("output", "batch") and name in known.TENSOR_METHODS:
            return "tensor"
        if base in ("output", "batch") and name in known.PAIRS:
            return "tensors" if call.args or call.keywords else "tensor"
        if base == "scaler" and name == "scale":
            return "loss"
        if base == "batch":
            return "batch" if name in ("items", "values", "get", "pop") else None
        if name in ("prepare", "setup", "setup_dataloaders") and base in ("accelerator", "fabric"):
            return self._kind(call.args[0], depth) if len(call.args) == 1 else None
        return None

    @staticmethod
    def _of_tensor_method(base: Kind | None, name: str, call: ast.Call) -> Kind | None:
        if name == "item":
            return "number"
        if name in known.HOST_VALUES:
            return None
        if name in known.SEVERAL:
            return "tensors"
        if name in known.PAIRS:
            return "tensors" if call.args or call.keywords else "tensor"
        # A loss stays one while it is scaled or averaged; detached it is a tensor like others.
        return base if name in ("mean", "sum", "to", "float", "cuda", "div", "mul") else "tensor"

    # -- bindings ---------------------------------------------------------------------------------

    def _of_binding(self, binding: Binding, depth: int) -> Kind | None:
        if binding not in self._of_bindings:
            self._of_bindings[binding] = None
            found = self._kind_bound(binding, depth)
            if binding in self._backward and found in (None, "output", "tensor"):
                found = "loss"
            self._of_bindings[binding] = found
        return self._of_bindings[binding]

    def _kind_bound(self, binding: Binding, depth: int) -> Kind | None:
        match binding.how:
            case "assign":
                return self._kind(binding.value, depth)
            case "unpack":
                return self._of_unpacked(binding, depth)
            case "augmented":
                return self._of_augmented(binding, depth)
            case "loop":
                return self._of_looped(binding, depth)
            case "parameter":
                return self._of_parameter(binding, depth)
            case "import" if isinstance(self._tree.parent(binding.node), ast.ImportFrom):
                there = self._names.imported(binding)
                return self._of_binding(there, depth) if there is not None else None
        return None

    def _of_unpacked(self, binding: Binding, depth: int) -> Kind | None:
        value = binding.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            # a, b = accelerator.prepare(a, b) preserves each one's kind.
            if value.func.attr == "prepare" and len(binding.index) == 1 and binding.index[0] < len(value.args):
                return self._kind(value.args[binding.index[0]], depth)
            if value.func.attr in known.PAIRS and self._kind(value.func.value, depth) in ("output", "tensor", "batch"):
                return "tensor"
            if self._names.qualified_name(value.func) in ("torch.max", "torch.min"):
                return "tensor"
        if isinstance(value, ast.Call) and len(binding.index) == 1:
            kind = self._common([self._kind(_under(it, binding.index[0]), depth) for it in self._made(value)])
            if kind is not None:
                return kind
        if isinstance(value, (ast.GeneratorExp, ast.ListComp)):
            return _part_of("tensors") if self._kind(value.elt, depth) in _TENSORS else self._kind(value.elt, depth)
        return _part_of(self._kind(value, depth))

    def _of_augmented(self, binding: Binding, depth: int) -> Kind | None:
        if not isinstance(binding.node, ast.Name):
            return None
        before = [it for it in self._names.reaching(binding.node) if it is not binding]
        kinds = [self._of_binding(it, depth) for it in before]
        return self._of_operands([*kinds, self._kind(binding.value, depth)])

    def _of_looped(self, binding: Binding, depth: int) -> Kind | None:
        over, index = binding.value, binding.index
        while isinstance(over, ast.Call) and over.args:
            name = self._names.qualified_name(over.func) or ""
            if name == "builtins.enumerate":
                if index[:1] == (0,):
                    return "number"
                over, index = over.args[0], index[1:]
            elif name == "builtins.zip":
                if not index or index[0] >= len(over.args):
                    return None
                over, index = over.args[index[0]], index[1:]
            elif name == "builtins.range":
                return "number"
            elif name.startswith("tqdm") or name in ("builtins.iter", "itertools.islice", "rich.progress.track"):
                over = over.args[0]
            else:
                break
        kind = self._kind(over, depth)
        if kind == "loader":
            return "batch"
        return _part_of(kind) if kind in ("tensor", "loss", "tensors", "batch") else None

    def _of_parameter(self, binding: Binding, depth: int) -> Kind | None:
        node = binding.node
        if not isinstance(node, ast.arg):
            return None
        annotated = self._of_annotation(node.annotation)
        if annotated is not None:
            return annotated
        given = self._calls.given_to(node)
        return self._common([self._kind(it, depth) for it in given]) if given else None

    def _of_annotation(self, annotation: ast.expr | None) -> Kind | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            last = annotation.value.rpartition(".")[2]
            return _BY_ANNOTATION.get(last)
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.right, ast.Constant):
            return self._of_annotation(annotation.left)
        definition = self._names.definition(annotation) if annotation is not None else None
        if isinstance(definition, ast.ClassDef):
            return self._of_class(definition)
        name = self._names.qualified_name(annotation)
        if name is None or not name.startswith(("torch.", "accelerate.", "lightning")):
            return None
        return _BY_NAME.get(name) or _BY_ANNOTATION.get(name.rpartition(".")[2])

    def reaches_backward(self, name: ast.Name) -> bool:
        """Whether backward is called on a name's value, or on a named value computed from it."""
        return any(it in self._leading_to_backward for it in self._names.reaching(name))

    def bound_for_backward(self, scope: Scope | None, name: str) -> bool:
        """The same for any value of a name of a scope."""
        return any(
            isinstance(it.node, ast.Name) and it.name == name and self._names.home(it.node) is scope
            for it in self._leading_to_backward
        )

    @cached_property
    def _leading_to_backward(self) -> frozenset[Binding]:
        found: set[Binding] = set()
        waiting: list[ast.AST] = list(self._calls.backward_receivers())
        for _ in range(_MOST_STEPS_TO_BACKWARD):
            names = [it for one in waiting for it in ast.walk(one) if isinstance(it, ast.Name)]
            new = {it for name in names for it in self._names.reaching(name)} - found
            found |= new
            waiting = [it.value for it in new if it.how in ("assign", "augmented", "unpack") and it.value is not None]
        return frozenset(found)

    def _find_losses(self) -> None:
        """Bindings that reach a ``.backward()``: they are losses, whatever their origin."""
        for receiver in self._calls.backward_receivers():
            node: ast.expr = receiver
            while isinstance(node, ast.BinOp):
                node = node.left
            if isinstance(node, ast.Name):
                self._backward.update(self._names.reaching(node))


def _under(made: ast.expr | None, key: str | int) -> ast.expr | None:
    """The expression under a key of a dictionary display, or at an index of a tuple."""
    if (
        isinstance(made, ast.Tuple)
        and isinstance(key, int)
        and not any(isinstance(it, ast.Starred) for it in made.elts)
    ):
        return made.elts[key] if -len(made.elts) <= key < len(made.elts) else None
    if isinstance(made, ast.Dict):
        pairs = zip(made.keys, made.values, strict=True)
        found = [value for it, value in pairs if isinstance(it, ast.Constant) and it.value == key]
        return found[-1] if found else None
    return None


def _part_of(kind: Kind | None) -> Kind | None:
    """The kind of its elements."""
    match kind:
        case "tensors" | "tensor" | "loss":
            return "tensor"
        case "batch":
            return "batch"
    return None


_BY_NAME: dict[str, Kind] = {
    **dict.fromkeys(known.LOADERS, "loader"),
    **dict.fromkeys(known.SCALERS, "scaler"),
    **dict.fromkeys(known.DATASETS, "dataset"),
    **dict.fromkeys(known.ACCELERATORS, "accelerator"),
    **dict.fromkeys(known.FABRICS, "fabric"),
    **dict.fromkeys(known.MODULE_WRAPPERS, "module"),
    "torch.nn.parameter.Parameter": "tensor",
    "torch.nn.Parameter": "tensor",
}
_BY_ANNOTATION: dict[str, Kind] = {
    "Tensor": "tensor",
    "FloatTensor": "tensor",
    "LongTensor": "tensor",
    "Module": "module",
    "Optimizer": "optimizer",
    "DataLoader": "loader",
    "GradScaler": "scaler",
    "Dataset": "dataset",
    "Accelerator": "accelerator",
    "LRScheduler": "scheduler",
}
