"""Save the whole training state after every tenth step."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
inputs = torch.randn(32, 1024)
for step in range(100_000):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), inputs).backward()
    optimizer.step()
    if step % 10 == 9:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "last.pt")  # planted: checkpoint-cost
