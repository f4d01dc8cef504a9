"""Train a small GPT-2 on the bytes of the standard library, with the Trainer of transformers."""

import tempfile

import torch
from corpus import ByteBlocks
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

BLOCK = 128


def build_model():
    config = GPT2Config(vocab_size=256, n_positions=BLOCK, n_embd=192, n_layer=3, n_head=3, use_cache=False)
    return GPT2LMHeadModel(config)


def main():
    set_seed(42)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=10,
            per_device_train_batch_size=16,
            learning_rate=5e-4,
            lr_scheduler_type="cosine",
            warmup_steps=100,
            bf16=True,
            use_cpu=True,
            optim="adamw_torch_fused",
            dataloader_num_workers=1,
            dataloader_persistent_workers=True,
            dataloader_drop_last=True,
            logging_steps=100,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(model=build_model(), args=arguments, train_dataset=ByteBlocks(BLOCK))
        trainer.train()  # hint: reads-in-every-step


if __name__ == "__main__":
    main()
