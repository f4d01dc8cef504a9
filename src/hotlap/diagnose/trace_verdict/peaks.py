"""The dense peak rates of devices in TFLOP/s, as published by their manufacturers."""

from __future__ import annotations

import re
from typing import NamedTuple


class Peak(NamedTuple):
    """``float32`` is that of the ordinary units, or of the matrix units where these multiply float32, as AMD's do;
    ``half`` that of float16 (and bfloat16 where the device has it) with float32 sums; ``tf32`` is 0 for devices
    without it."""

    float32: float
    tf32: float
    half: float
    has_bfloat16: bool = True


_PEAKS = (
    (r"V100S", Peak(16.4, 0, 130, has_bfloat16=False)),
    (r"V100-PCIE", Peak(14, 0, 112, has_bfloat16=False)),
    (r"V100", Peak(15.7, 0, 125, has_bfloat16=False)),
    (r"Tesla T4\b", Peak(8.1, 0, 65, has_bfloat16=False)),
    (r"A100", Peak(19.5, 156, 312)),
    (r"A30\b", Peak(10.3, 82, 165)),
    (r"A40\b", Peak(37.4, 74.8, 149.7)),
    (r"A10\b", Peak(31.2, 62.5, 125)),
    (r"H100 PCIe", Peak(51, 378, 756)),
    (r"H100 NVL", Peak(60, 417.5, 835.5)),
    (r"H100|H200|GH200", Peak(67, 494.7, 989.4)),
    (r"L40S", Peak(91.6, 183, 362)),
    (r"MI210", Peak(45.3, 0, 181)),
    (r"MI300X", Peak(163.4, 653.7, 1307.4)),
)
"""By a part of the device's name, the more special one first. Sources: the data sheets of NVIDIA's V100, T4, A100, A30,
A40, A10, H100, H200 and L40S, and of AMD's MI210 and MI300X."""


def peak_of(name: str) -> Peak | None:
    """Return the rates of a device; None for an unlisted name and for a slice of a device (MIG)."""
    if "MIG" in name:
        return None
    return next((peak for pattern, peak in _PEAKS if re.search(pattern, name)), None)
