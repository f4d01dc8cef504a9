"""Whole words masked, as BERT wants them."""

import random

import torch

MASK, IGNORED = 3, -100


class WholeWordMask:
    """Mask words with a given probability; a word begins where its token is odd."""

    def __init__(self, probability, seed=0):
        self.probability = probability
        self.random = random.Random(seed)

    def __call__(self, samples):  # planted: slow-transform
        inputs, labels = [], []
        for sample in samples:
            tokens = sample["input_ids"]
            masked, wanted, in_masked_word = [], [], False
            for token in tokens:
                if token % 2 == 1:
                    in_masked_word = self.random.random() < self.probability
                if in_masked_word:
                    masked.append(MASK)
                    wanted.append(token)
                else:
                    masked.append(token)
                    wanted.append(IGNORED)
            inputs.append(masked)
            labels.append(wanted)
        return {"input_ids": torch.tensor(inputs), "labels": torch.tensor(labels)}
