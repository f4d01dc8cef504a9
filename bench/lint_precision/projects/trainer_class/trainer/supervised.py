import torch.nn.functional as F

from trainer.base import BaseTrainer


class SupervisedTrainer(BaseTrainer):
    def compute_loss(self, batch):
        x, y = (it.to(self.config.device) for it in batch)
        scores = self.model(x)
        self.right = (scores.argmax(1) == y).sum().item()  # planted: HL201
        return F.cross_entropy(scores, y)
