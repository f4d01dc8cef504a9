import lightning as L
import torch
from app.module import Classifier
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(8, 2)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
L.Trainer(accelerator="gpu", max_epochs=1).fit(Classifier(net), DataLoader(data, batch_size=8))
