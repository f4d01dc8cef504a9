"""Overlap of generated sequences with their references."""

from collections import Counter


class OverlapScore:
    """The share of a reference's n-grams that the prediction contains, averaged over samples."""

    def __init__(self, longest=4, padding=0):
        self.longest = longest
        self.padding = padding
        self.total = 0.0
        self.samples = 0

    def grams(self, tokens):
        kept = tuple(token for token in tokens if token != self.padding)
        counts = Counter()
        for length in range(1, self.longest + 1):
            counts.update(kept[i : i + length] for i in range(len(kept) - length + 1))  # planted: python-overhead
        return counts

    def update(self, predicted, references):
        rows = zip(predicted.tolist(), references.tolist(), strict=True)  # hint: reads-in-every-step
        for prediction, reference in rows:
            found, wanted = self.grams(prediction), self.grams(reference)
            self.total += sum((found & wanted).values()) / max(sum(wanted.values()), 1)
            self.samples += 1

    def compute(self):
        return self.total / max(self.samples, 1)
