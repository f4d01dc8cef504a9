"""A script that does what few training scripts do, in its training steps; it prints what comes of each, as one line.

Each of the first steps does the same; with ``--also compiled optimizers``, these too. The loss of step
``--nan-at`` is NaN, and ``--why`` prints the traceback of what failed.
"""

import argparse
import traceback
import warnings

import compiled_and_traced
import gradients_and_tensors
import models
import torch
import torch.nn.functional as F
from common import CASES
from torch import nn

warnings.simplefilter("ignore")
STEPS_WITH_ALL = 6
COMPUTATIONS = (gradients_and_tensors, compiled_and_traced, models)  # whose import lists what they do


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--also", nargs="*", default=[], choices=["compiled", "optimizers"])
    parser.add_argument("--nan-at", type=int, default=-1)
    parser.add_argument("--why", action="store_true")
    options = parser.parse_args()
    cases = [one for group in ("", *options.also) for one in CASES[group]]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(options.steps):
        loss = F.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
        if step == options.nan_at:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        if step < STEPS_WITH_ALL:
            do_all(step, cases, options.why)
        optimizer.step()


def do_all(step, cases, why):
    for number, one in enumerate(cases):
        with torch.random.fork_rng():
            torch.manual_seed(number)
            try:
                came = f"{one().detach().double().sum().item():.9e}"
            except Exception as error:
                came = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
                if why:
                    traceback.print_exc()
        print("came", step, one.__name__, came, flush=True)


if __name__ == "__main__":
    main()
