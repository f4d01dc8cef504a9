"""Batches are dicts, the model has several inputs, and the loss is an attribute of its output."""

import argparse
import json
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class Pairs(Dataset):
    def __init__(self, size):
        self.left = torch.randint(30, (size, 6))
        self.right = torch.randint(30, (size, 6))

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        label = (self.left[index, 0] > self.right[index, 0]).long()
        return {"left": self.left[index], "right": self.right[index], "labels": label}


class Compare(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(30, 16)
        self.classifier = nn.Bilinear(16, 16, 2)

    def forward(self, left, right, labels=None):
        logits = self.classifier(self.embedding(left), self.embedding(right))
        return Output(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(11)
    loader = DataLoader(Pairs(12 * args.steps), batch_size=12, shuffle=True)
    model = Compare()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in loader:
        batch = {key: value.to("cpu") for key, value in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))


if __name__ == "__main__":
    main()
