"""Who was served how well: bypasses, service, Jain's index, and the same times by class."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sim.classes import Classes
from sim.orders import Fair
from sim.outcomes import NONE, Outcomes
from sim.run import Run

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def jain(shares: Floats) -> float | None:
    """Jain's index (Jain, Chiu, Hawe, DEC-TR-301, 1984): 1 when all have the same, 1/n when one
    has everything; None when nobody has anything.
    """
    most = float(shares.max(initial=0.0))
    if most <= 0:
        return None
    parts = shares / most  # no overflow
    return float(parts.sum()) ** 2 / (len(parts) * float((parts * parts).sum()))


def weights_of(run: Run) -> tuple[float, float, Mapping[Hashable, Fraction]]:
    """What a prompt token, an output token and a tenant weigh: by the run's `Fair` order, else as
    VTC has it by default (1 and 2; Sheng et al., OSDI '24), every tenant the same.
    """
    order = run.server.order
    if isinstance(order, Fair):
        return float(order.prompt_weight), float(order.output_weight), order.weights
    return 1.0, 2.0, {}


def service_tokens(run: Run, out: Outcomes, generated: Ints) -> Floats:
    """Weighted tokens that each offered request was given, as VTC counts: its prompt when it is
    first admitted, its output as it is made.
    """
    prompt_weight, output_weight, _ = weights_of(run)
    prompts = np.where(out.admitted_ns != NONE, out.prompt_tokens, 0)
    return prompt_weight * prompts + output_weight * generated[out.request]


def bypasses(out: Outcomes, refused: NDArray[np.bool_]) -> Ints:
    """By offered request: how many who came later, by (arrival, position), were first admitted at
    an earlier moment than it was, or before it left the queue for good. *refused* never queued.
    """
    never = np.int64(1) << 62
    admitted = out.admitted_ns != NONE
    left = np.where(out.ended_ns != NONE, out.ended_ns, never)
    until = np.where(admitted, out.admitted_ns, left)
    count = np.zeros(len(out), dtype=np.int64)
    queued = ~refused
    count[queued] = later_but_first(until[queued], admitted[queued])
    return count


def later_but_first(moments: Ints, counts: NDArray[np.bool_]) -> Ints:
    """By element: how many elements behind it that *count* have a smaller moment. O(n log n).

    A stable sort by moment is taken apart by the bits of the places, the highest first, as in a
    wavelet tree: within a group of equal higher bits, elements with a 1 are behind those with a 0.
    """
    n = len(moments)
    out = np.zeros(n, dtype=np.int64)
    if np.all(moments[1:] >= moments[:-1]):
        return out
    place = np.argsort(moments, kind="stable")  # equal moments: the earlier place first
    for bit in range((n - 1).bit_length() - 1, -1, -1):
        group, one = place >> (bit + 1), (place >> bit) & 1
        weight = one * counts[place]
        before = np.cumsum(weight) - weight
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        sizes = np.diff(np.append(begins, n))
        before -= np.repeat(before[begins], sizes)
        zero = one == 0
        out[place[zero]] += before[zero]
        # the zeros of each group, then its ones, each in the order they are in
        ones = np.cumsum(one) - one
        ones -= np.repeat(ones[begins], sizes)
        inside = np.arange(n) - np.repeat(begins, sizes)
        zeros = np.repeat(np.add.reduceat(1 - one, begins), sizes)
        spot = np.repeat(begins, sizes) + np.where(zero, inside - ones, zeros + ones)
        moved = np.empty_like(place)
        moved[spot] = place
        place = moved
    return out


def shares(run: Run, service: Floats, tenants: Classes) -> Floats:
    """Service per weight, by tenant."""
    _, _, weights = weights_of(run)
    total = np.bincount(tenants.code, weights=service, minlength=len(tenants))
    weight = np.array([float(weights.get(label, 1)) for label in tenants.labels])
    result: Floats = total / weight
    return result
