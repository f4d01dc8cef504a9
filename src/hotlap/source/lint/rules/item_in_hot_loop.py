"""Every training step waits for the device to read a value.

## What it does
Finds `.item()`, `.tolist()`, `.cpu()`, `float(tensor)` and `int(tensor)` of a tensor that is computed from the model or
its loss, where it happens in every step of a training loop: in the loop itself, in a function that the loop calls, or
in Lightning's `training_step`. It is silent behind an interval (`if step % 100 == 0`), behind a flag that cannot be
judged from the source, for tensors that are known to be on the host, and in files that use no accelerator.

## Why it is slow
A device works through a queue that Python fills ahead of it. Reading a value makes Python wait until the device has
computed it, so the queue runs empty, and while Python prepares the next step the device has nothing to do.

## Example
    for batch in loader:
        loss = model(batch.to(device)).mean()
        loss.backward()
        optimizer.step()
        running += loss.item()

## Use instead
    for step, batch in enumerate(loader):
        loss = model(batch.to(device)).mean()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if step % 100 == 0:
            print(running.item() / (step + 1))

## Fix safety
None: where a value is needed is for a person to decide.

## References
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
- https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation, called_from
from hotlap.source.lint.context import Context

code = "HL201"
title = "Every training step waits for the device to read a value"
fix_safety: FixSafety = "none"
across_files = True

_METHODS = ("item", "tolist", "cpu")  # not "numpy", which a tensor on a device refuses
_FUNCTIONS = ("builtins.float", "builtins.int", "builtins.bool")


def check(context: Context) -> Iterator[Violation]:
    """Each reading of a device's value that is done in every step; of a chain, ``x.cpu().numpy()``, the first only."""
    if not context.uses_accelerator:
        return
    for call, function in context.methods(*_METHODS):
        if not call.args and not call.keywords:
            yield from _read(context, call, function.value, f".{function.attr}()")
    for call in context.calls(*_FUNCTIONS):
        if len(call.args) == 1:
            yield from _read(context, call, call.args[0], f"{context.tree.source(call.func)}()")


def _read(context: Context, call: ast.Call, tensor: ast.expr, what: str) -> Iterator[Violation]:
    if not context.is_tensor(tensor) or context.place(tensor) == "host":
        return
    place = context.place_in_every_step(call)
    if place is None:
        return
    text = context.tree.source(tensor)
    yield Violation(call, f"`{what}` of `{text}` waits for the device in every training step.", called_from(place))


bad = {
    "the loss, for a running mean": """
        import torch

        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
        """,
    "on rank 0, which is in every step of that rank": """
        import torch

        for batch in loader:
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            if rank == 0:
                writer.add_scalar("loss", loss.item(), step)
        """,
    "one call away": """
        import torch
        import torch.nn.functional as F

        def step(model, optimizer, images, labels):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss.item()

        def train(model, optimizer, loader):
            for images, labels in loader:
                history.append(step(model, optimizer, images.cuda(), labels.cuda()))
        """,
    "predictions, as an array": """
        import torch
        from torch import nn

        model = nn.Linear(10, 2).cuda()
        for batch, labels in loader:
            scores = model(batch.cuda())
            loss = nn.functional.cross_entropy(scores, labels.cuda())
            loss.backward()
            optimizer.step()
            correct += (scores.argmax(1).cpu().numpy() == labels.numpy()).sum()
        """,
    "in a training_step": """
        import lightning as L
        import torch.nn.functional as F

        class Classifier(L.LightningModule):
            def training_step(self, batch, batch_idx):
                images, labels = batch
                loss = F.cross_entropy(self.net(images), labels)
                self.log("loss", float(loss))
                return loss
        """,
}
good = {
    "every hundredth step": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(step, loss.item())
        """,
    "other steps are skipped": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            if step % 100 != 0 or rank != 0:
                continue
            print(step, loss.item())
        """,
    "behind a flag": """
        import torch

        for step, batch in enumerate(loader):
            loss = model(batch.to(device)).mean()
            loss.backward()
            optimizer.step()
            should_log = step % args.log_every == 0
            if should_log and rank == 0:
                print(step, loss.item())
        """,
    "once per epoch": """
        import torch

        for epoch in range(10):
            for batch in loader:
                loss = model(batch.to(device)).mean()
                loss.backward()
                optimizer.step()
            print(epoch, loss.item())
        """,
    "a tensor that never was on the device": """
        import torch

        for batch in loader:
            size = torch.randint(128, 256, (1,)).item()
            loss = model(batch.cuda(), size).mean()
            loss.backward()
            optimizer.step()
        """,
    "dictionaries have items too": """
        import torch

        for batch in loader:
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            names.append(config.name.item())
            total += float(args.weight)
        """,
    "parts of a tensor that lies on the host": """
        import torch

        for batch in loader:
            rows = torch.rand(4, 8)
            lengths = (rows > 0.5).sum(dim=1).to(torch.long)
            for index, (row, length) in enumerate(zip(rows, lengths)):
                pieces.append(row[: int(length.item())].tolist())
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
        """,
    "a value of numpy, which no tensor on a device becomes": """
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            total += loss.detach().numpy().item()
        """,
    "all is moved to the host": """
        import torch

        for batch in loader:
            batch = {key: value.to("cpu") for key, value in batch.items()}
            loss = model(**batch).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        """,
    "nothing is on a device": """
        import torch

        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        """,
}
