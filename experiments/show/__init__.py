"""What notebooks show: runs in memory, batches to step through, small pictures. Writes no file.

from experiments.show import analyses, batch_table, shipped

batch_table(analyses(shipped("six_requests")))
"""

from experiments.show.memory import analyses, shipped, summaries
from experiments.show.pictures import batches, iterations, requests
from experiments.show.stepper import BatchTable, batch_table

__all__ = [
    "BatchTable",
    "analyses",
    "batch_table",
    "batches",
    "iterations",
    "requests",
    "shipped",
    "summaries",
]
