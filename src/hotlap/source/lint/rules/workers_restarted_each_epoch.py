"""The loader's workers are restarted in every epoch.

## What it does
Finds a `DataLoader` with workers and without `persistent_workers=True` that is run over in every pass of an outer loop,
or that Lightning's `train_dataloader` and `val_dataloader` hand out. It is silent where the data set is changed between
epochs, since workers that live on would not see it, and where the loader itself is made again.

## Why it is slow
At the end of each epoch the workers end, and at the start of the next they are started again: each gets its own copy of
the data set, imports what it needs, and fills the queue from nothing while the model waits. Small data sets, with short
epochs, lose most.

## Example
    loader = DataLoader(dataset, batch_size=64, num_workers=4)
    for epoch in range(100):
        for images, labels in loader:
            ...

## Use instead
    loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)

## Fix safety
Unsafe: `persistent_workers=True` is put in. A data set that is changed between epochs, or random augmentation that is
seeded per epoch, behaves differently in workers that live on.

## References
- https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, SetEntry, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model import torch_names as known
from hotlap.source.lint.model.arguments import Argument
from hotlap.source.lint.model.tree import Loop

code = "HL104"
title = "The loader's workers are restarted in every epoch"
fix_safety: FixSafety = "unsafe"
measured = (
    "Without it a script made to show it trains 1.24x as fast (95 % interval 1.21 to 1.27), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_DATA_MODULES = frozenset(
    f"{root}.LightningDataModule"
    for root in (
        "lightning",
        "lightning.pytorch",
        "pytorch_lightning",
        "lightning.pytorch.core",
        "pytorch_lightning.core",
    )
)
_HANDED_OUT = ("train_dataloader", "val_dataloader")


def check(context: Context) -> Iterator[Violation]:
    """Each loader whose workers do not outlive an epoch, where there are several epochs."""
    for loader in context.loaders.all:
        workers = context.argument(loader, "num_workers", 5)
        persistent = context.argument(loader, "persistent_workers")
        if not workers.given or not (persistent.absent or context.constant(persistent.value) is False):
            continue
        count = context.constant(workers.value)
        if count is not ... and not (isinstance(count, int) and count > 0):
            continue
        epochs = _epochs(context, loader)
        if epochs is None:
            continue
        yield Violation(
            loader,
            "Without `persistent_workers=True` this loader's workers are restarted in every epoch.",
            (Related(epochs, "the epochs"),) if epochs is not loader else (),
            _edits(context, loader, workers, persistent),
        )


def _epochs(context: Context, loader: ast.Call) -> ast.AST | None:
    """The loop in whose every pass the loader is run over; the loader itself where Lightning does so."""
    if _handed_to_lightning(context, loader):
        return loader
    for one_pass in context.loaders.passes_over(loader):
        for outer in _repeating(context, one_pass):
            if not _made_in(context, loader, outer) and not _once(outer) and not _changes_data(context, loader, outer):
                return outer
    return None


def _repeating(context: Context, one_pass: ast.For | ast.AsyncFor) -> Iterator[Loop]:
    """The loops that repeat a loop: those around it, and those around the calls of its function."""
    yield from context.loops(one_pass)
    function = context.tree.function(one_pass)
    for call in context.call_graph.callers(function) if function is not None else ():
        yield from context.loops(call)


def _made_in(context: Context, loader: ast.Call, outer: Loop) -> bool:
    """Whether the loop makes the loader again in each pass, itself or through a function that it calls."""
    if context.tree.within(loader, outer) or _replaced_in(context, loader, outer):
        return True
    function = context.tree.function(loader)
    callers = context.call_graph.callers(function) if function is not None else ()
    return any(context.tree.within(it, outer) for it in callers)


def _replaced_in(context: Context, loader: ast.Call, outer: Loop) -> bool:
    """Whether the loop gives the loader's name another value, as where every epoch but the first makes a new one."""
    match context.tree.parent(loader):
        case ast.Assign(targets=[ast.Name() as name]):
            home = context.names.home(name)
            bindings = context.names.bindings_in(home, name.id) if home is not None else ()
            return any(context.tree.within(it.node, outer) for it in bindings)
    return False


def _once(outer: Loop) -> bool:
    """A loop of one pass."""
    match outer:
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=0 | 1)])):
            return True
        case ast.For(iter=ast.Tuple(elts=[_]) | ast.List(elts=[_])):
            return True
    return False


def _changes_data(context: Context, loader: ast.Call, outer: Loop) -> bool:
    """Whether the loop sets an attribute or calls a method of a data set: ``loader.dataset.epoch = 3``,
    ``dataset.shuffle()``."""
    dataset = context.argument(loader, "dataset", 0).value
    made = set(context.bindings(dataset)) if isinstance(dataset, ast.Name) else set()
    for it in ast.walk(outer):
        if not isinstance(it, ast.Attribute):
            continue
        of_loader = isinstance(it.value, ast.Attribute) and it.value.attr in ("dataset", "datasets")
        itself = isinstance(it.value, ast.Name) and not made.isdisjoint(context.bindings(it.value))
        if not (of_loader or itself):
            continue
        above = context.tree.parent(it)
        if isinstance(it.ctx, ast.Store) or (isinstance(above, ast.Call) and above.func is it):
            return True
    return False


