"""Rollouts under no_grad between bursts of steps; only methods of the module are used, never its call."""

import argparse
import json

import torch
from torch import nn
from torch.distributions.categorical import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=64)
args = parser.parse_args()
torch.manual_seed(1)

NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 4, 16, 4, 4


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def env_step(obs, action):
    position, speed, clock = obs.unbind(-1)
    speed = 0.9 * speed + 0.1 * (2 * action - 1)
    position = (position + speed).clamp(-2, 2)
    return torch.stack([position, speed, clock + 0.01], -1), -(position**2)


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
losses = []
next_obs = torch.zeros(NUM_ENVS, 3)
for _ in range(args.steps // (EPOCHS * MINIBATCHES)):
    obs, actions, logprobs, rewards, values = [], [], [], [], []
    for _ in range(ROLLOUT):
        obs.append(next_obs)
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
        next_obs, reward = env_step(next_obs, action)
        actions.append(action)
        logprobs.append(logprob)
        rewards.append(reward)
        values.append(value.flatten())
    with torch.no_grad():
        running = agent.get_value(next_obs).flatten()
    returns = []
    for reward in reversed(rewards):
        running = reward + 0.95 * running
        returns.insert(0, running)

    b_obs, b_actions, b_logprobs = torch.cat(obs), torch.cat(actions), torch.cat(logprobs)
    b_returns = torch.cat(returns)
    b_advantages = b_returns - torch.cat(values)
    for _ in range(EPOCHS):
        for mb in torch.randperm(len(b_obs)).chunk(MINIBATCHES):
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions[mb])
            ratio = (newlogprob - b_logprobs[mb]).exp()
            mb_advantages = b_advantages[mb]
            pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * ratio.clamp(0.8, 1.2)).mean()
            v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())

print(json.dumps({"steps": len(losses), "losses": losses[:10] + losses[-1:]}))
