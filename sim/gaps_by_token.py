"""Inter-token gaps where requests stop decoding and go on later with their KV entries.

Swapping, retaining and asynchronous scheduling break the few cases that `sim.gaps` lists. Here the
iterations are expanded (a few arrays of their number), and who got a token in which is followed.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.log import precedes
from sim.request import Reason, State
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]


class TokenGaps:
    """The multiset of all gaps of a run, and each request's longest: as `sim.gaps.Gaps`."""

    def __init__(self, run: Run, timeline: Timeline) -> None:
        self.run = run
        self.timeline = timeline
        self._ends = np.zeros(timeline.iterations + 1, dtype=np.int64)  # by number, from 1
        for piece in timeline.pieces():
            self._ends[timeline.first[piece.segment] + piece.offset] = piece.end_ns
        decoding = np.repeat(timeline.decodes > 0, timeline.count)
        self._numbers: Ints = np.flatnonzero(decoding) + 1  # iterations with decodes
        self._between: Ints = np.diff(self._ends[self._numbers], prepend=0)

    @cached_property
    def _tokens(self) -> tuple[Ints, Ints, Ints]:
        """Stretches of iterations with a token each: (request, first, last), by request and time.

        A prompt's end is a stretch of one; decodes are stretches over the iterations with decodes.
        """
        run = self.run
        moves = run.log.moves
        reason, state, to = moves["reason"], moves["state"], moves["to"]
        iteration = moves["iteration"].astype(np.int64)
        ended = (state == State.PREFILL) & np.isin(
            reason, (int(Reason.PROMPT_DONE), int(Reason.LENGTH))
        )
        ended |= (state == State.PREEMPTED) & (reason == Reason.PROMPT_DONE)
        prompts = np.flatnonzero(ended)
        begins = np.flatnonzero((to == State.DECODE) & (state != State.DECODE))
        first = iteration[begins] + (reason[begins] == Reason.PROMPT_DONE)
        stops = np.flatnonzero(state == State.DECODE)
        last_at = iteration[stops] - precedes(moves[stops])
        owner = moves["request"].astype(np.int64)
        # the k-th stop of a request closes its k-th beginning
        order_b = np.lexsort((begins, owner[begins]))
        order_s = np.lexsort((stops, owner[stops]))
        last = np.full(len(begins), self.timeline.iterations, dtype=np.int64)
        base = np.searchsorted(owner[begins][order_b], owner[stops][order_s], side="left")
        ordinal = np.arange(len(stops)) - np.searchsorted(
            owner[stops][order_s], owner[stops][order_s], side="left"
        )
        last[order_b[base + ordinal]] = last_at[order_s]
        who, low, high = self._without_pauses(owner[begins], first, last)
        request = np.concatenate((owner[prompts], who))
        low = np.concatenate((iteration[prompts], low))
        high = np.concatenate((iteration[prompts], high))
        order = np.lexsort((low, request))
        return request[order], low[order], high[order]

    def _without_pauses(self, who: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
        """Decode stays as ranges of places in the iterations with decodes, cut at pauses."""
        low = np.searchsorted(self._numbers, first, side="left")
        high = np.searchsorted(self._numbers, last, side="right") - 1
        pauses = self.run.log.pauses
        rows = []
        out: dict[int, list[int]] = {}
        for iteration, request in pauses.tolist():
            out.setdefault(request, []).append(iteration)
        for request, a, b in zip(who.tolist(), low.tolist(), high.tolist(), strict=True):
            begin = a
            for iteration in out.get(request, ()) if out else ():
                place = int(np.searchsorted(self._numbers, iteration))
                if place >= len(self._numbers) or self._numbers[place] != iteration:
                    continue  # nobody decoded in it
                if begin <= place <= b:
                    if place > begin:
                        rows.append((request, begin, place - 1))
                    begin = place + 1
            if begin <= b:
                rows.append((request, begin, b))
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return table[:, 0], self._numbers[table[:, 1]], self._numbers[table[:, 2]]

    @cached_property
    def _listed(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """(owner, gap) of gaps between stretches; (owner, low, high) of those inside one, as places
        of the iteration that ends each.
        """
        request, low, high = self._tokens
        same = request[1:] == request[:-1]
        values = (self._ends[low[1:]] - self._ends[high[:-1]])[same]
        owners = request[1:][same]
        inside = high > low
        a = np.searchsorted(self._numbers, low[inside], side="left") + 1
        b = np.searchsorted(self._numbers, high[inside], side="left")
        return owners, values, request[inside], a, b

    @cached_property
    def _multiset(self) -> tuple[Ints, Ints]:
        """Gaps in order, and how many there are up to each."""
        _, values, _, a, b = self._listed
        change = np.zeros(len(self._numbers) + 1, dtype=np.int64)
        np.add.at(change, a, 1)
        np.add.at(change, b + 1, -1)
        weight = np.cumsum(change)[:-1]
        some = weight > 0
        gaps = np.concatenate((values, self._between[some]))
        weights = np.concatenate((np.ones(len(values), dtype=np.int64), weight[some]))
        order = np.argsort(gaps, kind="stable")
        return gaps[order], np.cumsum(weights[order])

    def multiset(self) -> tuple[Ints, Ints]:
        """All gaps in ns, and how many tokens had each."""
        gaps, total = self._multiset
        return gaps, np.diff(total, prepend=0)

    @property
    def count(self) -> int:
        """How many gaps there are: one per token but a request's first."""
        total = self._multiset[1]
        return int(total[-1]) if len(total) else 0

    def mean_ns(self) -> float | None:
        """Mean gap, every gap weighing the same; None without gaps."""
        gaps, total = self._multiset
        if not len(gaps):
            return None
        weights = np.diff(total, prepend=0)
        return int((gaps * weights).sum()) / int(total[-1])

    def quantiles_ns(self, levels: list[float]) -> list[float | None]:
        """Exact quantiles, linear between order statistics; None without gaps."""
        gaps, total = self._multiset
        if not len(gaps):
            return [None] * len(levels)
        count = int(total[-1])
        out: list[float | None] = []
        for p in levels:
            place = (count - 1) * p
            low = int(np.floor(place))
            a, b = (
                int(gaps[np.searchsorted(total, rank, side="right")])
                for rank in (low, min(low + 1, count - 1))
            )
            out.append(a + (place - low) * (b - a))
        return out

    def of_ns(self, chosen: NDArray[np.bool_]) -> Ints:
        """Every gap of the *chosen* requests (by number), one by one, in no order of time."""
        owners, values, inside, a, b = self._listed
        mine = chosen[inside]
        a, count = a[mine], (b - a + 1)[mine]
        starts = np.cumsum(count) - count
        places = np.arange(int(count.sum())) + np.repeat(a - starts, count)
        return np.concatenate((values[chosen[owners]], self._between[places]))

    def longest_ns(self) -> Ints:
        """Each request's longest gap, -1 where it has none; by request number."""
        owners, values, inside, a, b = self._listed
        out = np.full(len(self.run.requests), -1, dtype=np.int64)
        np.maximum.at(out, owners, values)
        if len(inside):
            from sim.gaps import range_maximum

            range_maximum(self._between, a, b, inside, out)
        return out
