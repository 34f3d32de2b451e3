"""Workloads: what arrives when and how long it is, sampled, declared or read from a trace file.

`workloads.arrivals`, `workloads.lengths`, `workloads.think` and `workloads.predict` hold the
settings.
"""

from workloads.clients import Clients
from workloads.faults import Fault, TraceError
from workloads.generate import Sampled, make_source
from workloads.labels import Labels, Prefix, dressed
from workloads.readers import TraceFile, TraceSettings, file_sha256, read_trace
from workloads.table import declared, write_table

__all__ = [
    "Clients",
    "Fault",
    "Labels",
    "Prefix",
    "Sampled",
    "TraceError",
    "TraceFile",
    "TraceSettings",
    "declared",
    "dressed",
    "file_sha256",
    "make_source",
    "read_trace",
    "write_table",
]
