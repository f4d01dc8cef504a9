import lightning as L
import torch
from torch import nn

from app.metrics import Scores, regularised


class Classifier(L.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.scores = Scores()
        self.outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        loss = regularised(self.net, nn.functional.cross_entropy(logits, y))
        self.scores.add(logits, y)
        self.log("loss", loss.item())  # planted: HL201
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)
