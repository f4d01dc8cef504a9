"""Read a profiler's trace and account for the accelerator's time.

:func:`read_trace` turns a Kineto file into a :class:`Timeline`; :func:`analyse` turns that into a :class:`Breakdown`,
which is all that the rest of hotlap and its users need, and :func:`conclusion_of` names its main bottleneck.
:func:`operators` and :func:`host_time` describe the host's side, :func:`code_time` of modules and source lines,
:func:`graph_rows` of replayed graphs, and :func:`detailed` adds collectives, memory and the critical path.
:func:`compare_ranks` compares how several ranks spent their time, and :func:`compare_collectives` when each entered the
collectives that they share. This package is independent of trials.
"""

from hotlap.traces.arrivals import CollectiveLog, compare_collectives
from hotlap.traces.attribution import Attribution
from hotlap.traces.breakdown import analyse
from hotlap.traces.code_time import code_time
from hotlap.traces.collective_records import CollectiveComparison, CollectiveRow, ExposedCommunication
from hotlap.traces.conclusion import conclusion_of, device_conclusion
from hotlap.traces.details import collective_log, detailed
from hotlap.traces.exposed import exposed_communication
from hotlap.traces.files import trace_files
from hotlap.traces.graphs import graph_rows
from hotlap.traces.host_time import host_time
from hotlap.traces.memory_records import MemoryOverTime
from hotlap.traces.operators import operators
from hotlap.traces.path_records import CriticalPath
from hotlap.traces.ranks import compare_ranks
from hotlap.traces.reader import read_trace
from hotlap.traces.records import Breakdown, Conclusion, HostTime, OperatorRow, RankComparison
from hotlap.traces.timeline import Timeline

__all__ = [
    "Attribution",
    "Breakdown",
    "CollectiveComparison",
    "CollectiveLog",
    "CollectiveRow",
    "Conclusion",
    "CriticalPath",
    "ExposedCommunication",
    "HostTime",
    "MemoryOverTime",
    "OperatorRow",
    "RankComparison",
    "Timeline",
    "analyse",
    "code_time",
    "collective_log",
    "compare_collectives",
    "compare_ranks",
    "conclusion_of",
    "detailed",
    "device_conclusion",
    "exposed_communication",
    "graph_rows",
    "host_time",
    "operators",
    "read_trace",
    "trace_files",
]
