"""A copy with `non_blocking=True` waits all the same, since the loader does not pin its memory.

## What it does
Finds a `DataLoader` without `pin_memory=True` whose batches are copied to a device with `non_blocking=True`.

## Why it is slow
The device can only fetch by itself from pinned memory. Of ordinary memory the driver makes a pinned copy first,
and the host waits for it: `non_blocking=True` changes nothing. With `pin_memory=True` a thread of the loader pins each
batch while the model computes.

## Example
    loader = DataLoader(dataset, batch_size=64, num_workers=4)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)

## Use instead
    loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)

## Fix safety
Unsafe: `pin_memory=True` is put in. The numbers stay the same, but a data set that gives tensors of the device fails
with it, and pinned memory is not available to the rest of the machine.

## References
- https://docs.pytorch.org/docs/stable/data.html#memory-pinning
- https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, SetEntry, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.arguments import Argument
from hotlap.source.lint.model.devices import Copy

code = "HL103"
title = "A copy with `non_blocking=True` waits all the same, since the loader does not pin its memory"
fix_safety: FixSafety = "unsafe"


def check(context: Context) -> Iterator[Violation]:
    """Each loader that does not pin, with the copies that need it."""
    if not context.loaders.all or not context.uses_accelerator:
        return
    asking: dict[ast.Call, list[Copy]] = {}
    for copy in context.devices.copies:
        if copy.non_blocking is not None and context.constant(copy.non_blocking) is True and copy.target != "host":
            for loader in context.loaders.of_batch(copy.tensor):
                asking.setdefault(loader, []).append(copy)
    for loader in context.loaders.all:
        pins = context.argument(loader, "pin_memory", 7)
        if loader not in asking or not (pins.absent or (pins.given and context.constant(pins.value) is False)):
            continue
        how = "does not pin its memory" if pins.absent else "is told not to pin its memory"
        yield Violation(
            loader,
            f"This loader {how}, so the copy with `non_blocking=True` waits all the same.",
            tuple(Related(it.call, "the copy") for it in asking[loader]),
            _edits(loader, pins),
        )


def _edits(loader: ast.Call, pins: Argument) -> Change:
    if pins.given and not isinstance(pins.value, ast.Constant):
        return ()
    if isinstance(pins.through, ast.Dict):
        return (SetEntry(Span.of(pins.through), "pin_memory", Code("True")),)
    if pins.through is not None or any(it.arg is None for it in loader.keywords):
        return ()
    return (SetKeyword(Span.of(loader), "pin_memory", Code("True"), position=7),)


bad = {
    "absent": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)
        """,
    "false, in a dictionary": """
        import torch
        from torch.utils.data import DataLoader

        options = {"batch_size": 64, "pin_memory": False}
        loader = DataLoader(dataset, **options)
        for batch in loader:
            images, labels = batch
            images = images.cuda(non_blocking=True)
        """,
    "a method and an attribute": """
        import torch
        from torch.utils.data import DataLoader

        class Trainer:
            def __init__(self, dataset, device):
                self.device = device
                self.loader = DataLoader(dataset, 64, pin_memory=False)

            def train(self):
                for step, (images, labels) in enumerate(self.loader):
                    self.step(images.to(self.device, non_blocking=True))
        """,
}
fixed = {
    "absent": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            labels = labels.to("cuda", non_blocking=True)
        """,
    "false, in a dictionary": """
        import torch
        from torch.utils.data import DataLoader

        options = {"batch_size": 64, "pin_memory": True}
        loader = DataLoader(dataset, **options)
        for batch in loader:
            images, labels = batch
            images = images.cuda(non_blocking=True)
        """,
    "a method and an attribute": """
        import torch
        from torch.utils.data import DataLoader

        class Trainer:
            def __init__(self, dataset, device):
                self.device = device
                self.loader = DataLoader(dataset, 64, pin_memory=True)

            def train(self):
                for step, (images, labels) in enumerate(self.loader):
                    self.step(images.to(self.device, non_blocking=True))
        """,
}
good = {
    "pinned": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
        """,
    "pinned where there is a device": """
        import torch
        from torch.utils.data import DataLoader

        use_cuda = torch.cuda.is_available()
        loader = DataLoader(dataset, batch_size=64, pin_memory=use_cuda)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
        """,
    "pinned by hand": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64)
        for images, labels in loader:
            images = images.pin_memory().to("cuda", non_blocking=True)
        """,
    "the arguments are not known": """
        import torch
        from torch.utils.data import DataLoader

        def train(dataset, **kwargs):
            for images, labels in DataLoader(dataset, **kwargs):
                images = images.to("cuda", non_blocking=True)
        """,
    "another loader's batches": """
        import torch
        from torch.utils.data import DataLoader

        loader = DataLoader(dataset, batch_size=64, pin_memory=True)
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
        for images, labels in DataLoader(small, batch_size=64):
            images = images.to("cuda")
        """,
}
