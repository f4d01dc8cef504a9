"""Train a language model that is made from a transformers configuration, on random tokens."""

from __future__ import annotations

import argparse

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main() -> None:
    """Parse the sizes, and take some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="gpt2")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--optimizer", choices=("AdamW", "SGD"), default="AdamW")
    parser.add_argument("--dtype", default="float32")
    choices = parser.parse_args()
    sizes = (
        {"n_layer": choices.layers, "n_embd": choices.hidden, "n_head": choices.heads}
        if choices.kind == "gpt2"
        else {
            "num_hidden_layers": choices.layers,
            "hidden_size": choices.hidden,
            "num_attention_heads": choices.heads,
            "num_key_value_heads": choices.heads,
            "intermediate_size": 4 * choices.hidden,
        }
    )
    config = AutoConfig.for_model(choices.kind, use_cache=False, **sizes)
    torch.set_default_dtype(getattr(torch, choices.dtype))
    model = AutoModelForCausalLM.from_config(config)
    model.train()
    optimizer = getattr(torch.optim, choices.optimizer)(model.parameters(), lr=1e-4)
    while True:
        tokens = torch.randint(config.vocab_size, (choices.batch_size, choices.length))
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
