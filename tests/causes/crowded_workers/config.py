"""Settings of a run."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DataConfig:
    samples: int = 3072
    features: int = 256
    batch_size: int = 64
    num_workers: int = 16


@dataclass(frozen=True)
class ModelConfig:
    hidden: int = 768
    classes: int = 8


@dataclass(frozen=True)
class Config:
    seed: int = 0
    epochs: int = 500
    lr: float = 0.02
    threads: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
