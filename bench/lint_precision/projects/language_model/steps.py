import torch


def forward_backward(model, tokens, targets, scale=1.0):
    logits, loss = model(tokens, targets)
    (loss / scale).backward()
    return logits, loss


def update(model, optimizer, limit=1.0):
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    optimizer.zero_grad()
    return {"norm": norm, "rate": optimizer.param_groups[0]["lr"]}
