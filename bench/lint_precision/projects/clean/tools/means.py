class Mean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value):
        self.total = self.total + value
        self.count += 1

    def value(self):
        return float(self.total) / self.count
