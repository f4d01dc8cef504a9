"""A module as a user of ``hotlap infer`` writes it: functions that return models, and functions that return inputs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).eval()


def rows() -> list[torch.Tensor]:
    return [torch.randn(8, 16) for _ in range(5)]


def many_rows() -> list[torch.Tensor]:
    return [torch.randn(8, 16) for _ in range(10)]


def endless_rows() -> Iterator[torch.Tensor]:
    while True:
        yield torch.randn(8, 16)


def no_rows() -> list[torch.Tensor]:
    return []


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: dict[str, list[torch.Tensor]]


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
        return Answer(logits=self.layer(rows) * scale, hidden={"all": [rows, rows + 1]})


def nested() -> torch.nn.Module:
    return Nested().eval()


def named_rows() -> list[dict[str, Any]]:
    return [{"rows": torch.randn(2, 16), "scale": 2.0}]


def rows_and_scales() -> list[dict[str, torch.Tensor]]:
    return [{"rows": torch.randn(2, 16), "scale": torch.randn(2, 1)} for _ in range(3)]


def rows_of_all_lengths() -> list[torch.Tensor]:
    return [torch.randn(length, 16) for length in (2, 5, 8)]


def known_rows() -> list[torch.Tensor]:
    """The same ones whatever was drawn before."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(length, 16, generator=generator) for length in (2, 5, 8)]


def token_rows() -> list[dict[str, torch.Tensor]]:
    return [{"input_ids": torch.randint(0, 40, (2, 6))} for _ in range(4)]


class Branching(Nested):
    """What it computes depends on data, which no export can record."""

    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
        return super().forward(rows, 2.0 if rows.sum() > 0 else scale)


def branching() -> torch.nn.Module:
    return Branching().eval()


class Raising(Nested):
    calls = 0

    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
        Raising.calls += 1
        if Raising.calls > 3:
            raise ValueError("the fourth call is too much")
        return super().forward(rows, scale)


def raising() -> torch.nn.Module:
    return Raising()


class Hanging(Nested):
    calls = 0

    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
        Hanging.calls += 1
        if Hanging.calls > 3:
            time.sleep(3600)
        return super().forward(rows, scale)


def hanging() -> torch.nn.Module:
    return Hanging()


class Poisoned(Nested):
    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
        answer = super().forward(rows, scale)
        answer.logits[0, 0] = float("nan")
        return answer


def poisoned() -> torch.nn.Module:
    return Poisoned()


def in_training_mode() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.Dropout(0.5))


def no_model() -> int:
    return 7


def mlp_in_bfloat16() -> torch.nn.Module:
    return mlp().to(torch.bfloat16)


def rows_in_bfloat16() -> list[torch.Tensor]:
    return [it.to(torch.bfloat16) for it in rows()]


def seeded() -> torch.nn.Module:
    torch.manual_seed(0)
    return mlp()


def loaded() -> torch.nn.Module:
    """Weights that no seed changes, as those of a file are."""
    model = mlp()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_((torch.sin(values * 12.9898 + index) / 4).reshape(parameter.shape))
    return model


def images() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10)
    ).eval()


def likeness(outputs: dict[int, torch.Tensor]) -> list[float]:
    """A metric: one score for each row."""
    return [float(it > -9) for output in outputs.values() for it in output[:, 0]]


def raising_metric(outputs: dict[int, torch.Tensor]) -> list[float]:
    raise RuntimeError("no labels for these")


def wordy_metric(outputs: dict[int, torch.Tensor]) -> str:
    return "fine"


def single_score(outputs: dict[int, torch.Tensor]) -> torch.Tensor:
    return torch.tensor(len(outputs) / 2)


def image_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 3, 8, 8) for _ in range(3)]


class Counting(Nested):
    """Its output has no row for each sample."""

    def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
        answer = super().forward(rows, scale)
        return Answer(logits=answer.logits.sum(dim=0), hidden=answer.hidden)


def counting() -> torch.nn.Module:
    return Counting().eval()


def with_custom_operator() -> torch.nn.Module:
    """The operator is made here, since that imports torch's compiler."""

    @torch.library.custom_op("hotlap_tests::scaled", mutates_args=())
    def scaled(rows: torch.Tensor, factor: float) -> torch.Tensor:
        return rows * factor

    scaled.register_fake(lambda rows, factor: torch.empty_like(rows))

    class WithCustomOperator(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 4)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = scaled(self.layer(rows), 2.0)
            return found

    return WithCustomOperator().eval()


def few_rows() -> Iterator[torch.Tensor]:
    """A generator that ends."""
    for number in range(3):
        yield torch.full((8, 16), float(number))


def breaking_rows() -> Iterator[torch.Tensor]:
    """A generator that fails after its second input."""
    yield from rows()[:2]
    raise OSError("the third file is gone")


def inputs_of_different_structure() -> list[Any]:
    return [torch.ones(8, 16), {"rows": torch.ones(8, 16), "scale": 2.0}, (torch.ones(8, 16), 3.0)]


class Useless(torch.nn.Module):
    """Each row of its weight holds one number that is used and a far larger one whose input is always 0: in int8, whose
    steps are as wide for the whole row, nothing is left of the former."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 16, bias=False)
        with torch.no_grad():
            values = torch.sin(torch.arange(16 * 64) * 12.9898).reshape(16, 64)
            self.layer.weight.copy_(values)
            self.layer.weight[:, 0] = 1e5

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(rows)
        return found


def useless_in_int8() -> torch.nn.Module:
    return Useless().eval()


def rows_without_the_first() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    found = [torch.randn(32, 64, generator=generator) for _ in range(10)]
    for it in found:
        it[:, 0] = 0
    return found


class InfiniteInBfloat16(torch.nn.Module):
    """Divides by the difference of two numbers that are one and the same in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((16,), 1.001))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows / (self.scale - 1)


def infinite_in_bfloat16() -> torch.nn.Module:
    return InfiniteInBfloat16().eval()


def ones() -> list[torch.Tensor]:
    return [torch.ones(8, 16) for _ in range(3)]


def never_compiled() -> torch.nn.Module:
    """Dynamo leaves it alone, and says nothing. Decorated here, since that imports torch's compiler."""

    class NeverCompiled(Nested):
        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def forward(self, rows: torch.Tensor, scale: float = 1.0) -> Answer:
            return super().forward(rows, scale)

    torch.manual_seed(0)
    return NeverCompiled().eval()


def compiled_too_often() -> torch.nn.Module:
    class Named(torch.nn.Module):
        """Each call sees another text, which compiled code holds as a constant."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = loaded()
            self.name = ""

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            self.name += "a"
            scale = 2.0 if self.name.endswith("aaaa") else 1.0
            output: torch.Tensor = self.layer(rows) * scale
            return output

    return Named().eval()
