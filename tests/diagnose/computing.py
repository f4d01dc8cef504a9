"""Helpers for tests of rules about computation: running one rule, and parts of profiled runs."""

from __future__ import annotations

import msgspec

from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.examples import operator
from hotlap.evidence import RunEvidence, Window
from hotlap.records import CallSite, Finding

BFLOAT16, FLOAT16 = "c10::BFloat16", "c10::Half"
BUSY = operator("aten::gelu", 60, [(4096, 1024)])
"""Keeps the GPU of an example busy for three fifths of the step, so that its kernels matter."""

SITE = CallSite(role="model", file="/home/someone/train.py", line=31)


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def one(rule: str, profile: Profile) -> Finding:
    (finding,) = found(rule, profile)
    return finding


def profiled(profile: Profile, *, steps: int, seconds: float) -> Profile:
    """Return the profile with a window of other steps and seconds."""
    window = Window(first_step=3, steps=steps, wall_seconds=seconds, trace_path="trace.json")
    return msgspec.structs.replace(profile, evidence=RunEvidence(observed_steps=50, window=window))