def _handed_to_lightning(context: Context, loader: ast.Call) -> bool:
    function = context.tree.function(loader)
    owner = context.tree.class_of(function) if function is not None else None
    if function is None or function.name not in _HANDED_OUT or not isinstance(owner, ast.ClassDef):
        return False
    return bool(context.call_graph.base_names(owner) & (known.LIGHTNING_MODULES | _DATA_MODULES))


def _edits(context: Context, loader: ast.Call, workers: Argument, persistent: Argument) -> Change:
    """The argument is invalid without workers, so an unknown number is tested at run time."""
    if persistent.given and not isinstance(persistent.value, ast.Constant):
        return ()
    count = workers.value
    if isinstance(count, (ast.Name, ast.Attribute)):
        value = Code(f"{context.tree.source(count)} > 0")
    elif isinstance(count, ast.Constant):
        value = Code("True")
    else:
        return ()
    through = persistent.through if persistent.given else workers.through
    if isinstance(through, ast.Dict):
        return (SetEntry(Span.of(through), "persistent_workers", value),)
    if through is not None or any(it.arg is None for it in loader.keywords):
        return ()
    return (SetKeyword(Span.of(loader), "persistent_workers", value),)


bad = {
    "epochs around batches": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for epoch in range(100):
            for images, labels in loader:
                step(images, labels)
        """,
    "one call away, with workers from the command line": """
        import torch
        from torch.utils.data import DataLoader

        def train(model, loader):
            for step, (images, labels) in enumerate(loader):
                model(images)

        def main(args):
            train_loader = DataLoader(
                dataset,
                batch_size=args.batch_size,
                num_workers=args.workers,
                pin_memory=True,
            )
            for epoch in range(args.epochs):
                train(model, train_loader)
        """,
    "through a dictionary": """
        import torch
        import torch.utils.data as data

        options = {"num_workers": 8, "persistent_workers": False}
        loader = data.DataLoader(dataset, 64, **options)
        while not done:
            for batch in loader:
                done = step(batch)
        """,
    "Lightning": """
        import lightning as L
        from torch.utils.data import DataLoader

        class Pictures(L.LightningDataModule):
            def train_dataloader(self):
                return DataLoader(self.train_set, batch_size=64, num_workers=4)
        """,
}
fixed = {
    "epochs around batches": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
        for epoch in range(100):
            for images, labels in loader:
                step(images, labels)
        """,
    "one call away, with workers from the command line": """
        import torch
        from torch.utils.data import DataLoader

        def train(model, loader):
            for step, (images, labels) in enumerate(loader):
                model(images)

        def main(args):
            train_loader = DataLoader(
                dataset,
                batch_size=args.batch_size,
                num_workers=args.workers,
                pin_memory=True,
                persistent_workers=args.workers > 0,
            )
            for epoch in range(args.epochs):
                train(model, train_loader)
        """,
    "through a dictionary": """
        import torch
        import torch.utils.data as data

        options = {"num_workers": 8, "persistent_workers": True}
        loader = data.DataLoader(dataset, 64, **options)
        while not done:
            for batch in loader:
                done = step(batch)
        """,
}
good = {
    "a new loader in every epoch but the first": """
        from torch.utils.data import DataLoader

        loader = DataLoader(data, shuffle=False, num_workers=2)
        for epoch in range(10):
            if epoch > 0:
                loader = DataLoader(data, shuffle=True, num_workers=2)
            for batch in loader:
                model(batch).mean().backward()
                optimizer.step()
        """,
    "persistent": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
        for epoch in range(100):
            for images, labels in loader:
                step(images, labels)
        """,
    "one epoch": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for images, labels in loader:
            step(images, labels)
        """,
    "no workers": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64)
        other = DataLoader(dataset, batch_size=64, num_workers=0)
        for epoch in range(100):
            for a, b in loader:
                step(a, b)
            for a, b in other:
                step(a, b)
        """,
    "the loader is made again": """
        import torch
        from torch.utils.data import DataLoader

        def make(fold):
            return DataLoader(fold, batch_size=64, num_workers=4)

        for fold in folds:
            loader = make(fold)
            for images, labels in loader:
                step(images, labels)
        """,
    "the data set is changed between epochs": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for epoch in range(100):
            loader.dataset.set_epoch(epoch)
            for images, labels in loader:
                step(images, labels)
        """,
    "the arguments are not known": """
        import torch
        from torch.utils.data import DataLoader

        def train(dataset, **kwargs):
            loader = DataLoader(dataset, num_workers=4, **kwargs)
            for epoch in range(100):
                for images, labels in loader:
                    step(images, labels)
        """,
}
