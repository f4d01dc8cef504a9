"""How much of a reference a generated sequence repeats."""

from collections import Counter


class OverlapScore:
    """The share of reference pairs of tokens that the prediction contains, averaged over samples."""

    def __init__(self, padding=0):
        self.padding = padding
        self.total = 0.0
        self.samples = 0

    def pairs(self, tokens):
        kept = [token for token in tokens if token != self.padding]
        return Counter((kept[i], kept[i + 1]) for i in range(len(kept) - 1))  # planted: python-overhead

    def update(self, predicted, references):
        rows = zip(predicted.tolist(), references.tolist(), strict=True)  # hint: reads-in-every-step
        for prediction, reference in rows:
            found, wanted = self.pairs(prediction), self.pairs(reference)
            self.total += sum((found & wanted).values()) / max(sum(wanted.values()), 1)
            self.samples += 1

    def compute(self):
        return self.total / max(self.samples, 1)
