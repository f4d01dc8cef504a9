"""After each epoch: an evaluation loop, the best weights saved, and loaded again at the end."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, labels in loader:
            correct += (model(inputs).argmax(dim=1) == labels).sum().item()
            total += len(labels)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(14)
    x = torch.randn(320, 10)
    y = x[:, :5].argmax(dim=1)
    train_loader = DataLoader(TensorDataset(x[:160], y[:160]), batch_size=16, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[160:], y[160:]), batch_size=16)
    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    best, losses = 0.0, []
    for epoch in range(args.epochs):
        model.train()
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        accuracy = evaluate(model, val_loader)
        print(f"epoch {epoch} accuracy {accuracy:.3f}")
        if accuracy > best:
            best = accuracy
            torch.save(model.state_dict(), "best.pt")
    model.load_state_dict(torch.load("best.pt"))
    print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:], "best": evaluate(model, val_loader)}))


if __name__ == "__main__":
    main()
