import torch
from callbacks import EarlyStop, History
from config import Config
from torch import nn
from trainer.supervised import SupervisedTrainer


def build(config):
    return nn.Sequential(nn.Linear(config.width, 64), nn.ReLU(), nn.Linear(64, 10))


def main():
    config = Config()
    model = build(config).to(config.device)
    trainer = SupervisedTrainer(model, config, [History(), EarlyStop(config.limit)])
    trainer.fit(torch.load("train.pt"))


if __name__ == "__main__":
    main()
