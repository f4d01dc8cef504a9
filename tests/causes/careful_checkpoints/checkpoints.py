"""Save checkpoints and keep the last few."""

from pathlib import Path

import torch


class CheckpointManager:
    def __init__(self, folder, every=4, keep=2):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.every = every
        self.keep = keep
        self.saved = 0

    def maybe_save(self, step, **parts):
        if step % self.every == 0:
            self.save(step, parts)

    def save(self, step, parts):
        path = self.folder / f"last-{self.saved % self.keep}.pt"
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"step": step, **state}, path)  # planted: checkpoint-cost
        self.saved += 1
