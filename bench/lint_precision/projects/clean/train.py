import torch
from model import Net
from tools import Mean, log
from torch.utils.data import DataLoader
from trainer import Trainer


def main(data, device="cuda"):
    net = Net().to(device)
    loader = DataLoader(data, batch_size=8, num_workers=4, pin_memory=True, persistent_workers=True)
    trainer = Trainer(net, torch.optim.AdamW(net.parameters(), fused=True), Mean(), device)
    for epoch in range(3):
        trainer.epoch(loader)
        log(epoch, trainer.mean.value())
        print(epoch, trainer.last.item())
