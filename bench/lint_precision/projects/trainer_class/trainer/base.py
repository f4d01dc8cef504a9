import torch


class BaseTrainer:
    def __init__(self, model, config, callbacks=()):
        self.model = model
        self.config = config
        self.callbacks = list(callbacks)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.rate, fused=True)
        self.running = 0.0

    def compute_loss(self, batch):
        raise NotImplementedError

    def fit(self, loader):
        for _ in range(self.config.epochs):
            for batch in loader:
                loss = self.train_step(batch)
                self.running += loss  # planted: HL501
                for callback in self.callbacks:
                    callback.after_step(self, loss)

    def train_step(self, batch):
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        self.optimizer.step()
        torch.cuda.synchronize()  # planted: HL206
        return loss
