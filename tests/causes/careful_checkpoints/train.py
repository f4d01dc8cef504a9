"""A character model of the standard library's source."""

import argparse
import inspect
import tempfile

import torch
from checkpoints import CheckpointManager
from torch import nn


class CharacterModel(nn.Module):
    def __init__(self, context=32, width=32, hidden=1536):
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.layers = nn.Sequential(nn.Linear(context * width, hidden), nn.ReLU(), nn.Linear(hidden, 128))

    def forward(self, characters):
        return self.layers(self.embedding(characters).flatten(1))


def batches(text, context, size):
    while True:
        starts = torch.randint(len(text) - context - 1, (size, 1))
        window = text[starts + torch.arange(context + 1)]
        yield window[:, :-1], window[:, -1]


def main(steps=100_000, context=32):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = torch.tensor([min(ord(it), 127) for it in inspect.getsource(argparse)])
    model = CharacterModel(context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = CheckpointManager(folder)
        for step, (inputs, targets) in enumerate(batches(text, context, size=32), start=1):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            checkpoints.maybe_save(step, model=model, optimizer=optimizer, scheduler=scheduler)
            if step == steps:
                break


if __name__ == "__main__":
    main()
