"""Step-time curves: seconds of one forward pass from the shape of its batch. Knows no requests.

A shape is six numbers, so that one iteration and a million of them are evaluated by the same rule:

=================  =========================================================================
``decodes``        rows that decode one token each
``context``        Σ over those rows of the KV entries they read (their ``past``), tokens
``chunks``         prefill chunks in the step
``tokens``         Σ over chunks of their new tokens
``chunk_past``     Σ over chunks of (new tokens × tokens already computed), tokens²
``chunk_squared``  Σ over chunks of (new tokens)², tokens²
=================  =========================================================================

Terms are float64 seconds, added in the order the class lists its fields; the sum is rounded once
to integer nanoseconds, half to even. Scalars (plain floats) and arrays (numpy) give identical
values. Every curve is monotone in every number of the shape.
"""

from sim.steptime.curve import Curve, Floats, Ints, Range, StepTime, StepTimeError
from sim.steptime.graphs import Bucketed, next_sizes
from sim.steptime.linear import Affine, Constant, Knee
from sim.steptime.overhead import with_overhead
from sim.steptime.scaled import scaled
from sim.steptime.table import Grid, Table, slower_decodes

__all__ = [
    "Affine",
    "Bucketed",
    "Constant",
    "Curve",
    "Floats",
    "Grid",
    "Ints",
    "Knee",
    "Range",
    "StepTime",
    "StepTimeError",
    "Table",
    "next_sizes",
    "scaled",
    "slower_decodes",
    "with_overhead",
]
