"""Fine-tune a small BERT to classify source code by package."""

import argparse

import torch
from snippets import PACKAGES, Snippets
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--log-every", type=int, default=50)
    return parser.parse_args()


def build_model(args):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=args.vocabulary,
            hidden_size=args.hidden,
            num_hidden_layers=args.layers,
            num_attention_heads=args.hidden // 64,
            intermediate_size=4 * args.hidden,
            max_position_embeddings=args.length,
            num_labels=len(PACKAGES),
        )
    )


def main():
    args = parse_arguments()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the other core is for the worker
    loader = DataLoader(
        Snippets(args.vocabulary, args.length),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
    )
    model = build_model(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=args.epochs * len(loader))
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(**batch).loss  # hint: reads-in-every-step
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % args.log_every == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}, lr {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
