"""Classify lines of code by whether they define a function, with a bag of characters."""

import torch
from collate import PadCollator
from corpus import LONGEST, Pieces
from torch import nn
from torch.utils.data import DataLoader


class BagOfCharacters(nn.Module):
    def __init__(self, hidden=768):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(129, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )

    def forward(self, tokens, mask):
        counts = mask.new_zeros(len(tokens), 129).scatter_add(1, tokens, mask)
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(counts / mask.sum(dim=1, keepdim=True).clamp(min=1))


def main(epochs=300):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    collate = PadCollator(pad_id=128, length=LONGEST)
    loader = DataLoader(  # planted: loader-bound
        Pieces(), batch_size=64, shuffle=True, collate_fn=collate, num_workers=1, persistent_workers=True
    )
    model = BagOfCharacters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for batch in loader:
            logits = model(batch["tokens"], batch["mask"])
            loss = criterion(logits.float(), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} done")


if __name__ == "__main__":
    main()
