"""Batches are made in the training process.

## What it does
Finds a `DataLoader` whose `num_workers` is absent or 0 although its data set works for every sample: it reads a file,
decodes it, or calls a transform or tokenizer, in `__getitem__` or in a function that this calls. Data sets that are in
memory are not reported, nor those whose contents are unknown, nor a loader that is given unknown `**arguments`.

## Why it is slow
Without workers the next batch is begun when the model asks for it, so the device waits for all of the reading and
decoding in every step. Worker processes make the next batches while the model computes.

## Example
    loader = DataLoader(ImageFolder("train", transform), batch_size=64, shuffle=True)

## Use instead
    loader = DataLoader(ImageFolder("train", transform), batch_size=64, shuffle=True, num_workers=4)

How many are best depends on the machine; `hotlap tune` measures it.

## Fix safety
Unsafe: `num_workers=4` is put in. Random augmentation draws other numbers in workers, and a data set may not survive
being pickled. Only shown where the file's own statements run on import, outside of `if __name__ == "__main__"`: a
worker that is not forked would run them again.

## References
- https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading
- https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#enable-asynchronous-data-loading-and-augmentation
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotlap.source.edits.kinds import Change, Code, SetEntry, SetKeyword, Span
from hotlap.source.lint.api import FixSafety, Related, Violation
from hotlap.source.lint.context import Context
from hotlap.source.lint.model.arguments import Argument
from hotlap.source.lint.model.tree import FUNCTIONS

code = "HL101"
title = "Batches are made in the training process"
fix_safety: FixSafety = "unsafe"
measured = (
    "Without it a script made to show it trains 1.75x as fast (95 % interval 1.66 to 1.85), on 2 cores, 24 "
    "GiB, no accelerator (docs/benchmarks/lint-impact.md)."
)

_WORKERS = Code("4")


def check(context: Context) -> Iterator[Violation]:
    """Each loader without workers over a data set that works for every sample."""
    for call in context.loaders.all:
        workers = context.argument(call, "num_workers", 5)
        if not (workers.absent or (workers.given and context.constant(workers.value) == 0)):
            continue
        if context.constant(context.argument(call, "multiprocessing_context", 11).value) not in (None, ...):
            continue
        if _only_looks(context, call):
            continue
        work = context.datasets.work(context.argument(call, "dataset", 0).value)
        if work is None or (work.owner is not None and _needs_the_device(context, work.owner)):
            continue
        how = "no `num_workers`" if workers.absent else "`num_workers=0`"
        related = (Related(work.node, "this is done for every sample"),) if work.node is not None else ()
        yield Violation(
            call,
            f"With {how} the batches are made while the model waits; `{work.dataset}` {work.what} for every sample.",
            related,
            _edits(context, call, workers),
            None if _guarded(context, call) else "shown",
        )


def _only_looks(context: Context, call: ast.Call) -> bool:
    """Whether the loader belongs to a file's demonstration, in which nothing computes on batches."""
    if context.training_loops or context.evaluation.loops or context.tree.function(call) is not None:
        return False
    return any(isinstance(it, ast.If) and _tests_for_main(it.test) for it in context.tree.ancestors(call))


def _tests_for_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _needs_the_device(context: Context, owner: ast.ClassDef) -> bool:
    """Whether samples are made on the accelerator, which workers cannot do."""
    return any(True for method in context.datasets.sample_methods(owner) for _ in context.devices.uses_in(method))


def _edits(context: Context, call: ast.Call, workers: Argument) -> Change:
    """None where the value is a name, which others may read, or a dictionary that several calls may share."""
    if workers.given and not isinstance(workers.value, ast.Constant):
        return ()
    if isinstance(workers.through, ast.Dict):
        return (SetEntry(Span.of(workers.through), "num_workers", _WORKERS),)
    if workers.through is not None or any(it.arg is None for it in call.keywords):
        return ()
    return (SetKeyword(Span.of(call), "num_workers", _WORKERS, position=5),)


def _guarded(context: Context, call: ast.Call) -> bool:
    """Whether importing the file runs nothing but definitions, as far as that can be seen from its last statements."""
    if any(_is_main(it.test) for it in context.tree.of(ast.If)):
        return True
    if not any(isinstance(it, FUNCTIONS) for it in context.tree.ancestors(call)):
        return False
    # Called from the top level of this very file, the function runs on import; else another file calls it.
    top = context.tree.module.body
    return not any(isinstance(it, (ast.Expr, ast.Assign)) and _calls(context, it) for it in top)


def _calls(context: Context, statement: ast.stmt) -> bool:
    return any(isinstance(it, ast.Call) and context.callee(it) is not None for it in ast.walk(statement))


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(it, ast.Name) and it.id == "__name__" for it in ast.walk(test))


