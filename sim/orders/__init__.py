"""Who goes first: orders of the queue, each a small policy to combine with any scheduler."""

from sim.orders.fair import Fair
from sim.orders.feedback import Mlfq
from sim.orders.keyed import (
    Edf,
    LongestFirst,
    Random,
    ShortestPredicted,
    ShortestPrompt,
    Srpt,
)
from sim.orders.order import Fcfs, Order, OrderError
from sim.orders.priority import Priority, Reserved

__all__ = [
    "Edf",
    "Fair",
    "Fcfs",
    "LongestFirst",
    "Mlfq",
    "Order",
    "OrderError",
    "Priority",
    "Random",
    "Reserved",
    "ShortestPredicted",
    "ShortestPrompt",
    "Srpt",
]
