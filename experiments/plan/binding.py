"""What keeps a replica from serving more: read off its runs at the highest rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.plan.sample import Sample

MUCH = 0.1
"""Share of the boundaries with somebody waiting, or of the busy time, that counts as much."""
STOPPED = {
    "slots": "slots",
    "tokens": "token budget",
    "kv": "KV memory",
    "preempted": "KV memory",
    "head_of_line": "head of line",
}


def binds(samples: Sequence[Sample], above: Sequence[str]) -> str:
    """In a word or two. *samples*: at the highest rate; *above*: the targets missed at the next.

    Where the host keeps the device waiting, the host. Where TPOT is what fails, and for tokens that
    is the length of iterations, compute. Where waiting is (TTFT, E2E, attainment), what admission
    stopped at most often while somebody waited, if that was often; else queueing: requests wait for
    an iteration to end, or behind bursts.
    """
    busy = sum(one.busy_ns for one in samples)
    if busy and sum(one.host_wait_ns for one in samples) > 2 * MUCH * busy:
        return "host"
    failing = {name.split("_")[0] for name in above}
    if failing == {"tpot"}:
        return "compute"
    share = stopped(samples)
    worst = max(share, key=lambda name: share[name], default=None)
    if worst is not None and share[worst] >= MUCH:
        return worst
    return "queueing" if failing else "nothing"


def stopped(samples: Sequence[Sample]) -> dict[str, float]:
    """Share of all boundaries at which admission stopped for each reason."""
    total: Counter[str] = Counter()
    for one in samples:
        total.update(one.stops)
    everything = sum(total.values())
    found: Counter[str] = Counter()
    for limit, name in STOPPED.items():
        if total[limit]:
            found[name] += total[limit]
    return {name: count / everything for name, count in found.items()}
