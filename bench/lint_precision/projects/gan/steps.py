import torch


def critic_step(critic, generator, optimizer, images):
    noise = torch.randn(len(images), 16).to(images.device)  # planted: HL603
    with torch.no_grad():
        made = generator(noise)
    loss = critic(made).mean() - critic(images).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()  # planted: HL502
    return loss


def generator_step(critic, generator, optimizer, images):
    noise = torch.randn(len(images), 16, device=images.device)
    loss = -critic(generator(noise)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
