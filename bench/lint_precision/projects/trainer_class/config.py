from dataclasses import dataclass


@dataclass
class Config:
    device: str = "cuda"
    width: int = 32
    rate: float = 1e-3
    epochs: int = 3
    limit: float = 100.0
