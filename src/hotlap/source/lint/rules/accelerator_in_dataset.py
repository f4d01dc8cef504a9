"""Samples are put on the device one by one, where the loader makes them.

## What it does
Finds `.cuda()`, `.to(device)` and tensors made with `device=` in a data set's `__getitem__`, in functions of the file
that it calls, and in a loader's `collate_fn`. A data set that keeps all of its data on the device and only indexes it
is not reported, nor is a tensor that goes where another one is (`device=x.device`).

## Why it is slow
Each sample is a copy of its own, for which the host waits, in place of one copy for the whole batch. And the loader can
have no workers any more: a forked process cannot use the device ("Cannot re-initialize CUDA in forked subprocess"),
and memory cannot be pinned.

## Example
    def __getitem__(self, index):
        return self.images[index].to(self.device), self.labels[index]

## Use instead
    def __getitem__(self, index):
        return self.images[index], self.labels[index]

    for images, labels in DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True):
        images = images.to(device, non_blocking=True)

## Fix safety
None: who takes the batch has to move it then, and that may be in another file.

## References
- https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading
- https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#poison-fork-in-multiprocessing
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.tree import FUNCTIONS

code = "HL105"
title = "Samples are put on the device one by one, where the loader makes them"
fix_safety: FixSafety = "none"


def check(context: Context) -> Iterator[Violation]:
    """Each use of a device while a sample or batch is made."""
    seen: set[ast.AST] = set()
    for where, function in _making(context):
        for call in context.devices.uses_in(function):
            if call not in seen and not _once_only(context, call, function):
                seen.add(call)
                text = context.tree.source(call)
                yield Violation(call, f"`{text}` uses the device {where}, so the loader can have no workers.")


def _making(context: Context) -> Iterator[tuple[str, ast.AST]]:
    """The functions that make samples and batches, each with the words that say which they are."""
    for owner in context.datasets.classes():
        for name in ("__getitem__", "__getitems__"):
            method = context.call_graph.method(owner, name)
            if method is not None:
                where = f"for every sample of `{owner.name}`"
                yield from ((where, it) for it in context.datasets.with_callees(method))
    for loader in context.loaders.all:
        given = context.value(context.argument(loader, "collate_fn", 6).value)
        if isinstance(given, ast.Lambda):
            yield "in `collate_fn`", given
            continue
        collate = context.names.definition(given) if given is not None else None
        if isinstance(given, ast.Attribute):
            owner_of_method = context.call_graph.instance_class(given.value)
            collate = context.call_graph.method(owner_of_method, given.attr) if owner_of_method is not None else None
        if isinstance(collate, FUNCTIONS):
            yield "in `collate_fn`", collate


def _once_only(context: Context, call: ast.Call, function: ast.AST) -> bool:
    """Whether it is done for the first sample only: ``if self.table is None: self.table = load().cuda()``."""
    for above in context.tree.ancestors(call):
        if above is function:
            return False
        if isinstance(above, ast.If) and any(isinstance(it, (ast.Is, ast.NotIn)) for it in ast.walk(above.test)):
            return True
    return False


bad = {
    "one sample at a time": """
        import torch
        from torch.utils.data import Dataset

        class Pictures(Dataset):
            def __init__(self, images, labels, device):
                self.images, self.labels, self.device = images, labels, device

            def __getitem__(self, index):
                return self.images[index].to(self.device), self.labels[index].cuda()
        """,
    "in a helper": """
        import torch

        class Signals(torch.utils.data.Dataset):
            def __getitem__(self, index):
                return self.read(index)

            def read(self, index):
                return torch.tensor(self.rows[index], device="cuda")
        """,
    "in collate_fn": """
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from torch.utils.data import DataLoader

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

        def collate(samples):
            return pad_sequence(samples, batch_first=True).to(device)

        loader = DataLoader(sentences, batch_size=8, collate_fn=collate)
        """,
    "in a lambda": """
        import torch
        from torch.utils.data import DataLoader, default_collate

        loader = DataLoader(dataset, batch_size=8, collate_fn=lambda it: default_collate(it).cuda())
        """,
}
good = {
    "all data lies on the device": """
        import torch
        from torch.utils.data import Dataset

        class Pictures(Dataset):
            def __init__(self, images, labels):
                self.images, self.labels = images.cuda(), labels.cuda()

            def __getitem__(self, index):
                return self.images[index], self.labels[index]
        """,
    "types and the host": """
        import torch
        from torch.utils.data import Dataset

        class Pictures(Dataset):
            def __getitem__(self, index):
                image = torch.tensor(self.images[index], device="cpu")
                return image.to(torch.float32), self.labels[index].to("cpu")
        """,
    "the whole batch, in the training loop": """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Rows(Dataset):
            def __getitem__(self, index):
                return self.rows[index]

        for batch in DataLoader(Rows(), batch_size=64):
            batch = batch.to("cuda")
        """,
    "what is no data set has items too": """
        import torch
        from torch import nn

        class Layers(nn.Module):
            def __getitem__(self, index):
                return self.layers[index].cuda()
        """,
    "where another tensor is": """
        import torch
        from torch.utils.data import Dataset

        class Rows(Dataset):
            def __getitem__(self, index):
                row = self.rows[index]
                return row - torch.tensor(self.mean, device=row.device)
        """,
    "a question about devices is no use of one": """
        import torch
        from torch.utils.data import Dataset

        class Rows(Dataset):
            def __getitem__(self, index):
                assert torch.cuda.is_available()
                return self.rows[index]
        """,
}
