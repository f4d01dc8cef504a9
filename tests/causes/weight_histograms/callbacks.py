"""Callbacks that run after each step."""

from torch.utils.tensorboard import SummaryWriter


class Callback:
    def after_step(self, trainer):
        """Run after each step."""

    def close(self):
        """Run at the end."""


class TensorBoard(Callback):
    """Write losses, gradients and weights for TensorBoard."""

    def __init__(self, folder):
        self.writer = SummaryWriter(folder)

    def after_step(self, trainer):
        self.writer.add_scalar("loss", trainer.loss, trainer.step)
        for name, parameter in trainer.model.named_parameters():
            self.writer.add_histogram(f"weights/{name}", parameter, trainer.step)  # planted: logging-cost
        self.writer.flush()

    def close(self):
        self.writer.close()


class StopAfter(Callback):
    def __init__(self, steps):
        self.steps = steps

    def after_step(self, trainer):
        trainer.running = trainer.step < self.steps
