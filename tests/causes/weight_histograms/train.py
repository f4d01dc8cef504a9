"""Compress the digits with an autoencoder, and log its weights."""

import argparse
import tempfile

import torch
from callbacks import StopAfter, TensorBoard
from sklearn.datasets import load_digits
from torch import nn


class Trainer:
    def __init__(self, model, data, callbacks, lr):
        self.model = model
        self.data = data
        self.callbacks = callbacks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
        self.loss = None
        self.step = 0
        self.running = True

    def fit(self):
        while self.running:
            batch = self.data[torch.randint(len(self.data), (256,))]
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.mse_loss(self.model(batch), batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.loss = loss.detach()
            self.step += 1
            for callback in self.callbacks:
                callback.after_step(self)
        for callback in self.callbacks:
            callback.close()


def autoencoder(width, code):
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, code), nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 64)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", default=tempfile.mkdtemp(prefix="digits-"))
    parser.add_argument("--steps", type=int, default=50_000)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    callbacks = [TensorBoard(options.logs), StopAfter(options.steps)]
    Trainer(autoencoder(512, 16), digits, callbacks, lr=1e-3).fit()
