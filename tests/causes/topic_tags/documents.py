"""Documents as logarithms of word counts, with the topics of their words."""

import torch


def documents(count, vocabulary, topics, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tags = (torch.rand(count, topics, generator=generator) < 0.2).float()
    words = torch.rand(topics, vocabulary, generator=generator) ** 8
    rates = tags @ words + 0.02
    return torch.log1p(torch.poisson(rates, generator=generator)), tags
