"""The Trainer of transformers: it fetches all micro-batches of a step before their forwards."""

import argparse
import json
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Tokens(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(3, 64, (size, 16), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index, 0] % 2}


class Losses(TrainerCallback):
    def __init__(self):
        self.values = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.values.append(float(logs["loss"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2
    )
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    losses = Losses()
    with tempfile.TemporaryDirectory() as folder:
        training_args = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        trainer = Trainer(model=model, args=training_args, train_dataset=Tokens(640), callbacks=[losses])
        trainer.train()
        steps = trainer.state.global_step
    print(json.dumps({"steps": steps, "losses": losses.values[:10] + losses.values[-1:]}))


if __name__ == "__main__":
    main()
