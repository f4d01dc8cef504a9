"""Running figures for the progress bar."""


class ConfusionMatrix:
    """Rows are true classes, columns predicted ones."""

    def __init__(self, classes):
        self.counts = [[0] * classes for _ in range(classes)]

    def update(self, predicted, labels):
        for guess, label in zip(predicted, labels, strict=True):
            self.counts[int(label)][int(guess)] += 1  # planted: python-overhead

    def accuracy(self):
        right = sum(self.counts[it][it] for it in range(len(self.counts)))
        return right / max(1, sum(map(sum, self.counts)))


class Average:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1

    def value(self):
        return self.total / max(1, self.count)
