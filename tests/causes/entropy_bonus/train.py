"""Learns which arm of a bandit to pull in each context."""

from dataclasses import dataclass

import torch
from losses import PolicyLoss
from torch import nn


@dataclass
class Settings:
    contexts: int = 128
    arms: int = 12
    width: int = 768
    batch_size: int = 512
    learning_rate: float = 0.5
    bonus: float = 0.001
    rounds: int = 100_000


class Bandit:
    def __init__(self, settings):
        self.size = settings.batch_size
        self.best = torch.randn(settings.contexts, settings.arms)

    def play(self, policy):
        contexts = torch.randn(self.size, len(self.best))
        logits = policy(contexts)
        actions = torch.distributions.Categorical(logits=logits.detach().float(), validate_args=False).sample()
        rewards = (contexts @ self.best).gather(1, actions[:, None]).squeeze(1)
        return logits, actions, rewards - rewards.mean()


def main(settings):
    torch.manual_seed(0)
    policy = nn.Sequential(
        nn.Linear(settings.contexts, settings.width),
        nn.ReLU(),
        nn.Linear(settings.width, settings.width),
        nn.ReLU(),
        nn.Linear(settings.width, settings.arms),
    )
    bandit = Bandit(settings)
    criterion = PolicyLoss(settings.bonus)
    optimizer = torch.optim.SGD(policy.parameters(), lr=settings.learning_rate, fused=True)
    for turn in range(settings.rounds):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits, actions, advantages = bandit.play(policy)
        loss = criterion(logits, actions, advantages)
        loss.backward()
        optimizer.step()
        if turn % 250 == 0:
            print(f"round {turn}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(Settings())
