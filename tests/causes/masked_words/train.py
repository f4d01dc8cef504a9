"""Pre-train a tiny BERT with the Trainer of transformers."""

import random
import tempfile

import torch
from collator import WholeWordMask
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments


class Sentences(Dataset):
    """Sentences of an invented language."""

    def __init__(self, count, length, vocabulary):
        drawn = random.Random(0)
        self.sentences = [[drawn.randrange(4, vocabulary) for _ in range(length)] for _ in range(count)]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        return {"input_ids": self.sentences[index]}


def main(vocabulary=64, length=128):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=length,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=32,
            num_train_epochs=50,
            use_cpu=True,
            bf16=True,
            optim="adamw_torch_fused",
            save_strategy="no",
            report_to="none",
            logging_steps=500,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=BertForMaskedLM(config),
            args=arguments,
            train_dataset=Sentences(8192, length, vocabulary),
            data_collator=WholeWordMask(0.15),
        )
        trainer.train()  # planted: no-workers, loader-bound


if __name__ == "__main__":
    main()
