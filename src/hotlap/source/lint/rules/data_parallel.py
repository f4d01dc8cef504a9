"""Several devices are driven by one process with DataParallel.

## What it does
Finds `torch.nn.DataParallel` and `torch.nn.parallel.data_parallel`.

## Why it is slow
One Python process drives all devices, in threads that take turns under the interpreter's lock. Every forward pass
copies the model to every device, scatters the batch from the first device and gathers the outputs there; every backward
pass sums the gradients there. `DistributedDataParallel` has a process for each device, copies the model once, and sums
gradients while backward is still running; torch's documentation recommends it on a single machine too.

## Example
    model = torch.nn.DataParallel(model)

## Use instead
    torch.distributed.init_process_group()
    torch.cuda.set_device(local_rank)
    model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])

The script is then started with `torchrun --nproc-per-node=gpu train.py`, and its loader gets a `DistributedSampler`.

## Fix safety
None: the start of the processes, the sampler and the checkpoints change with it.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
- https://docs.pytorch.org/docs/stable/notes/cuda.html#use-nn-parallel-distributeddataparallel-instead-of-multiprocessing-or-nn-dataparallel
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.source.lint.api import FixSafety, Violation
from hotlap.source.lint.context import Context

code = "HL701"
title = "Several devices are driven by one process with DataParallel"
fix_safety: FixSafety = "none"


def check(context: Context) -> Iterator[Violation]:
    """Each call; comparing a model with the class is not a call."""
    for call in context.calls("torch.nn.DataParallel", "torch.nn.parallel.data_parallel"):
        yield Violation(
            call, "One process drives all devices and copies the model in every step; use DistributedDataParallel."
        )


bad = {
    "around a model": """
        import torch

        model = torch.nn.DataParallel(model)
        """,
    "where there are several devices": """
        import torch
        from torch import nn

        if torch.cuda.device_count() > 1:
            model = nn.DataParallel(model, device_ids=[0, 1])
        """,
    "under another name, as an attribute": """
        from torch.nn.parallel import DataParallel as Parallel

        class Trainer:
            def __init__(self, model):
                self.model = Parallel(model.cuda())
        """,
    "as a function": """
        import torch
        from torch.nn.parallel import data_parallel

        def forward(self, x):
            return data_parallel(self.net, x, self.devices)
        """,
}
good = {
    "a process for each device": """
        import torch
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(model, device_ids=[rank])
        """,
    "only asked for": """
        from torch import nn

        model = model.module if isinstance(model, nn.DataParallel) else model
        """,
    "a class of that name that is not torch's": """
        import torch
        from mindspore.nn import DataParallel

        model = DataParallel(model)
        """,
}
