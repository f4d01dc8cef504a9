"""Q-learning from a replay buffer: trains at every second move, has a target network, acts greedily in between."""

import argparse
import collections
import json
import random

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
random.seed(2)
torch.manual_seed(2)


def make_network():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


q_network, target_network = make_network(), make_network()
target_network.load_state_dict(q_network.state_dict())
optimizer = torch.optim.Adam(q_network.parameters(), lr=2.5e-3)
replay = collections.deque(maxlen=1000)
losses = []
position, speed = 1.0, 0.0
move = 0
while len(losses) < args.steps:
    move += 1
    if random.random() < 0.2:
        action = random.randrange(2)
    else:
        action = q_network(torch.tensor([position, speed])).argmax().item()
    before = (position, speed)
    speed = 0.9 * speed + 0.1 * (2 * action - 1)
    position = max(-2.0, min(2.0, position + speed))
    replay.append((before, action, -(position**2), (position, speed)))

    if move > 32 and move % 2 == 0:
        obs, actions, rewards, next_obs = (
            torch.tensor(column) for column in zip(*random.sample(replay, 16), strict=True)
        )
        with torch.no_grad():
            target_max, _ = target_network(next_obs).max(dim=1)
            td_target = rewards + 0.95 * target_max
        old_val = q_network(obs).gather(1, actions.unsqueeze(1)).squeeze()
        loss = nn.functional.mse_loss(td_target, old_val)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) % 20 == 0:
            target_network.load_state_dict(q_network.state_dict())

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
