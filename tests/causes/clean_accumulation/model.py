import torch
from torch import nn


class ByteClassifier(nn.Module):
    """Classify blocks of bytes by package."""

    def __init__(self, length, width, layers, classes):
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, values):
        return self.head(self.encoder(self.bytes(values) + self.positions).mean(dim=1))
