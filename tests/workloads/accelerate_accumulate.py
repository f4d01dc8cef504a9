"""Accelerate's accumulate(): optimizer.step() is called at every micro-batch, but taken at every fourth."""

import argparse
import json

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size, steps):
    x = torch.randn(batch_size * steps, 12)
    y = (x.sum(dim=1) > 0).long()
    train = DataLoader(TensorDataset(x, y), shuffle=True, batch_size=batch_size, num_workers=0)
    evaluate = DataLoader(TensorDataset(x[:64], y[:64]), shuffle=False, batch_size=32, num_workers=0)
    return train, evaluate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    accumulation = 4
    accelerator = Accelerator(gradient_accumulation_steps=accumulation)
    set_seed(42)
    train_dataloader, eval_dataloader = get_dataloaders(8, accumulation * args.steps)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=1e-2)
    lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )

    losses = []
    running = 0.0
    model.train()
    for x, y in train_dataloader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            running += loss.item() / accumulation
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            losses.append(running)
            running = 0.0

    model.eval()
    correct = 0
    for x, y in eval_dataloader:
        with torch.no_grad():
            predictions, references = accelerator.gather_for_metrics((model(x).argmax(dim=-1), y))
        correct += (predictions == references).sum().item()
    accelerator.print(f"accuracy {correct / 64:.3f}")
    print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))


if __name__ == "__main__":
    main()
