"""Train an LSTM language model on the words of Python's own standard library.

    python lstm.py                                             # small, fine on a laptop
    python lstm.py --hidden 650 --embedding 650 --layers 2     # a medium one
    python lstm.py --optimizer sgd --learning-rate 5           # plain gradient descent, written by hand

Nothing is downloaded: the text is on every machine that has Python.
"""

import argparse
import collections
import math
import re
import sysconfig
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def read_words(limit=600_000):
    words = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        words += re.findall(r"\w+|[^\w\s]|\n", file.read_text(encoding="utf-8", errors="ignore"))
        if len(words) > limit:
            break
    return words[:limit]


class WordDataset(Dataset):
    """Windows of consecutive words; the target is the same window one word later."""

    def __init__(self, numbers, length):
        self.numbers = numbers
        self.length = length

    def __len__(self):
        return (len(self.numbers) - 1) // self.length

    def __getitem__(self, index):
        start = index * self.length
        window = torch.tensor(self.numbers[start : start + self.length + 1])
        return window[:-1], window[1:]


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, embedding, hidden, layers, dropout):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, dropout=dropout, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, words):
        output, _ = self.lstm(self.drop(self.encoder(words)))
        return self.decoder(self.drop(output))


def evaluate(model, loader, criterion, device):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for words, targets in loader:
            logits = model(words.to(device))
            total += criterion(logits.flatten(0, 1), targets.to(device).flatten()).item()
    return total / len(loader)


def train(model, loader, criterion, optimizer, args, device, epoch, step):
    model.train()
    total_loss = 0.0
    started = time.time()
    for words, targets in loader:
        words, targets = words.to(device), targets.to(device)
        model.zero_grad()
        logits = model(words)
        loss = criterion(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        if optimizer is None:
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-args.learning_rate)
        else:
            optimizer.step()
        total_loss += loss.item()

        step += 1
        if step % args.log_interval == 0:
            mean = total_loss / args.log_interval
            milliseconds = 1000 * (time.time() - started) / args.log_interval
            print(f"epoch {epoch}  step {step}  {milliseconds:.1f} ms  loss {mean:.3f}  ppl {math.exp(mean):.1f}")
            total_loss = 0.0
            started = time.time()
        if step == args.steps:
            break
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedding", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--sequence-length", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--log-interval", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1111)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    words = read_words()
    common = collections.Counter(words).most_common(args.vocabulary - 1)
    number_of = {word: number + 1 for number, (word, _) in enumerate(common)}
    numbers = [number_of.get(word, 0) for word in words]
    boundary = int(0.95 * len(numbers))
    train_data = WordDataset(numbers[:boundary], args.sequence_length)
    valid_data = WordDataset(numbers[boundary:], args.sequence_length)
    train_loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_data, batch_size=args.batch_size)

    model = LanguageModel(args.vocabulary, args.embedding, args.hidden, args.layers, args.dropout).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = None
    if args.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(train_data)} windows, {parameters / 1e6:.2f} M parameters, on {device}")

    step = 0
    for epoch in range(1, args.epochs + 1):
        step = train(model, train_loader, criterion, optimizer, args, device, epoch, step)
        loss = evaluate(model, valid_loader, criterion, device)
        print(f"epoch {epoch}  valid loss {loss:.3f}  valid ppl {math.exp(loss):.1f}")
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
