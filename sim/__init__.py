"""The model: request-level and iteration-level serving on measured step times.

    from sim import Affine, Chunked, Server, Analysis, simulate, summary, trace_of

    trace = trace_of([0, 0], prompt_tokens=[4, 4], output_tokens=[3, 9])
    run = simulate(trace, Server(slots=2), Chunked(), Affine(base_s=0.02))
    summary(Analysis(run))["ttft_mean_s"]

Times are integer nanoseconds inside and seconds in summaries.
"""

from sim.audit import audit
from sim.front_end import FrontEnd
from sim.membership import Cell, Membership, membership, residencies, token_times
from sim.metrics import METRICS, Analysis, Slo, stopped_by, summary
from sim.orders import (
    Edf,
    Fair,
    Fcfs,
    LongestFirst,
    Mlfq,
    Order,
    Priority,
    Random,
    Reserved,
    ShortestPredicted,
    ShortestPrompt,
    Srpt,
)
from sim.request import MOVES, Reason, Request, State
from sim.run import InvariantError, Run, UnservableError
from sim.settings import Chunked, Host, Mixed, PrefillFirst, Server, Static, Swap
from sim.simulate import simulate
from sim.source import Source, TraceSource
from sim.steptime import (
    Affine,
    Bucketed,
    Constant,
    Grid,
    Knee,
    Range,
    StepTime,
    StepTimeError,
    Table,
)
from sim.trace import Trace, trace_of

__all__ = [
    "METRICS",
    "MOVES",
    "Affine",
    "Analysis",
    "Bucketed",
    "Cell",
    "Chunked",
    "Constant",
    "Edf",
    "Fair",
    "Fcfs",
    "FrontEnd",
    "Grid",
    "Host",
    "InvariantError",
    "Knee",
    "LongestFirst",
    "Membership",
    "Mixed",
    "Mlfq",
    "Order",
    "PrefillFirst",
    "Priority",
    "Random",
    "Range",
    "Reason",
    "Request",
    "Reserved",
    "Run",
    "Server",
    "ShortestPredicted",
    "ShortestPrompt",
    "Slo",
    "Source",
    "Srpt",
    "State",
    "Static",
    "StepTime",
    "StepTimeError",
    "Swap",
    "Table",
    "Trace",
    "TraceSource",
    "UnservableError",
    "audit",
    "membership",
    "residencies",
    "simulate",
    "stopped_by",
    "summary",
    "token_times",
    "trace_of",
]
