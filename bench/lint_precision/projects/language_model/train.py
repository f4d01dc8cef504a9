import torch
from model import LanguageModel
from reporting import Report, perplexity
from steps import forward_backward, update

CONFIG = {"words": 512, "device": "cuda", "steps": 1000, "accumulate": 4}


def batches(config):
    while True:
        tokens = torch.randint(config["words"], (8, 65), device=config["device"])
        yield tokens[:, :-1], tokens[:, 1:]


def train(config):
    model = LanguageModel(config["words"]).to(config["device"])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    report = Report()
    data = batches(config)
    smooth = 0.0
    curve = []
    for step in range(config["steps"]):
        for _ in range(config["accumulate"]):
            _, loss = forward_backward(model, *next(data), scale=config["accumulate"])
            report.add({"loss": loss})
            curve.append({"step": step, "loss": loss})  # planted: HL501
        stats = update(model, optimizer)
        print(step, stats["norm"].item())  # planted: HL201
        smooth = 0.99 * smooth + 0.01 * perplexity(loss)
    return curve


if __name__ == "__main__":
    train(CONFIG)
