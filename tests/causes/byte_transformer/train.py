"""Train a small language model on bytes of source text."""

import argparse

import torch
from corpus import batches, read_bytes
from model import ByteTransformer
from torch.nn import functional as F


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = ByteTransformer(length=args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    stream = batches(read_bytes(), args.batch_size, args.length, args.seed)
    for step, (tokens, targets) in zip(range(args.steps), stream, strict=False):
        optimizer.zero_grad()
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
