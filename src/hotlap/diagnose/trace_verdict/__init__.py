"""Judge a trace alone: its main causes of slowness, the costliest first, each with a remedy.

The rules judge a profile built from the trace (:mod:`.profile`). Added are findings that a trace shows without a time
account: why the device was idle (:mod:`.idle`), what its kernels show (:mod:`.kernels`) and how they fill it
(:mod:`.small_grids`), what the host did if there is no device (:mod:`.host`), the rates of products of each size
(:mod:`.products`), the share of the device's peak that the steps reached (:mod:`.utilisation`), and how several ranks
wait for each other (:mod:`.ranks`).
"""

from __future__ import annotations

from hotlap.diagnose.trace_verdict.products import ProductRate
from hotlap.diagnose.trace_verdict.ranks import verdict_of_ranks
from hotlap.diagnose.trace_verdict.utilisation import DtypeWork, StepWork
from hotlap.diagnose.trace_verdict.verdict import TraceVerdict, verdict_of

__all__ = ["DtypeWork", "ProductRate", "StepWork", "TraceVerdict", "verdict_of", "verdict_of_ranks"]
