"""Train a BERT classifier to tell which package of Python's standard library a piece of code is from.

    python bert.py                            # a small BERT, fine on a laptop
    python bert.py --layers 12 --hidden 768   # BERT-base

The weights start random and the text is on every machine that has Python, so nothing is downloaded.
"""

import argparse
import collections
import random
import re
import sysconfig
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification

PACKAGES = [
    "asyncio",
    "concurrent",
    "ctypes",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "xml",
]
PADDING, UNKNOWN, CLASSIFY = 0, 1, 2


def read_snippets(lines_per_snippet):
    """Pieces of source code, each with the number of the package it is from."""
    library = Path(sysconfig.get_paths()["stdlib"])
    snippets = []
    for label, package in enumerate(PACKAGES):
        for file in sorted((library / package).rglob("*.py")):
            lines = [line for line in file.read_text(encoding="utf-8", errors="ignore").splitlines() if line.strip()]
            for start in range(0, len(lines) - lines_per_snippet, 2):
                snippets.append(("\n".join(lines[start : start + lines_per_snippet]), label))
    return snippets


def split_words(text):
    return re.findall(r"[A-Za-z]+|\d|[^\sA-Za-z\d]", text.lower())


def build_vocabulary(snippets, size):
    counts = collections.Counter(word for text, _ in snippets for word in split_words(text))
    return {word: number + 3 for number, (word, _) in enumerate(counts.most_common(size - 3))}


class SnippetDataset(Dataset):
    def __init__(self, snippets, vocabulary, sequence_length):
        self.snippets = snippets
        self.vocabulary = vocabulary
        self.sequence_length = sequence_length

    def __len__(self):
        return len(self.snippets)

    def __getitem__(self, index):
        text, label = self.snippets[index]
        tokens = [CLASSIFY] + [self.vocabulary.get(word, UNKNOWN) for word in split_words(text)]
        tokens = tokens[: self.sequence_length]
        padding = self.sequence_length - len(tokens)
        return {
            "input_ids": torch.tensor(tokens + [PADDING] * padding),
            "attention_mask": torch.tensor([1] * len(tokens) + [0] * padding),
            "labels": torch.tensor(label),
        }


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = total = 0
    for batch in loader:
        labels = batch.pop("labels").to(device)
        inputs = {name: tensor.to(device) for name, tensor in batch.items()}
        correct += (model(**inputs).logits.argmax(dim=-1) == labels).sum().item()
        total += len(labels)
    model.train()
    return correct / total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--sequence-length", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    snippets = read_snippets(lines_per_snippet=6)
    random.shuffle(snippets)
    vocabulary = build_vocabulary(snippets, args.vocabulary)
    held_out = SnippetDataset(snippets[:512], vocabulary, args.sequence_length)
    training = SnippetDataset(snippets[512:], vocabulary, args.sequence_length)
    train_loader = DataLoader(training, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(held_out, batch_size=args.batch_size)

    config = BertConfig(
        vocab_size=args.vocabulary,
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=max(1, args.hidden // 64),
        intermediate_size=4 * args.hidden,
        max_position_embeddings=max(512, args.sequence_length),
        num_labels=len(PACKAGES),
        pad_token_id=PADDING,
    )
    model = BertForSequenceClassification(config).to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(training)} snippets, {parameters / 1e6:.1f} M parameters, on {device}")

    step = 0
    started = time.time()
    for epoch in range(args.epochs):
        for batch in train_loader:
            labels = batch.pop("labels").to(device)
            inputs = {name: tensor.to(device) for name, tensor in batch.items()}
            optimizer.zero_grad()
            outputs = model(**inputs, labels=labels)
            loss = outputs.loss
            loss.backward()
            optimizer.step()

            step += 1
            if step % 100 == 0:
                print(f"epoch {epoch + 1}  step {step}  loss {loss.item():.4f}  {time.time() - started:.1f} s")
            if step == args.steps:
                break
        print(f"epoch {epoch + 1}  accuracy {evaluate(model, test_loader, device):.3f}")
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
