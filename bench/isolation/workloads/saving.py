"""A checkpoint of 4 MiB over the one before, and a line in a log, in every step."""

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(1024, 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(64, 1024)
step = 0
while True:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "last.pt")
    with open("log.csv", "a") as log:  # noqa: PTH123 (as people write it)
        log.write(f"{step},{loss.item()}\n")
    step += 1
