from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.layer(x), y)
