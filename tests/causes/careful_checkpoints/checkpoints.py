"""Checkpoints, of which the last few are kept."""

from collections import deque
from pathlib import Path

import torch


class CheckpointManager:
    def __init__(self, folder, every=4, keep=2):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.every = every
        self.keep = keep
        self.saved = deque()

    def maybe_save(self, step, **parts):
        if step % self.every == 0:
            self.save(step, parts)

    def save(self, step, parts):
        path = self.folder / f"step-{step:06d}.pt"
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"step": step, **state}, path)  # planted: checkpoint-cost
        self.saved.append(path)
        while len(self.saved) > self.keep:
            self.saved.popleft().unlink()
