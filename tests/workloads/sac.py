"""Three optimizers at different cadences; the agent acts with gradients on and no backward."""

import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--policy-frequency", type=int, default=2)
parser.add_argument("--learning-starts", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(1)


class SoftQNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 32)
        self.fc2 = nn.Linear(32, 1)

    def forward(self, x, a):
        return self.fc2(F.relu(self.fc1(torch.cat([x, a], 1))))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 32)
        self.mean = nn.Linear(32, 1)
        self.log_std = nn.Linear(32, 1)

    def get_action(self, x):
        h = F.relu(self.fc1(x))
        normal = torch.distributions.Normal(self.mean(h), self.log_std(h).clamp(-5, 2).exp())
        x_t = normal.rsample()
        action = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(1, keepdim=True)


def env_step(obs, action):
    """A point that is pushed left and right; it shall rest at the origin."""
    position, speed, clock = obs.unbind(-1)
    speed = 0.9 * speed + 0.1 * action.squeeze(-1)
    position = (position + speed).clamp(-2, 2)
    return torch.stack([position, speed, clock + 0.01], -1), -(position**2)


actor, qf1, qf2, qf1_target, qf2_target = Actor(), SoftQNetwork(), SoftQNetwork(), SoftQNetwork(), SoftQNetwork()
qf1_target.load_state_dict(qf1.state_dict())
qf2_target.load_state_dict(qf2.state_dict())
q_optimizer = torch.optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=1e-3)
actor_optimizer = torch.optim.Adam(list(actor.parameters()), lr=3e-4)
log_alpha = torch.zeros(1, requires_grad=True)
a_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)
alpha = log_alpha.exp().item()

buffer = []
losses, since_last_update = [], []
obs = torch.zeros(1, 3)
for global_step in range(args.learning_starts + args.steps):
    action, _ = actor.get_action(obs)
    action = action.detach()
    next_obs, reward = env_step(obs, action)
    buffer.append((obs[0], action[0], reward, next_obs[0]))
    obs = next_obs
    if global_step < args.learning_starts:
        continue

    picked = [buffer[i] for i in torch.randint(len(buffer), (16,)).tolist()]
    b_obs, b_action, b_reward, b_next = (torch.stack(column) for column in zip(*picked, strict=True))
    with torch.no_grad():
        next_action, next_log_pi = actor.get_action(b_next)
        q_next = torch.min(qf1_target(b_next, next_action), qf2_target(b_next, next_action))
        target = b_reward + 0.95 * (q_next - alpha * next_log_pi)
    qf_loss = F.mse_loss(qf1(b_obs, b_action), target) + F.mse_loss(qf2(b_obs, b_action), target)
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()
    since_last_update.append(qf_loss.item())
    losses.append(sum(since_last_update) / len(since_last_update))
    since_last_update = []

    if global_step % args.policy_frequency == 0:
        for _ in range(args.policy_frequency):
            pi, log_pi = actor.get_action(b_obs)
            actor_loss = (alpha * log_pi - torch.min(qf1(b_obs, pi), qf2(b_obs, pi))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            with torch.no_grad():
                _, log_pi = actor.get_action(b_obs)
            alpha_loss = (-log_alpha.exp() * (log_pi - 1)).mean()
            a_optimizer.zero_grad()
            alpha_loss.backward()
            a_optimizer.step()
            alpha = log_alpha.exp().item()
            since_last_update += [actor_loss.item(), alpha_loss.item()]

    for online, target_net in ((qf1, qf1_target), (qf2, qf2_target)):
        for param, target_param in zip(online.parameters(), target_net.parameters(), strict=True):
            target_param.data.copy_(0.005 * param.data + 0.995 * target_param.data)

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
