"""Classify sentences with a tiny BERT and the Trainer of transformers."""

import random
import tempfile

import torch
from collator import HashingCollator
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

SYLLABLES = ["ba", "do", "ki", "lu", "mer", "nas", "or", "pel", "qui", "ras", "ta", "ven"]


class Sentences(Dataset):
    """Sentences of an invented language; the label is whether the first word is long."""

    def __init__(self, count, length):
        drawn = random.Random(0)
        words = ["".join(drawn.choices(SYLLABLES, k=drawn.randint(2, 5))) for _ in range(3000)]
        self.sentences = [drawn.choices(words, k=length) for _ in range(count)]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        words = self.sentences[index]
        return {"text": " ".join(words), "label": int(len(words[0]) > 8)}


def main(buckets=2048, length=48):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=buckets,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=length,
        num_labels=2,
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
            logging_steps=500,  # hint: reads-in-every-step
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=arguments,
            train_dataset=Sentences(8192, length),
            data_collator=HashingCollator(buckets, length),
        )
        trainer.train()  # planted: no-workers, loader-bound


if __name__ == "__main__":
    main()
