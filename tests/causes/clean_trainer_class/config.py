from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    width: int = 1024
    depth: int = 4
    dropout: float = 0.1
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    epochs: int = 500
    seed: int = 1
