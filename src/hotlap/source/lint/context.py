"""The input of a rule: one file's tree and everything known about it and the project around it.

Everything is computed once per file, on first use. The file is never imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.arguments import Argument, Arguments
from hotlap.source.lint.model.calls import Calls
from hotlap.source.lint.model.datasets import Datasets
from hotlap.source.lint.model.devices import Devices
from hotlap.source.lint.model.evaluation import Evaluation
from hotlap.source.lint.model.guards import Guards
from hotlap.source.lint.model.kinds import Kind, Kinds
from hotlap.source.lint.model.loaders import Loaders
from hotlap.source.lint.model.names import Binding, Links, Names
from hotlap.source.lint.model.origins import Origins
from hotlap.source.lint.model.places import Place, Places
from hotlap.source.lint.model.training import HotPlace, Training, TrainingLoop
from hotlap.source.lint.model.tree import Function, Loop, Tree
from hotlap.source.lint.model.updates import Updates

TRAINING_PACKAGES = frozenset(
    {"torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "lightning_fabric", "accelerate"}
)
"""Packages whose import makes rules check a file; files that import none of them have no violations."""
_ACCELERATOR_METHODS = ("cuda", "to", "xpu", "npu", "prepare", "setup")


class Context:
    """One file, as rules see it. Frequent queries have a method here.

    Rules that look across files are given a context that is joined with other files of the project: what is listed
    (``calls``, ``methods``, ``tree.of``) is of this file; names, kinds, callers and training loops are those of all.
    """

    def __init__(self, module: ast.Module, text: str) -> None:
        self.tree = Tree(module, text)
        self.names = Names(self.tree)
        self._alone: Context | None = None
        self._others: tuple[Context, ...] = ()

    def joined(self, others: Sequence[Context], links: Links) -> Context:
        """The same file together with others of its project."""
        made = Context.__new__(Context)
        made._alone, made._others = self, tuple(others)
        made.tree = self.tree.joined([it.tree for it in others])
        made.names = self.names.joined(made.tree, [it.names for it in others], links)
        return made

    # -- the parts of the model, each made on first use ------------- -----------------------------

    @cached_property
    def call_graph(self) -> Calls:
        """Calls, functions and classes of the file."""
        return Calls(self.tree, self.names, self._alone.call_graph if self._alone is not None else None)

    @cached_property
    def kinds(self) -> Kinds:
        """Kinds of values."""
        return Kinds(self.tree, self.names, self.call_graph)

    @cached_property
    def guards(self) -> Guards:
        """How often branches are taken."""
        return Guards(self.tree, self.names)

    @cached_property
    def training(self) -> Training:
        """Training loops and hot code."""
        return Training(self.tree, self.call_graph, self.kinds, self.guards)

    @cached_property
    def arguments(self) -> Arguments:
        """Arguments of calls."""
        return Arguments(self.tree, self.names)

    @cached_property
    def evaluation(self) -> Evaluation:
        """Evaluation loops."""
        return Evaluation(self.tree, self.names, self.call_graph, self.kinds, self.training)

    @cached_property
    def _origins(self) -> Origins:
        return Origins(self.names, self.call_graph)

    @cached_property
    def _places(self) -> Places:
        return Places(self.names)

    @cached_property
    def loaders(self) -> Loaders:
        """Data loaders, the loops over them, and the batches they give."""
        return Loaders(self.tree, self.names, self.call_graph)

    @cached_property
    def datasets(self) -> Datasets:
        """The work of data sets per sample."""
        return Datasets(self.tree, self.names, self.call_graph)

    @cached_property
    def devices(self) -> Devices:
        """Devices by name, and copies of tensors to them."""
        return Devices(self.names, self.call_graph)

    @cached_property
    def updates(self) -> Updates:
        """Steps of optimizers, and changes of gradients."""
        return Updates(self.tree, self.names, self.call_graph, self.kinds, self.training)

    # -- names and calls --------------------------------------------------------------------------

    @property
    def imports_torch(self) -> bool:
        """Whether the file imports torch or a package that trains with it."""
        return not TRAINING_PACKAGES.isdisjoint(self.names.imported_roots)

    def qualified_name(self, expression: ast.expr | None) -> str | None:
        """``torch.nn.functional.relu`` for ``F.relu``; None where it is not known, or not only one thing."""
        return self.names.qualified_name(expression)

    def calls(self, *qualified: str) -> Iterator[ast.Call]:
        """The calls that are known to be of one of these: ``context.calls("torch.utils.data.DataLoader")``."""
        for name in qualified:
            yield from (it for it in self.call_graph.named(name) if self.qualified_name(it.func) == name)

    def methods(self, *attributes: str) -> Iterator[tuple[ast.Call, ast.Attribute]]:
        """The calls ``x.name(...)`` by the last name, for any x, each with its ``x.name``."""
        return self.call_graph.methods(*attributes)

    def callee(self, call: ast.Call) -> Function | None:
        """The function of this file that a call runs, also as a method or as a module's ``forward``."""
        return self.call_graph.callee(call)

    def bindings(self, name: ast.Name) -> tuple[Binding, ...]:
        """The bindings that a name may have where it is read."""
        return self.names.reaching(name)

    # -- values -----------------------------------------------------------------------------------

    def argument(self, call: ast.Call, name: str, position: int | None = None) -> Argument:
        """The argument that a call passes to a parameter: by name, at ``position`` (from 0), or through a known ``**``
        dictionary."""
        return self.arguments.argument(call, name, position)

    def value(self, expression: ast.expr | None) -> ast.expr | None:
        """A name followed to the one expression it was assigned; anything else unchanged."""
        return self.names.value(expression)

    def constant(self, expression: ast.expr | None) -> object:
        """The value of a literal, or of a name that was assigned one; ``...`` where it is not known."""
        return self.arguments.constant(expression)

    def origins(self, expression: ast.expr | None) -> tuple[ast.Call, ...]:
        """The calls that may have returned a value, through names, attributes, parameters, wrappers and ``.to()``."""
        return self._origins.of(expression)

    def kind(self, expression: ast.expr | None) -> Kind | None:
        """The kind of an expression's value; None if unknown."""
        return self.kinds.kind(expression)

    def is_tensor(self, expression: ast.expr | None) -> bool:
        """Whether an expression is known to be one tensor."""
        return self.kinds.is_tensor(expression)

    def place(self, expression: ast.expr | None) -> Place | None:
        """Where a tensor is: ``host``, ``device``, or None for unknown."""
        return self._places.place(expression)

    @cached_property
    def uses_accelerator(self) -> bool:
        """Whether anything in the file moves to a device; otherwise nothing waits for one."""
        if self._alone is not None:
            return any(it.uses_accelerator for it in (self._alone, *self._others))
        moves = (it.args[0] if it.args else None for it, _ in self.methods(*_ACCELERATOR_METHODS))
        if any(not (isinstance(to, ast.Constant) and to.value == "cpu") for to in moves):
            return True
        texts = (it.value for it in self.tree.of(ast.Constant) if isinstance(it.value, str))
        if any(it.partition(":")[0] in ("cuda", "mps", "xpu", "hpu", "npu") for it in texts):
            return True
        return any(True for _ in self.call_graph.classes_everywhere(*known.LIGHTNING_MODULES, *known.TRAINERS))

    # -- the place of a node ----------------------------------------------------------------------

    @property
    def training_loops(self) -> Sequence[TrainingLoop]:
        """The loops whose passes are training steps, in source order."""
        return self.training.loops

    def hot_place(self, node: ast.AST) -> HotPlace | None:
        """Where and how often a node runs in training steps; None where it is not known to."""
        return self.training.hot_place(node)

    def place_in_every_step(self, node: ast.AST) -> HotPlace | None:
        """Where a node runs in each training step; None where it is not known to, or runs in some steps only."""
        place = self.hot_place(node)
        return place if place is not None and place.every_step else None

    def loops(self, node: ast.AST) -> Iterator[Loop]:
        """All loops that repeat a node, innermost first, within its function."""
        return self.tree.loops(node)

    def withs(self, node: ast.AST) -> Iterator[ast.expr]:
        """The context managers of the ``with`` statements around a node, innermost first, within its function."""
        child = node
        for above in self.tree.ancestors(node):
            if isinstance(above, (ast.With, ast.AsyncWith)) and child in above.body:
                yield from (it.context_expr for it in reversed(above.items))
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return
            child = above

    def inside(self, node: ast.AST, *qualified: str) -> ast.expr | None:
        """The innermost ``with`` around a node that entered one of these, called or not; None for none."""
        for entered in self.withs(node):
            what = self.value(entered)
            function = what.func if isinstance(what, ast.Call) else what
            if self.qualified_name(function) in qualified:
                return entered
        return None

    def gradients_off(self, node: ast.AST) -> bool:
        """Whether a node runs under ``no_grad`` or ``inference_mode``, by a ``with`` or its function's decorator."""
        if self.inside(node, *known.GRADIENTS_OFF) is not None:
            return True
        function = self.tree.function(node)
        decorators = function.decorator_list if function is not None else []
        plain = (it.func if isinstance(it, ast.Call) else it for it in decorators)
        return any(self.qualified_name(it) in known.GRADIENTS_OFF for it in plain)
