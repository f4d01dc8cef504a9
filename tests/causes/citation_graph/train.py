"""Classify papers by the papers that cite them."""

import torch
from graph import citations
from layers import MessagePassing
from torch import nn
from torch.nn import functional as F


class PaperNet(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.layers = nn.ModuleList([MessagePassing(features, width), MessagePassing(width, width)])
        self.head = nn.Linear(width, classes)

    def forward(self, graph):
        nodes = graph.features
        for layer in self.layers:
            nodes = F.relu(layer(nodes, graph.source, graph.target))
        return self.head(nodes)


def main(epochs=20_000):
    torch.manual_seed(3)
    graph = citations()
    model = PaperNet(graph.features.size(1), 96, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(epochs):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(graph), graph.labels)
        loss.backward()
        optimizer.step()
        if epoch % 500 == 0:
            print(f"{epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
