"""Inter-token gaps (ITL), exactly, without recording a token: weighted values over segments.

A decode's gap is the duration of its iteration, but for three cases that are listed one by one:
the first decode iteration after iterations of prompts alone (`prefill_first` pauses everybody),
a decode that was left out of iterations, and a token that a recompute made after a preemption.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.log import precedes
from sim.request import State
from sim.run import Run
from sim.timeline import Timeline

Ints = NDArray[np.int64]
BINS = 8192


@dataclass(frozen=True, slots=True)
class Stays:
    """Decode stays: a request from the iteration that ended its prompt to its last decode.

    ``begin`` emitted the token that started it, ``last`` is the last iteration (numbered from 1)
    in which it held its slot as a decode, at least ``begin``, and was not left out alone.
    """

    request: Ints
    begin: Ints
    last: Ints


class Gaps:
    """The multiset of all gaps of a run, and each request's longest."""

    def __init__(self, run: Run, timeline: Timeline) -> None:
        self.run = run
        self.timeline = timeline
        n = len(timeline)
        self.stays = _stays(run, timeline.iterations)
        self.weight: Ints = timeline.decodes.copy() if not run.static else self._members()
        self.first_weight: Ints = self.weight.copy()
        self._values: list[Ints] = []
        self._weights: list[Ints] = []
        self._owners: list[Ints] = []
        # segments whose first iteration comes behind prompts alone
        self.behind: NDArray[np.bool_] = np.zeros(n, dtype=np.bool_)
        self.reach: Ints = timeline.last_length_ns.copy() if n else np.zeros(0, dtype=np.int64)
        if n and not run.static:
            self._after_prompts_alone()
            self._left_out()
            self._recomputed()
        self.values = _joined(self._values)
        self.weights = _joined(self._weights)
        self.owners = _joined(self._owners)

    def _members(self) -> Ints:
        """Static: how many rows make a token that is not their first, by segment; a new one begins
        wherever that changes.
        """
        line, stays = self.timeline, self.stays
        if not len(line):
            return np.zeros(0, dtype=np.int64)
        change = np.bincount(line.segment_of(stays.begin) + 1, minlength=len(line) + 1)
        change -= np.bincount(line.segment_of(stays.last) + 1, minlength=len(line) + 1)
        members: Ints = np.cumsum(change)[: len(line)]
        return members

    # -- the three cases -----------------------------------------------------------------------

    def _list(self, values: Ints, weights: Ints, owners: Ints) -> None:
        self._values.append(values)
        self._weights.append(weights)
        self._owners.append(owners)

    def _after_prompts_alone(self) -> None:
        """First decode iterations behind prompts-only ones: old decodes waited for all of them."""
        line = self.timeline
        alone = line.decodes == 0
        after = np.flatnonzero(~alone & np.concatenate(([False], alone[:-1])))
        # where the block of prompts-only segments before each of them begins
        index = np.arange(len(line))
        begins = np.maximum.accumulate(np.where(alone, 0, index + 1))[after - 1]
        # blocks in which decodes were left out one by one are the next case
        sat = np.unique(self.run.log.pauses["iteration"])
        last = np.searchsorted(sat, line.first[after], side="right")
        own = last - np.searchsorted(sat, line.first[begins])
        after, begins = after[own == 0], begins[own == 0]
        if not len(after):
            return
        self.behind[after] = True
        end = line.start_ns[after] + line.first_length_ns[after]
        stays = self.stays
        home = line.segment_of(stays.begin)
        block = np.searchsorted(after, home, side="right")
        inside = block < len(after)
        inside[inside] &= home[inside] >= begins[block[inside]]
        decoded = inside.copy()
        decoded[inside] &= stays.last[inside] >= line.first[after[block[inside]]]
        rows = np.flatnonzero(decoded)
        values = end[block[rows]] - line.end_ns[home[rows]]
        self._list(values, np.ones(len(rows), dtype=np.int64), stays.request[rows])
        joined = np.bincount(block[rows], minlength=len(after))
        old = self.weight[after] - joined
        waited = end - line.start_ns[begins]
        none = np.full(len(after), -1, dtype=np.int64)
        self._list(waited[old > 0], old[old > 0], none[old > 0])
        self.first_weight[after] = 0
        # what an old decode's longest gap may be in that segment
        self.reach[after] = np.maximum(self.reach[after], np.where(old > 0, waited, 0))

    def _left_out(self) -> None:
        """Decodes that were paused one by one: the gap spans the iterations they sat out."""
        pauses = self.run.log.pauses
        if not len(pauses):
            return
        line = self.timeline
        order = np.lexsort((pauses["iteration"], pauses["request"]))
        request = pauses["request"][order].astype(np.int64)
        iteration = pauses["iteration"][order].astype(np.int64)
        fresh = np.ones(len(request), dtype=np.bool_)
        fresh[1:] = (np.diff(request) != 0) | (np.diff(iteration) != 1)
        begins = np.flatnonzero(fresh)
        ends = np.append(begins[1:], len(request)) - 1
        who, since, resumed = request[begins], iteration[begins], iteration[ends] + 1
        stays = self.stays
        place = _stay_at(stays, who, since)
        back = stays.last[place] >= resumed
        stays.last[place[~back]] = since[~back] - 1  # it never decoded again in that stay
        who, since, resumed = who[back], since[back], resumed[back]
        segment = line.segment_of(resumed)
        started = line.start_ns[line.segment_of(since)]
        values = line.start_ns[segment] + line.first_length_ns[segment] - started
        self._list(values, np.ones(len(who), dtype=np.int64), who)
        np.subtract.at(self.first_weight, segment, 1)

    def _recomputed(self) -> None:
        """Tokens that a recompute made: their gap began before the preemption."""
        stays, line = self.stays, self.timeline
        order = np.lexsort((stays.begin, stays.request))
        request, begin, last = stays.request[order], stays.begin[order], stays.last[order]
        again = np.flatnonzero(request[1:] == request[:-1]) + 1
        if not len(again):
            return
        previous = line.end_of(
            self._last_token(request[again - 1], begin[again - 1], last[again - 1])
        )
        self._list(
            line.end_of(begin[again]) - previous,
            np.ones(len(again), dtype=np.int64),
            request[again],
        )

    def _last_token(self, request: Ints, begin: Ints, last: Ints) -> Ints:
        """The last iteration of each stay in which the request got a token."""
        line = self.timeline
        index = np.where(line.decodes > 0, np.arange(len(line)), -1)
        segment = np.maximum.accumulate(index)[line.segment_of(last)]
        token = np.minimum(last, np.where(segment < 0, 0, (line.first + line.count)[segment] - 1))
        result: Ints = np.maximum(token, begin)
        return result

    # -- answers -------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many gaps there are: one per token but a request's first."""
        rest = self.weight * (self.timeline.count - 1)
        return int(self.first_weight.sum() + rest.sum() + self.weights.sum())

    def mean_ns(self) -> float | None:
        """Mean gap, every gap weighing the same; None without gaps."""
        count = self.count
        if not count:
            return None
        line = self.timeline
        first = line.first_length_ns
        total = int((self.first_weight * first).sum())
        total += int((self.weight * (line.end_ns - line.start_ns - first)).sum())
        total += int((self.values * self.weights).sum())
        return total / count

    def quantiles_ns(self, levels: list[float]) -> list[float | None]:
        """Exact quantiles, linear between order statistics; None without gaps.

        Segments whose first and last step fall into one bin of a histogram are counted whole; only
        those that straddle a bin, or hold the wanted order statistics, are expanded.
        """
        count = self.count
        if not count:
            return [None] * len(levels)
        ranks = sorted({int(np.floor((count - 1) * p)) for p in levels})
        ranks = sorted({*ranks, *(min(r + 1, count - 1) for r in ranks)})
        found = dict(zip(ranks, self._order_statistics(ranks), strict=True))
        out: list[float | None] = []
        for p in levels:
            place = (count - 1) * p
            low = int(np.floor(place))
            high = min(low + 1, count - 1)
            out.append(found[low] + (place - low) * (found[high] - found[low]))
        return out

    def multiset(self) -> tuple[Ints, Ints]:
        """All gaps in ns, none in order, and how many tokens had each."""
        values, weights = [self.values], [self.weights]
        for piece in self.timeline.pieces():
            weight = np.where(
                piece.offset == 0, self.first_weight[piece.segment], self.weight[piece.segment]
            )
            some = weight > 0
            values.append(piece.length_ns[some])
            weights.append(weight[some])
        return _joined(values), _joined(weights)

    def _order_statistics(self, ranks: list[int]) -> list[int]:
        line = self.timeline
        busy = np.flatnonzero(self.weight > 0)
        first, last = line.first_length_ns[busy], line.last_length_ns[busy]
        low = min(int(first.min(initial=1 << 62)), int(self.values.min(initial=1 << 62)))
        high = max(int(last.max(initial=0)), int(self.values.max(initial=0)))
        width = (high - low) // BINS + 1
        a, b = (first - low) // width, (last - low) // width
        weight, count = self.weight[busy], line.count[busy]
        whole = a == b
        held = self.first_weight[busy] + weight * (count - 1)
        bins = np.zeros(BINS)
        bins += np.bincount(a[whole], weights=held[whole], minlength=BINS)
        bins += np.bincount((self.values - low) // width, weights=self.weights, minlength=BINS)
        straddling = busy[~whole]
        for piece in line.pieces(straddling):
            weights = np.where(
                piece.offset == 0, self.first_weight[piece.segment], self.weight[piece.segment]
            )
            bins += np.bincount((piece.length_ns - low) // width, weights=weights, minlength=BINS)
        total = np.cumsum(np.rint(bins).astype(np.int64))
        wanted = np.unique(np.searchsorted(total, ranks, side="right"))
        values, weights = self._inside(wanted, low, width, busy, a, b)
        order = np.argsort(values, kind="stable")
        values, running = values[order], np.cumsum(weights[order])
        out = []
        for rank in ranks:
            own = int(np.searchsorted(total, rank, side="right"))
            before = int(total[own - 1]) if own else 0
            skipped = int(sum(int(bins[w]) for w in wanted if w < own))
            at = int(np.searchsorted(running, skipped + rank - before, side="right"))
            out.append(int(values[at]))
        return out

    def _inside(
        self, wanted: Ints, low: int, width: int, busy: Ints, a: Ints, b: Ints
    ) -> tuple[Ints, Ints]:
        """Every value that falls into a wanted bin, with its weight."""
        chosen = np.zeros(BINS + 1, dtype=np.int64)
        chosen[wanted + 1] = 1
        before = np.cumsum(chosen)
        touched = busy[before[b + 1] - before[a] > 0]
        values, weights = [], []
        mine = chosen[(self.values - low) // width + 1] > 0
        values.append(self.values[mine])
        weights.append(self.weights[mine])
        for piece in self.timeline.pieces(touched):
            weight = np.where(
                piece.offset == 0, self.first_weight[piece.segment], self.weight[piece.segment]
            )
            keep = (chosen[(piece.length_ns - low) // width + 1] > 0) & (weight > 0)
            values.append(piece.length_ns[keep])
            weights.append(weight[keep])
        return _joined(values), _joined(weights)

    def longest_ns(self) -> Ints:
        """Each request's longest gap (its stall), -1 where it has none; by request number."""
        run, line = self.run, self.timeline
        out = np.full(len(run.requests), -1, dtype=np.int64)
        if not len(line):
            return out
        own = self.owners >= 0
        np.maximum.at(out, self.owners[own], self.values[own])
        stays = self.stays
        low = line.segment_of(stays.begin) + 1
        high = line.segment_of(stays.last)
        if not run.static:
            # the first gap of a stay behind prompts alone is listed: it did not wait for all
            alone = (low < len(line)) & (low <= high) & (line.decodes[low - 1] == 0)
            at = np.flatnonzero(alone)
            joins = self._first_decode_segment()[low[at]]
            listed = joins <= high[at]
            listed[listed] &= self.behind[joins[listed]]
            at, joins = at[listed], joins[listed]
            rest = np.where(line.count[joins] > 1, line.last_length_ns[joins], -1)
            np.maximum.at(out, stays.request[at], rest)
            low[at] = joins + 1
        reach = np.where(line.decodes > 0, self.reach, -1)
        range_maximum(reach, low, high, stays.request, out)
        return out

    def _first_decode_segment(self) -> Ints:
        """For each segment, itself or the next one that has decodes."""
        line = self.timeline
        index = np.where(line.decodes > 0, np.arange(len(line)), len(line))
        return np.minimum.accumulate(index[::-1])[::-1]


def range_maximum(values: Ints, low: Ints, high: Ints, owner: Ints, out: Ints) -> None:
    """out[owner] = max(out[owner], max(values[low..high])): by powers of two, one level held."""
    length = high - low + 1
    rows = np.flatnonzero(length > 0)
    if not len(rows):
        return
    level = np.floor(np.log2(length[rows])).astype(np.int64)
    table = values.copy()
    for power in range(int(level.max()) + 1):
        span = 1 << power
        mine = rows[level == power]
        best = np.maximum(table[low[mine]], table[high[mine] - span + 1])
        np.maximum.at(out, owner[mine], best)
        if len(table) > span:
            table = np.maximum(table[:-span], table[span:])


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _stay_at(stays: Stays, request: Ints, iteration: Ints) -> Ints:
    """The stay of each request that was going on at each iteration."""
    order = np.lexsort((stays.begin, stays.request))
    scale = int(stays.begin.max(initial=0)) + int(iteration.max(initial=0)) + 2
    keys = stays.request[order] * scale + stays.begin[order]
    place = np.searchsorted(keys, request * scale + iteration, side="left") - 1
    result: Ints = order[place]
    return result


def _stays(run: Run, iterations: int) -> Stays:
    """Decode stays from the moves: prompt done → completed, preempted, or the end of the run."""
    moves = run.log.moves
    state, to, request = moves["state"], moves["to"], moves["request"]
    begins = np.flatnonzero((state == State.PREFILL) & (to == State.DECODE))
    begins_at = moves["iteration"][begins].astype(np.int64)
    owner = request[begins].astype(np.int64)
    singles = np.flatnonzero((state == State.PREFILL) & (to == State.COMPLETED))
    ends = np.flatnonzero(state == State.DECODE)
    # the k-th end of a request closes its k-th begin
    order_b = np.lexsort((begins_at, owner))
    end_owner = request[ends].astype(np.int64)
    end_at = moves["iteration"][ends] - precedes(moves[ends])
    order_e = np.lexsort((end_at, end_owner))
    last = np.full(len(begins), iterations, dtype=np.int64)
    sorted_owner = owner[order_b]
    first_of = np.searchsorted(sorted_owner, end_owner[order_e], side="left")
    ordinal = np.arange(len(ends)) - np.searchsorted(end_owner[order_e], end_owner[order_e])
    last[order_b[first_of + ordinal]] = end_at[order_e]
    if run.static:
        tokens = run.requests.output_tokens[owner]
        last = np.minimum(last, begins_at + tokens - 1)
    single_at = moves["iteration"][singles].astype(np.int64)
    return Stays(
        np.concatenate((owner, request[singles].astype(np.int64))),
        np.concatenate((begins_at, single_at)),
        np.concatenate((last, single_at)),
    )
