"""A gradient scaler works although autocast uses bfloat16.

## What it does
Finds a `GradScaler` in a file in which every autocast uses `torch.bfloat16`. It is silent where a type or whether the
scaler is enabled is decided at run time.

## Why it is slow
The scaler keeps small gradients of float16 from becoming zero. bfloat16 reaches as far as float32, so there is nothing
to keep. What is left is the cost: each step divides all gradients, looks for infinities in them, and waits for the
device to hear whether there were any; at first steps may be left out while the scale is looked for.

## Example
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

## Use instead
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch)
    loss.backward()
    optimizer.step()

## Fix safety
Unsafe: the scaler gets `enabled=False`, with which its methods do nothing but call the optimizer. Steps that it would
have left out are taken, and a checkpoint's state of the scaler is empty.

## References
- https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Code, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model import torch_names as known

code = "HL605"
title = "A gradient scaler works although autocast uses bfloat16"
fix_safety: FixSafety = "unsafe"

# Where each autocast takes its dtype by position.
_DTYPE = {"torch.autocast": 1, "torch.cuda.amp.autocast": 1, "torch.cpu.amp.autocast": 1}
# Where each scaler takes "enabled" by position.
_ENABLED = {"torch.amp.GradScaler": 5, "torch.cuda.amp.GradScaler": 4, "torch.cpu.amp.GradScaler": 4}


def check(context: Context) -> Iterator[Violation]:
    """Each scaler that may be enabled, where all regions of autocast are known to use bfloat16."""
    regions = [it for it in context.calls(*_DTYPE) if not _is_off(context, it)]
    if not regions or not all(_is_bfloat16(context, it) for it in regions):
        return
    for call in context.calls(*known.SCALERS):
        position = _ENABLED.get(context.qualified_name(call.func) or "")
        enabled = context.argument(call, "enabled", position)
        if not (enabled.absent or (enabled.given and context.constant(enabled.value) is True)):
            continue
        plain = enabled.through is None and not any(it.arg is None for it in call.keywords)
        yield Violation(
            call,
            "Gradients of bfloat16 need no scaler: it costs a wait for the device in every step.",
            (Related(regions[0], "bfloat16"),),
            (SetKeyword(Span.of(call), "enabled", Code("False"), position=position),) if plain else (),
        )


def _is_bfloat16(context: Context, region: ast.Call) -> bool:
    name = context.qualified_name(region.func) or ""
    given = context.argument(region, "dtype", _DTYPE[name])
    if given.absent:
        return name == "torch.cpu.amp.autocast"
    return context.qualified_name(given.value) == "torch.bfloat16"


def _is_off(context: Context, region: ast.Call) -> bool:
    position = 2 if context.qualified_name(region.func) == "torch.autocast" else 0
    return context.constant(context.argument(region, "enabled", position).value) is False


bad = {
    "the new names": """
        import torch

        scaler = torch.amp.GradScaler("cuda")
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(batch).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
    "the old names, and a name for the type": """
        import torch
        from torch.cuda.amp import GradScaler, autocast

        dtype = torch.bfloat16
        scaler = GradScaler(enabled=True)
        for batch in loader:
            with autocast(True, dtype):
                loss = model(batch).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
    "another region is switched off": """
        import torch

        class Trainer:
            def __init__(self):
                self.scaler = torch.amp.GradScaler(
                    "cuda",
                    init_scale=1024.0,
                )

            def step(self, batch):
                with torch.amp.autocast("cuda", torch.bfloat16):
                    features = self.model(batch)
                    with torch.amp.autocast("cuda", enabled=False):
                        loss = self.head(features.float()).mean()
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """,
}
fixed = {
    "the new names": """
        import torch

        scaler = torch.amp.GradScaler("cuda", enabled=False)
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(batch).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
    "the old names, and a name for the type": """
        import torch
        from torch.cuda.amp import GradScaler, autocast

        dtype = torch.bfloat16
        scaler = GradScaler(enabled=False)
        for batch in loader:
            with autocast(True, dtype):
                loss = model(batch).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
}
good = {
    "float16": """
        import torch

        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
        scaler.scale(loss).backward()
        """,
    "the default type, which is float16": """
        import torch

        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda"):
            loss = model(batch)
        scaler.scale(loss).backward()
        """,
    "chosen at run time": """
        import torch

        dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
        with torch.autocast("cuda", dtype=dtype):
            loss = model(batch)
        scaler.scale(loss).backward()
        """,
    "enabled by the type": """
        import torch

        scaler = torch.amp.GradScaler("cuda", enabled=use_fp16)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()
        """,
    "one of two regions uses float16": """
        import torch

        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features = encoder(batch)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(features)
        scaler.scale(loss).backward()
        """,
}
