import torch


class Trainer:
    def __init__(self, net, optimizer, mean, device):
        self.net, self.optimizer, self.mean, self.device = net, optimizer, mean, device
        self.last = None

    def epoch(self, loader):
        self.net.train()
        for step, batch in enumerate(loader):
            x, y = (it.to(self.device, non_blocking=True) for it in batch)
            self.optimizer.zero_grad()
            loss = self.net(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()
            self.last = loss.detach()
            self.mean.add(self.last)
            if step % 100 == 0:
                torch.cuda.synchronize()
                print(step, loss.item())
                if torch.isnan(loss):
                    raise RuntimeError("NaN")
