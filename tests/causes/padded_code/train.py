"""Do these lines define a function? A bag of characters answers."""

import torch
from collate import PadCollator
from corpus import LONGEST, Pieces
from torch import nn
from torch.utils.data import DataLoader


class BagOfCharacters(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.EmbeddingBag(129, width, mode="sum")
        self.head = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, tokens, mask):
        weights = mask / mask.sum(dim=1, keepdim=True).clamp(min=1)
        return self.head(self.embedding(tokens, per_sample_weights=weights))


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
            loss = criterion(logits, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} done")


if __name__ == "__main__":
    main()
