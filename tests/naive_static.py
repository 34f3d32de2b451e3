"""Request-level scheduling, naively: a batch runs as a unit until its longest output ends."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from naive_data import NaiveIteration
from naive_life import Life
from naive_replica import Replica

BATCH = -1  # the holder of a static batch's blocks


@dataclass
class Batch:
    """Launched as one, gone as one. Who was given up counts as having all its tokens."""

    rows: list[Life]
    blocks: int
    first: list[int]  # prompt tokens that the first iteration computes of each row
    least: int | None  # tokens generated in every row, whatever was asked
    iterations: int = 0  # ended

    @property
    def over(self) -> bool:
        """Nothing is left to compute, for nobody."""
        if self.live:
            return False
        late = max(0, *(row.prompt - n for row, n in zip(self.rows, self.first, strict=True)))
        return self.least is None or self.iterations >= late + self.least

    def emitting(self) -> list[Life]:
        """Whose row makes a token in the iteration that has ended: the prompt is behind it."""
        first = dict(zip(self.rows, self.first, strict=True))
        return [row for row in self.live if first[row] + self.iterations - 1 >= row.prompt]

    @property
    def live(self) -> list[Life]:
        return [row for row in self.rows if not (row.has_all_tokens or row.ended)]


class StaticReplica(Replica):
    """Nothing joins a running batch; no token budget applies."""

    batch: Batch | None = None

    def boundary(self, now: int) -> None:
        super().boundary(now)
        assert self.batch is None or not self.batch.over

    def end_by_clients(self, lives: list[Life], now: int) -> None:
        super().end_by_clients([life for life in lives if not life.ended], now)
        self.end_batch_when_over(now)

    def delivered_tokens(self, life: Life) -> int:
        return life.generated if self.config.delivery == "streamed" else 0

    def leave(self, life: Life) -> None:
        if life not in self.running:  # a member keeps its row and slot
            super().leave(life)

    def next_wakeup_ns(self, now: int) -> int | None:
        """An arrival, a launch that is due, or a client who gives up."""
        times = [life.arrival_ns for life in self.due[:1]]
        if self.queue:
            assert self.config.launch == "full_or_timeout", f"nothing runs at {now}"
            if self.config.timeout_ns is not None:
                times.append(self.oldest_waiting_ns() + self.config.timeout_ns)
            for life in self.queue:
                asked = life.request
                if asked.cancel_ns is not None:
                    times.append(asked.cancel_ns)
                since_arrival = (asked.ttft_timeout_ns, asked.timeout_ns)
                times += [life.arrival_ns + each for each in since_arrival if each is not None]
        assert all(time > now for time in times)
        return min(times, default=None)

    # ------------------------------------------------------------ decisions

    def decide_until_something_runs(self, now: int) -> NaiveIteration | None:
        """The running batch goes on; without one, launch the front of the queue or wait."""
        if self.decisions == self.decisions_allowed or not (self.queue or self.running):
            return None
        self.decisions += 1
        admitted: list[int] = []
        if self.batch is None:
            rows = self.longest_prefix_that_fits()
            if not self.launches(rows, now):
                return None
            first = self.first_pass([row.prompt for row in rows])
            least = self.config.generate_tokens
            self.batch = Batch(rows, self.batch_blocks(rows), first, least)
            self.memory.take(BATCH, self.batch.blocks)
            for row in rows:
                self.start(row, now, "prefill", "admitted")
            admitted = [row.index for row in rows]
        iteration = self.static_iteration(self.batch, now, admitted)
        self.iterations.append(iteration)
        horizon = self.config.horizon_ns
        if horizon is not None and iteration.end_ns > horizon:
            self.overran = self.decisions
        return iteration

    def first_pass(self, prompts: list[int]) -> list[int]:
        if self.config.first_pass == "shortest":
            return [min(prompts) for _ in prompts]
        return [max(prompts) for _ in prompts] if self.config.padding else prompts

    def most_tokens(self, life: Life) -> int:
        """That its row may generate."""
        return max(life.limit, self.config.generate_tokens or 0)

    def batch_blocks(self, rows: list[Life]) -> int:
        if not self.config.padding:
            return sum(self.most_blocks(row) for row in rows)
        longest = max(row.prompt for row in rows) + max(map(self.most_tokens, rows)) - 1
        return len(rows) * self.blocks_of(longest)

    def batch_fits(self, rows: list[Life]) -> bool:
        """Whether *rows* fit the whole memory: nothing else is in it while a batch runs."""
        return self.config.kv_blocks is None or self.batch_blocks(rows) <= self.config.kv_blocks

    def longest_prefix_that_fits(self) -> list[Life]:
        """One by one, as if each were admitted: that may change who is next."""
        order, waiting = deepcopy(self.order), list(self.queue)
        rows: list[Life] = []
        while waiting and len(rows) < self.config.slots:
            life = order.line(waiting)[0]
            if not self.batch_fits([*rows, life]):
                break
            rows.append(life)
            order.admits(life, waiting)
            waiting.remove(life)
            order.left(life, waiting)
        return rows

    def launches(self, rows: list[Life], now: int) -> bool:
        if self.config.launch == "when_idle":
            return True
        if len(rows) == self.config.slots or len(rows) < len(self.queue):
            return True  # full
        timeout = self.config.timeout_ns
        if timeout is not None and now >= self.oldest_waiting_ns() + timeout:
            return True
        return self.config.drain and not self.due

    def oldest_waiting_ns(self) -> int:
        return min(life.arrival_ns for life in self.queue)

    def static_iteration(self, batch: Batch, now: int, admitted: list[int]) -> NaiveIteration:
        config, live = self.config, batch.live
        in_computation = live if config.compact else batch.rows
        decode_requests: list[int] = []
        chunks: list[tuple[int, int, int, int]] = []
        pasts: list[int] = []
        if batch.iterations == 0:
            for row, tokens in zip(batch.rows, batch.first, strict=True):
                chunks.append((row.index, tokens, 0, min(row.prompt, tokens)))
        else:
            decode_requests = [row.index for row in live if row.state == "decode"]
            for row, prompt in zip(batch.rows, batch.first, strict=True):
                if row in in_computation:
                    pasts.append(prompt + batch.iterations - 1)
        tokens = len(pasts) + sum(chunk[1] for chunk in chunks)
        host_ns = self.host_ns(len(pasts) + len(chunks), tokens, len(admitted))
        return NaiveIteration(
            start_ns=now,
            step_ns=self.step_ns(len(pasts), sum(pasts), [(c[1], c[2]) for c in chunks]),
            decodes=len(pasts),
            context=sum(pasts),
            chunks=chunks,
            decode_requests=decode_requests,
            preempted=[],
            useful=len(live),
            stranded=len(batch.rows) - len(live),
            paused=0,
            empty=config.slots - len(batch.rows),
            waiting=len(self.queue),
            kv_blocks=self.memory.used,
            slots={row.index: row.slot for row in batch.rows if row.slot is not None},
            stopped_by=self.static_stopped_by(batch),
            gap_ns=host_ns,
            host_ns=host_ns,
            host_waiting_ns=host_ns,
            decided_ns=now,
            admitted=admitted,
        )

    def static_stopped_by(self, batch: Batch) -> str:
        if not self.queue:
            return "nothing_waiting"
        if len(batch.rows) == self.config.slots:
            return "slots"
        if not self.batch_fits([*batch.rows, self.order.line(self.queue)[0]]):
            return "kv"
        return "head_of_line"  # the running batch holds the line

    # ------------------------------------------------------------ what an iteration leaves behind

    def record(self, now: int) -> None:
        batch = self.batch
        assert batch is not None
        batch.iterations += 1
        streamed = self.config.delivery == "streamed"
        emitting = batch.emitting()
        for row in emitting:
            self.emit(row, now, delivered=streamed)
        over = batch.over
        for row in batch.rows:
            if row.ended:
                continue  # streamed or given up, and only holding its slot
            if over or (streamed and row.has_all_tokens):
                self.complete(row, now)
            elif row.state == "prefill" and row in emitting:
                self.move(row, now, len(self.iterations), "decode", "prompt_done")
        self.end_batch_when_over(now)

    def end_batch_when_over(self, now: int) -> None:
        if self.batch is None or not self.batch.over:
            return
        for row in self.batch.rows:
            if not row.ended:
                self.complete(row, now)
        self.memory.release(BATCH)
        for row in self.batch.rows:
            self.leave_slot(row)
        self.batch = None
