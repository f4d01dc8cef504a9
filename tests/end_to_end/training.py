"""A small training as people write it, with one bug to switch on: the script of the parity tests."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BUGS = ("none", "no-zero-grad", "over-clipping", "learning-rate", "no-decay", "eval-mode", "same-batch", "pure-bf16")

parser = argparse.ArgumentParser()
parser.add_argument("--bug", choices=BUGS, default="none")
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.dropout = nn.Dropout(0.1)
        self.classify = nn.Linear(32, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.classify(self.dropout(self.features(pictures).mean(dim=(2, 3))))


pictures = torch.randn(2048, 3, 16, 16)
labels = (pictures.mean(dim=(2, 3)) @ torch.randn(3, 10)).argmax(dim=1)
loader = DataLoader(TensorDataset(pictures, labels), batch_size=32, shuffle=True)
model = Network()
if args.bug == "pure-bf16":
    model.bfloat16()
rate = 2e-3 * (1.05 if args.bug == "learning-rate" else 1.0)
optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0 if args.bug == "no-decay" else 0.05)
criterion = nn.CrossEntropyLoss()

first = None
done = 0
while done < args.steps:
    for batch, targets in loader:
        first = first or (batch, targets)
        if args.bug == "same-batch" and done % 2:
            batch, targets = first
        if args.bug == "eval-mode":
            model.eval()
        if args.bug != "no-zero-grad":
            optimizer.zero_grad()
        if args.bug == "pure-bf16":
            batch = batch.bfloat16()
        loss = criterion(model(batch), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1 if args.bug == "over-clipping" else 1.0)
        optimizer.step()
        done += 1
