"""Train a classifier of lines that begin a function."""

import argparse

import torch
from encoder import TextEncoder
from texts import Lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--static-shapes", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    lines = Lines()
    model = torch.compile(TextEncoder(), dynamic=False if options.static_shapes else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(options.epochs):
        for tokens, labels in lines.batches(options.batch_size, generator):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(tokens), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
