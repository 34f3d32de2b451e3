"""Workloads: what arrives when and how long it is, sampled, declared or read from a trace file.

`workloads.arrivals`, `workloads.lengths` and `workloads.think` hold the settings.
"""

from workloads.faults import Fault, TraceError
from workloads.generate import Sampled, make_source
from workloads.readers import TraceFile, TraceSettings, read_trace
from workloads.report import Dropped, LengthSummary, ReadReport
from workloads.streams import stream
from workloads.table import declared, write_table

__all__ = [
    "Dropped",
    "Fault",
    "LengthSummary",
    "ReadReport",
    "Sampled",
    "TraceError",
    "TraceFile",
    "TraceSettings",
    "declared",
    "make_source",
    "read_trace",
    "stream",
    "write_table",
]
