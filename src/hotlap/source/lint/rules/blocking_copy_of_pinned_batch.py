"""Batches from pinned memory are copied while the host waits.

## What it does
Finds `batch.to(device)` and `batch.cuda()` without `non_blocking=True` where the batch is known to come from a
`DataLoader` with `pin_memory=True`. A copy that also converts to another type is not reported: it is converted on the
host first.

## Why it is slow
Pinned memory is what lets the device fetch a batch by itself, while the host goes on to queue the next kernels. Without
`non_blocking=True` the host waits for every copy, and the work of pinning was for nothing.

## Example
    loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)

## Use instead
    loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

## Fix safety
Safe: whatever the device does with the batch afterwards waits for the copy, and the loader hands out each pinned batch
once. Unsafe where a `collate_fn` makes batches of a kind whose `to` may not know the argument.

## References
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
- https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context

code = "HL102"
title = "Batches from pinned memory are copied while the host waits"
fix_safety: FixSafety = "safe"


def check(context: Context) -> Iterator[Violation]:
    """Each blocking copy of a batch, if all loaders that may have made it pin their memory."""
    if not context.loaders.all or not context.uses_accelerator:
        return
    for copy in context.devices.copies:
        waits = copy.non_blocking is None or context.constant(copy.non_blocking) is False
        if not waits or copy.target == "host":
            continue
        loaders = context.loaders.of_batch(copy.tensor)
        if not loaders or not all(_pins(context, it) for it in loaders):
            continue
        plain = all(context.argument(it, "collate_fn", 6).absent for it in loaders)
        text = context.tree.source(copy.tensor)
        yield Violation(
            copy.call,
            f"The loader pins its batches, but this copy of `{text}` lets the host wait; use `non_blocking=True`.",
            tuple(Related(it, "the memory is pinned here") for it in sorted(loaders, key=lambda it: it.lineno)),
            (SetKeyword(Span.of(copy.call), "non_blocking", Code("True"), position=_position(copy.call)),),
            None if plain else "unsafe",
        )


def _position(call: ast.Call) -> int | None:
    """Where ``x.cuda(0, False)`` has it; ``to`` has several signatures, so there it is given by name."""
    return 1 if isinstance(call.func, ast.Attribute) and call.func.attr != "to" else None


def _pins(context: Context, loader: ast.Call) -> bool:
    pins = context.argument(loader, "pin_memory", 7)
    if not pins.given:
        return False
    value = context.value(pins.value)
    if isinstance(value, ast.Call):
        return context.qualified_name(value.func) == "torch.cuda.is_available"
    return context.constant(value) is True


bad = {
    "a picture and its label": """
        import torch
        from torch.utils.data import DataLoader

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
        for epoch in range(3):
            for images, labels in loader:
                images, labels = images.to(device), labels.to(device)
                model(images)
        """,
    "through a function and enumerate": """
        import torch

        def train(model, loader, rank):
            for step, batch in enumerate(loader):
                inputs = batch["input_ids"].cuda(rank)
                labels = batch["labels"].cuda(rank, non_blocking=False)
                model(inputs, labels)

        def main(rank):
            loader = torch.utils.data.DataLoader(dataset, 64, pin_memory=torch.cuda.is_available())
            train(model, loader, rank)
        """,
    "every entry of a dictionary": """
        import torch
        from torch.utils.data import DataLoader
        from tqdm import tqdm

        loaders = {"train": DataLoader(train, 32, pin_memory=True), "val": DataLoader(val, 32, pin_memory=True)}
        for phase in ("train", "val"):
            for batch in tqdm(loaders[phase]):
                batch = {key: value.to("cuda") for key, value in batch.items()}
                model(**batch)
        """,
    "batches of a kind of their own": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, 32, collate_fn=collate, pin_memory=True)
        for batch in loader:
            batch = batch.to("cuda")
        """,
}
fixed = {
    "a picture and its label": """
        import torch
        from torch.utils.data import DataLoader

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
        for epoch in range(3):
            for images, labels in loader:
                images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                model(images)
        """,
    "through a function and enumerate": """
        import torch

        def train(model, loader, rank):
            for step, batch in enumerate(loader):
                inputs = batch["input_ids"].cuda(rank, non_blocking=True)
                labels = batch["labels"].cuda(rank, non_blocking=True)
                model(inputs, labels)

        def main(rank):
            loader = torch.utils.data.DataLoader(dataset, 64, pin_memory=torch.cuda.is_available())
            train(model, loader, rank)
        """,
    "every entry of a dictionary": """
        import torch
        from torch.utils.data import DataLoader
        from tqdm import tqdm

        loaders = {"train": DataLoader(train, 32, pin_memory=True), "val": DataLoader(val, 32, pin_memory=True)}
        for phase in ("train", "val"):
            for batch in tqdm(loaders[phase]):
                batch = {key: value.to("cuda", non_blocking=True) for key, value in batch.items()}
                model(**batch)
        """,
}
good = {
    "non_blocking": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            labels = labels.cuda(0, True)
        """,
    "one of two loaders does not pin": """
        import torch
        from torch.utils.data import DataLoader

        def run(loader):
            for images, labels in loader:
                images = images.to("cuda")

        def main():
            run(DataLoader(train, batch_size=64, pin_memory=True))
            run(DataLoader(test, batch_size=64))
        """,
    "what is copied is not what the loader gave": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.float().div(255).to("cuda")
            noise = torch.randn(64, 10).to("cuda")
        """,
    "to a type, and to the host": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.to(torch.float16)
            labels = labels.to("cpu")
            images = images.to("cuda", torch.float32)
        """,
    "whether memory is pinned is not known": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, pin_memory=args.pin_memory)
        for images, labels in loader:
            images = images.to("cuda")
        """,
    "accelerate copies by itself": """
        import torch
        from accelerate import Accelerator
        from torch.utils.data import DataLoader

        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(dataset, batch_size=64, pin_memory=True))
        for images, labels in loader:
            images = images.to(accelerator.device)
        """,
}
