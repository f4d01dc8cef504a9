"""A few epochs on digits, as for a quick experiment."""

import torch
from digits import load
from torch import nn

EPOCHS = 8
BATCH_SIZE = 64


def build():
    layers = [nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
    for _ in range(3):
        layers += [nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 64, 10))


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        correct = (model(images).argmax(dim=1) == labels).float().mean()
    model.train()
    return correct.item()


def main():
    torch.manual_seed(0)
    (images, labels), held_out = load()
    network = build()
    model = torch.compile(network)  # planted: compile-never-pays
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, fused=True)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH_SIZE)[:-1]:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
    print(f"accuracy: {accuracy(network, *held_out):.3f}")


if __name__ == "__main__":
    main()
