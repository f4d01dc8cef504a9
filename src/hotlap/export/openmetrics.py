"""A watched run as OpenMetrics text (https://prometheus.io/docs/specs/om/open_metrics_spec/)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from hotlap.measure.watch.series import RankSeries
from hotlap.records import STEP_PHASES, Alarm, AlarmKind

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ALARM_KINDS: tuple[AlarmKind, ...] = (
    "data-wait-grows",
    "step-slows",
    "memory-creeps",
    "loss-scale-sinks",
    "steps-skipped",
    "rank-slows",
    "clock-slows",
)
_Kind: TypeAlias = Literal["counter", "gauge"]
_Sample: TypeAlias = tuple[Mapping[str, str], float]


def exposition(ranks: Mapping[int, RankSeries], alarms: Sequence[Alarm]) -> str:
    """All metrics, each with its unit in its name; without rows there are only the alarms."""
    lines = [line for it in _families(ranks, alarms) for line in _lines(*it)]
    return "\n".join([*lines, "# EOF", ""])


def _families(
    ranks: Mapping[int, RankSeries], alarms: Sequence[Alarm]
) -> Iterator[tuple[str, _Kind, str, str, list[_Sample]]]:
    named = {str(rank): it for rank, it in sorted(ranks.items())}
    yield (
        "hotlap_steps",
        "counter",
        "",
        "Training steps.",
        [({"rank": rank}, it.all_steps) for rank, it in named.items()],
    )
    yield (
        "hotlap_skipped_steps",
        "counter",
        "",
        "Steps that a GradScaler skipped because gradients overflowed.",
        [({"rank": rank}, it.skipped_steps) for rank, it in named.items()],
    )
    last = {rank: it.recent[-1] for rank, it in named.items() if it.recent}
    yield (
        "hotlap_step_seconds", "gauge", "seconds", "Mean time of the last steps that were timed.",
        [({"rank": rank}, it.step_seconds) for rank, it in last.items() if it.step_seconds is not None],
    )  # fmt: skip
    yield (
        "hotlap_step_phase_seconds", "gauge", "seconds", "Their mean time in each phase.",
        [
            ({"rank": rank, "phase": phase}, seconds)
            for rank, it in last.items()
            for index, phase in enumerate(STEP_PHASES)
            if (seconds := it.phase_seconds(index)) is not None
        ],
    )  # fmt: skip
    levels: tuple[tuple[str, str, str, str], ...] = (
        ("hotlap_host_memory_bytes", "bytes", "Resident memory of the training process.", "host_bytes"),
        ("hotlap_device_memory_bytes", "bytes", "Memory of tensors on the device.", "device_bytes"),
        ("hotlap_loss", "", "The last loss.", "loss"),
        ("hotlap_loss_scale", "", "The scale of the GradScaler.", "loss_scale"),
    )
    for name, unit, about, field in levels:
        yield (
            name,
            "gauge",
            unit,
            about,
            [({"rank": rank}, value) for rank, it in last.items() if (value := getattr(it, field)) is not None],
        )
    yield (
        "hotlap_clock_hertz", "gauge", "hertz", "Clock of the device, or without one of the processor.",
        [({"rank": rank}, it.clock_mhz * 1e6) for rank, it in last.items() if it.clock_mhz is not None],
    )  # fmt: skip
    held = {it.kind for it in alarms}
    yield (
        "hotlap_alarm", "gauge", "", "1 while the alarm holds.",
        [({"alarm": it}, float(it in held)) for it in ALARM_KINDS],
    )  # fmt: skip


def _lines(name: str, kind: _Kind, unit: str, about: str, samples: list[_Sample]) -> Iterator[str]:
    if not samples:
        return
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {about}"
    suffix = "_total" if kind == "counter" else ""
    for labels, value in samples:
        listed = ",".join(f'{key}="{_escaped(it)}"' for key, it in labels.items())
        yield f"{name}{suffix}{{{listed}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
