class Callback:
    def after_step(self, trainer, loss):
        pass


class History(Callback):
    def __init__(self):
        self.values = []

    def after_step(self, trainer, loss):
        self.values.append(float(loss))  # planted: HL201


class EarlyStop(Callback):
    def __init__(self, limit):
        self.limit = limit

    def after_step(self, trainer, loss):
        if loss > self.limit:  # planted: HL207
            raise StopIteration
