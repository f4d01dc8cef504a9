"""Hash the words of sentences in the collator, so that the dataset stays small."""

import torch

OFFSET, PRIME, MASK_32 = 2166136261, 16777619, 0xFFFFFFFF


def fnv1a(text):  # planted: slow-transform
    """Return the Fowler-Noll-Vo hash of a text."""
    value = OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * PRIME) & MASK_32
    return value


class HashingCollator:
    """Map each word to the smallest hash of its trigrams, so that similar words often agree."""

    def __init__(self, buckets, length):
        self.buckets = buckets
        self.length = length

    def word_id(self, word):
        padded = f"<{word}>"
        return min(fnv1a(padded[start : start + 3]) for start in range(len(padded) - 2)) % (self.buckets - 1) + 1

    def __call__(self, samples):
        rows = []
        for sample in samples:
            ids = [self.word_id(word) for word in sample["text"].split()[: self.length]]
            rows.append(ids + [0] * (self.length - len(ids)))
        tokens = torch.tensor(rows)
        labels = torch.tensor([sample["label"] for sample in samples])
        return {"input_ids": tokens, "attention_mask": (tokens > 0).long(), "labels": labels}