bad = {
    "pictures from files": """
        from torch.utils.data import DataLoader
        from torchvision import transforms
        from torchvision.datasets import ImageFolder

        def main():
            train = ImageFolder("train", transforms.ToTensor())
            loader = DataLoader(train, batch_size=64, shuffle=True)
            return loader

        if __name__ == "__main__":
            main()
        """,
    "an explicit 0, by position": """
        import torch
        from PIL import Image

        class Pictures(torch.utils.data.Dataset):
            def __init__(self, paths):
                self.paths = paths

            def __len__(self):
                return len(self.paths)

            def __getitem__(self, index):
                return self.load(self.paths[index])

            def load(self, path):
                return Image.open(path).convert("RGB")

        loader = torch.utils.data.DataLoader(Pictures(paths), 32, True, None, None, 0)
        """,
    "split, and through a dictionary": """
        import torch
        from torch.utils import data
        from torchvision import datasets, transforms as T

        def loaders(root):
            full = datasets.CIFAR10(root, transform=T.Compose([T.RandomCrop(32), T.ToTensor()]))
            train, test = data.random_split(full, [45_000, 5_000])
            options = {"batch_size": 128, "num_workers": 0}
            return data.DataLoader(train, shuffle=True, **options), data.DataLoader(test, **options)
        """,
    "text that is tokenized": """
        from torch.utils.data import DataLoader, Dataset

        class Texts(Dataset):
            def __init__(self, texts, tokenizer):
                self.texts = texts
                self.tokenizer = tokenizer

            def __len__(self):
                return len(self.texts)

            def __getitem__(self, index):
                return self.tokenizer(self.texts[index], truncation=True, padding="max_length")

        def make(texts, tokenizer):
            return DataLoader(
                Texts(texts, tokenizer),
                batch_size=16,  # fits 16 GB
            )
        """,
}
fixed = {
    "pictures from files": """
        from torch.utils.data import DataLoader
        from torchvision import transforms
        from torchvision.datasets import ImageFolder

        def main():
            train = ImageFolder("train", transforms.ToTensor())
            loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=4)
            return loader

        if __name__ == "__main__":
            main()
        """,
    "an explicit 0, by position": """
        import torch
        from PIL import Image

        class Pictures(torch.utils.data.Dataset):
            def __init__(self, paths):
                self.paths = paths

            def __len__(self):
                return len(self.paths)

            def __getitem__(self, index):
                return self.load(self.paths[index])

            def load(self, path):
                return Image.open(path).convert("RGB")

        loader = torch.utils.data.DataLoader(Pictures(paths), 32, True, None, None, 4)
        """,
    "split, and through a dictionary": """
        import torch
        from torch.utils import data
        from torchvision import datasets, transforms as T

        def loaders(root):
            full = datasets.CIFAR10(root, transform=T.Compose([T.RandomCrop(32), T.ToTensor()]))
            train, test = data.random_split(full, [45_000, 5_000])
            options = {"batch_size": 128, "num_workers": 4}
            return data.DataLoader(train, shuffle=True, **options), data.DataLoader(test, **options)
        """,
    "text that is tokenized": """
        from torch.utils.data import DataLoader, Dataset

        class Texts(Dataset):
            def __init__(self, texts, tokenizer):
                self.texts = texts
                self.tokenizer = tokenizer

            def __len__(self):
                return len(self.texts)

            def __getitem__(self, index):
                return self.tokenizer(self.texts[index], truncation=True, padding="max_length")

        def make(texts, tokenizer):
            return DataLoader(
                Texts(texts, tokenizer),
                batch_size=16,  # fits 16 GB
                num_workers=4,
            )
        """,
}
good = {
    "a file that shows its first samples": """
        import torch
        from PIL import Image
        from torch.utils.data import DataLoader, Dataset

        class Pictures(Dataset):
            def __getitem__(self, index):
                return Image.open(self.files[index])

            def __len__(self):
                return len(self.files)

        if __name__ == "__main__":
            loader = DataLoader(Pictures(), batch_size=1)
            for picture in loader:
                show(picture)
                break
        """,
    "tensors in memory": """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.randn(1000, 10), torch.randn(1000)), batch_size=64)
        """,
    "a data set that only indexes": """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Windows(Dataset):
            def __init__(self, path):
                self.tokens = torch.load(path)

            def __len__(self):
                return len(self.tokens) - 128

            def __getitem__(self, index):
                return self.tokens[index : index + 128], self.tokens[index + 1 : index + 129]

        loader = DataLoader(Windows("tokens.pt"), batch_size=64)
        """,
    "what the arguments hold is not known": """
        from torch.utils.data import DataLoader
        from torchvision.datasets import ImageFolder

        def make(root, transform, **kwargs):
            return DataLoader(ImageFolder(root, transform), **kwargs)
        """,
    "the data set comes from elsewhere": """
        import torch
        from torch.utils.data import DataLoader

        from data import make_dataset

        loader = DataLoader(make_dataset("train"), batch_size=64)
        """,
    "read once, and kept": """
        import numpy as np
        from torch.utils.data import DataLoader, Dataset

        class Cached(Dataset):
            def __init__(self, paths):
                self.paths = paths
                self.cache = {}

            def __len__(self):
                return len(self.paths)

            def __getitem__(self, index):
                if index not in self.cache:
                    self.cache[index] = np.load(self.paths[index])
                return self.cache[index]

        loader = DataLoader(Cached(paths), batch_size=64)
        """,
    "a transform that is not given": """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Table(Dataset):
            def __init__(self, rows, transform=None):
                self.rows = rows
                self.transform = transform

            def __len__(self):
                return len(self.rows)

            def __getitem__(self, index):
                row = self.rows[index]
                return self.transform(row) if self.transform else row

        loader = DataLoader(Table(torch.randn(1000, 8)), batch_size=64)
        """,
    "workers from the command line": """
        from torch.utils.data import DataLoader
        from torchvision.datasets import ImageFolder

        def make(root, transform, args):
            return DataLoader(ImageFolder(root, transform), args.batch_size, num_workers=args.workers)
        """,
    "an iterable data set that every worker would repeat": """
        from torch.utils.data import DataLoader, IterableDataset

        class Lines(IterableDataset):
            def __init__(self, path):
                self.path = path

            def __iter__(self):
                with open(self.path) as file:
                    yield from file

        loader = DataLoader(Lines("train.txt"), batch_size=64)
        """,
    "samples that are made on the device": """
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Frames(Dataset):
            def __init__(self, paths):
                self.paths = paths

            def __len__(self):
                return len(self.paths)

            def __getitem__(self, index):
                return torch.load(self.paths[index]).cuda()

        loader = DataLoader(Frames(paths), batch_size=64)
        """,
}
