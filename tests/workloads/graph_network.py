"""A graph network on the whole graph: one step an epoch, a sparse adjacency matrix, evaluation every epoch."""

import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(42)


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) * 0.1)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, input, adj):
        return torch.spmm(adj, input @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1 = GraphConvolution(30, 16)
        self.gc2 = GraphConvolution(16, 4)

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


nodes = 200
labels = torch.arange(nodes) % 4
features = torch.randn(nodes, 30) + F.one_hot(labels, 30)
edges = torch.randint(nodes, (2, 1500))
edges = torch.cat([edges, torch.arange(nodes).repeat(2, 1)], dim=1)
adj = torch.sparse_coo_tensor(edges, torch.full((edges.shape[1],), 0.1), (nodes, nodes)).coalesce()
train_nodes, test_nodes = torch.arange(100), torch.arange(100, 200)

model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
losses = []
for _ in range(args.epochs):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[train_nodes], labels[train_nodes])
    loss_train.backward()
    optimizer.step()
    losses.append(loss_train.item())
    model.eval()
    output = model(features, adj)
    accuracy = (output[test_nodes].argmax(1) == labels[test_nodes]).float().mean().item()

print(f"accuracy {accuracy:.3f}")
print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
