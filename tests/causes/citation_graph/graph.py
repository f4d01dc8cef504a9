"""A random citation network: papers with features, edges from each to older ones."""

from dataclasses import dataclass

import torch


@dataclass
class Graph:
    features: torch.Tensor
    labels: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor

    @property
    def nodes(self):
        return len(self.features)


def citations(nodes=2000, edges=20_000, features=64, classes=6):
    labels = torch.randint(classes, (nodes,))
    centres = torch.randn(classes, features)
    return Graph(
        features=centres[labels] + 2 * torch.randn(nodes, features),
        labels=labels,
        source=torch.randint(nodes, (edges,)),
        target=torch.randint(nodes, (edges,)),
    )
