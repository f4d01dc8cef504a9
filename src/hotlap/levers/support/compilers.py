"""Private settings of torch's compiler, used here and nowhere else. Not a lever itself."""

from __future__ import annotations


def set_activation_memory_budget(share: float) -> None:
    """Let graphs that are compiled from now on keep this share of the activations that they would keep.

    ``torch._functorch.config.activation_memory_budget`` (torch 2.4 to 2.13; private, with no public alternative): 0
    recomputes all, 1 is the default. The partitioner solves a knapsack over its estimates of run time.
    """
    import torch._functorch.config as config

    config.activation_memory_budget = share
