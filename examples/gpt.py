"""Train a small GPT on the source code of Python's own standard library, byte by byte.

    python gpt.py                                            # small, fine on a laptop
    python gpt.py --layers 12 --hidden 768 --heads 12 --block-size 1024 --batch-size 8

Nothing is downloaded: the text is on every machine that has Python.
"""

import argparse
import math
import sysconfig
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--block-size", type=int, default=128)
parser.add_argument("--batch-size", type=int, default=6)
parser.add_argument("--accumulation", type=int, default=2, help="micro-batches per optimizer step")
parser.add_argument("--learning-rate", type=float, default=1e-3)
parser.add_argument("--warmup", type=int, default=50)
parser.add_argument("--grad-clip", type=float, default=1.0)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--eval-interval", type=int, default=250)
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"


def read_library(limit=4_000_000):
    text = b""
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += file.read_bytes()
        if len(text) > limit:
            break
    return np.frombuffer(text[:limit], dtype=np.uint8)


data = read_library()
boundary = int(0.9 * len(data))
splits = {"train": data[:boundary], "val": data[boundary:]}


def get_batch(split):
    source = splits[split]
    starts = torch.randint(len(source) - args.block_size - 1, (args.batch_size,))
    x = torch.stack([torch.from_numpy(source[i : i + args.block_size].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(source[i + 1 : i + 1 + args.block_size].astype(np.int64)) for i in starts])
    return x.to(device), y.to(device)


class Attention(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, dropout)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, block_size, layers, hidden, heads, dropout):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(block_size, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(hidden, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.apply(self.init_weights)

    def init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, x, targets=None):
        positions = torch.arange(x.shape[1], device=x.device)
        h = self.dropout(self.tokens(x) + self.positions(positions))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


@torch.no_grad()
def estimate_loss(batches=10):
    model.eval()
    means = {}
    for split in splits:
        losses = torch.zeros(batches)
        for k in range(batches):
            _, loss = model(*get_batch(split))
            losses[k] = loss.item()
        means[split] = losses.mean().item()
    model.train()
    return means


def get_lr(step):
    """Linear warm-up, then a cosine down to a tenth."""
    if step < args.warmup:
        return args.learning_rate * (step + 1) / args.warmup
    progress = min(1.0, (step - args.warmup) / max(1, args.steps - args.warmup))
    return args.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


model = GPT(256, args.block_size, args.layers, args.hidden, args.heads, args.dropout).to(device)
scaler = torch.amp.GradScaler(device, enabled=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
parameters = sum(p.numel() for p in model.parameters())
print(f"{len(data) / 1e6:.1f} M bytes, {parameters / 1e6:.2f} M parameters, on {device}")

x, y = get_batch("train")
started = time.time()
for step in range(args.steps):
    lr = get_lr(step)
    for group in optimizer.param_groups:
        group["lr"] = lr

    if step > 0 and step % args.eval_interval == 0:
        means = estimate_loss()
        print(f"step {step}: train loss {means['train']:.4f}, val loss {means['val']:.4f}")

    for _ in range(args.accumulation):
        _, loss = model(x, y)
        loss = loss / args.accumulation
        x, y = get_batch("train")
        scaler.scale(loss).backward()
    if args.grad_clip > 0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)

    if step % 50 == 0:
        print(f"step {step}  loss {loss.item() * args.accumulation:.4f}  lr {lr:.2e}  {time.time() - started:.1f} s")

means = estimate_loss()
print(f"done: train loss {means['train']:.4f}, val loss {means['val']:.4f}")
