"""Train the controller on random starting positions."""

import argparse

import torch
from controller import Controller, Pendulum


def rollout(controller, pendulum, angle, speed, length):
    cost = torch.zeros(())
    for _ in range(length):
        torque = controller(angle, speed)
        angle, speed = pendulum.advance(angle, speed, torque)
        cost = cost + (angle.square() + 0.01 * speed.square()).mean()
    return cost / length


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    torch.manual_seed(0)
    controller, pendulum = Controller(), Pendulum()
    optimizer = torch.optim.Adam(controller.parameters(), lr=1e-3, fused=True)
    for step in range(options.steps):
        angle = 0.5 * torch.randn(options.batch_size)
        optimizer.zero_grad()
        cost = rollout(controller, pendulum, angle, torch.zeros_like(angle), options.length)
        cost.backward()
        optimizer.step()
        if step % 500 == 0:
            print(f"step {step}: {cost.item():.4f}")


if __name__ == "__main__":
    main()
