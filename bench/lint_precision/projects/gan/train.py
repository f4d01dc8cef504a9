import torch
from logs import Writer
from networks import Critic, Generator
from steps import critic_step, generator_step


def main(loader, device="cuda"):
    generator, critic = Generator().to(device), Critic().to(device)
    for_generator = torch.optim.AdamW(generator.parameters(), fused=True)
    for_critic = torch.optim.AdamW(critic.parameters(), fused=True)
    writer = Writer("run")
    for step, images in enumerate(loader):
        images = images.to(device)
        critic_loss = critic_step(critic, generator, for_critic, images)
        writer.scalar("critic", critic_loss, step)
        if step % 5 == 0:
            generator_loss = generator_step(critic, generator, for_generator, images)
            writer.scalar("generator", generator_loss, step)
