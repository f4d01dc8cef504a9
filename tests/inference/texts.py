"""A small language model as a user of ``hotlap infer`` writes it, with random weights; run, a script that uses it."""

from __future__ import annotations

from typing import Any

import torch


def language_model() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=96, eos_token_id=96, pad_token_id=96
    )
    return GPT2LMHeadModel(config).eval()


def prompts() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(0, 96, (1, 3 + number), generator=generator) for number in range(4)]
    return [
        {"input_ids": it, "attention_mask": torch.ones_like(it), "max_new_tokens": 5, "min_new_tokens": 5}
        for it in rows
    ]


def main() -> None:
    model: Any = language_model()
    while True:
        for it in prompts():
            model.generate(**it, do_sample=False)


if __name__ == "__main__":
    main()
