"""Batches of sentences of unequal length."""

import torch


class PadCollator:
    def __init__(self, pad_id, length):
        self.pad_id = pad_id
        self.length = length

    def __call__(self, samples):  # planted: slow-transform
        tokens, mask, labels = [], [], []
        for sentence, label in samples:
            row, row_mask = [], []
            for position in range(self.length):
                if position < len(sentence):
                    row.append(sentence[position])
                    row_mask.append(1.0)
                else:
                    row.append(self.pad_id)
                    row_mask.append(0.0)
            tokens.append(row)
            mask.append(row_mask)
            labels.append(label)
        return {"tokens": torch.tensor(tokens), "mask": torch.tensor(mask), "labels": torch.tensor(labels)}
