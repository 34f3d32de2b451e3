"""A server, its clients and what befalls them, changed step by step; every law after each step.

A law that only steps can show: what changes from a moment on changes nothing before it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from naive import NaiveConfig, NaiveRequest
from sampled import TOPICS, VARIED, Case, a_config, a_curve, a_workload, objects
from stateful_laws import (
    Answer,
    history,
    kept_laws,
    kept_together,
    refusal,
    said,
    same,
    same_outcomes,
    served_again,
    tokens,
)
from stateful_support import budget

from sim import (
    Constant,
    FrontEnd,
    Range,
    Run,
    Server,
    Source,
    StepTime,
    StepTimeError,
    Trace,
    simulate,
)
from sim.cluster import (
    ROUTERS,
    Cluster,
    ClusterRun,
    Link,
    Member,
    Outages,
    Router,
    simulate_cluster,
)
from sim.settings import Policy, Static
from workloads.clients import Clients

MS = 1_000_000
MOST = 24  # requests
EVER = 1 << 62

chances = st.randoms(use_true_random=False)


class ServerOverTime(RuleBasedStateMachine):
    """What a user may have changed so far, and what came of it last time."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[NaiveRequest] = []
        self.sessions: list[str | None] = []
        self.config = NaiveConfig(kind="chunked", slots=2)
        self.curve: StepTime = Constant(step_s=0.01)
        self.front_end: FrontEnd | None = None
        self.clients = Clients()
        self.behind: dict[str, Any] | None = None  # settings of a cluster of such servers
        self.since = 0  # when the latest change begins to matter
        self.before: Answer = ""
        self.before_together: Answer | None = None
        self.moments = [0]

    # -- who comes -------------------------------------------------------------------------------

    @initialize(chance=chances, count=st.integers(1, 8))
    def begin(self, chance: Random, count: int) -> None:
        """A workload, a server, a curve."""
        tick = chance.choice([1, MS, MS]) * chance.choice([1, 100])
        self.requests = few(chance, count, tick)
        self.sessions = [None] * count
        self.config = a_config(chance, self.requests)
        self.curve = a_curve(chance, tick * 1e-9, self.config.slots)
        self.since = 0

    @rule(chance=chances, count=st.integers(1, 5), at=st.floats(0, 1), beside=st.integers(-1, 1))
    def some_come(self, chance: Random, count: int, at: float, beside: int) -> None:
        """A burst, or requests one by one, from about an end of an iteration on."""
        if len(self.requests) + count > MOST:
            return
        begin = self.moment(at, beside)
        new = [replace(r, arrival_ns=begin + r.arrival_ns) for r in few(chance, count, 1)]
        self.requests += new
        self.sessions += [chance.choice(["a", "b", None]) for _ in new]
        self.since = min(r.arrival_ns for r in new)

    @rule(beside=st.integers(0, 3 * MS), prompt=st.integers(1, 9), output=st.integers(1, 9))
    def one_comes_when_all_is_over(self, beside: int, prompt: int, output: int) -> None:
        if len(self.requests) >= MOST:
            return
        self.since = self.moments[-1] + 1 + beside
        self.requests.append(NaiveRequest(self.since, prompt, output))
        self.sessions.append(None)

    @rule(who=st.integers(0, MOST), at=st.floats(0, 1), beside=st.integers(-1, 1), data=st.data())
    def a_client_gives_up(self, who: int, at: float, beside: int, data: st.DataObject) -> None:
        """At a moment, or after a time, or later than before."""
        place = who % len(self.requests)
        had, moment = self.requests[place], self.moment(at, beside)
        name = data.draw(st.sampled_from(["cancel_ns", "ttft_timeout_ns", "timeout_ns"]))
        value = moment if name == "cancel_ns" else max(moment - had.arrival_ns, 1)
        self.requests[place] = replace(had, **{name: value})
        was = getattr(had, name)
        ends = [
            n if name == "cancel_ns" else had.arrival_ns + n for n in (was, value) if n is not None
        ]
        self.since = min(ends)
        if self.front_end is not None:
            self.since = 0  # patience counts from elsewhere

    @rule(who=st.integers(0, MOST), data=st.data())
    def one_says_something_else(self, who: int, data: st.DataObject) -> None:
        """Its priority, tenant, deadline, session: nobody knows before it arrives."""
        place = who % len(self.requests)
        had = self.requests[place]
        name = data.draw(st.sampled_from(["priority", "tenant", "deadline_ns", "session"]))
        if name == "session":
            self.sessions[place] = data.draw(st.sampled_from(["a", "b", None]))
        else:
            values: dict[str, Any] = {
                "priority": st.integers(0, 3),
                "tenant": st.sampled_from("abc"),
                "deadline_ns": st.integers(0, 30).map(lambda n: had.arrival_ns + n * MS),
            }
            self.requests[place] = replace(had, **{name: data.draw(values[name])})
        self.since = had.arrival_ns

    @rule(attempts=st.integers(0, 3), backoff=st.sampled_from([0, 1, MS, 50 * MS]))
    def clients_try_again(self, attempts: int, backoff: int) -> None:
        self.clients = Clients(attempts=attempts, backoff_ns=backoff)
        self.since = 0

    # -- what they meet --------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS), chance=chances)
    def the_policy_changes(self, topic: str, chance: Random) -> None:
        """As `sampled` varies it; what contradicts itself is refused and stays as it was."""
        config, requests = VARIED[topic](chance, self.config, list(self.requests))
        self.offered(config, requests)

    @rule(chance=chances, kind=st.sampled_from(["static", "mixed", "prefill_first", "chunked"]))
    def the_scheduler_changes(self, chance: Random, kind: str) -> None:
        budget = self.config.max_batched_tokens or 64 + self.config.slots
        self.offered(replace(self.config, kind=kind, max_batched_tokens=budget), self.requests)

    @rule(blocks=st.none() | st.integers(1, 40), slots=st.integers(1, 6))
    def the_machine_changes(self, blocks: int | None, slots: int) -> None:
        """Too little memory for some, or for all: they are refused."""
        self.offered(replace(self.config, kv_blocks=blocks, slots=slots), self.requests)

    @rule(chance=chances)
    def steps_take_other_times(self, chance: Random) -> None:
        self.curve = a_curve(chance, chance.choice([1e-9, 1e-5, 1e-3]), self.config.slots)
        self.since = 0

    @rule(decodes=st.integers(1, 6), context=st.integers(1, 200), tokens=st.integers(1, 90))
    def the_curve_ends_somewhere(self, decodes: int, context: int, tokens: int) -> None:
        """A step beyond that is an error, wherever it comes up."""
        bounds = Range(decodes=(1, decodes), context=(1, context), tokens=(1, tokens))
        self.curve = Constant(step_s=0.004, range=bounds, extrapolate=False)
        self.since = 0

    @rule(way=st.sampled_from([0.0, 1e-9, 1e-3]), each=st.sampled_from([0.0, 1e-4]))
    def a_front_end_comes_between(self, way: float, each: float) -> None:
        given_back = FrontEnd(constant_s=way, per_prompt_token_s=each, delivery_s=way)
        self.front_end = given_back if way or each else None
        self.since = 0

    @rule(at=st.none() | st.floats(0, 1), beside=st.integers(-1, 1))
    def it_is_watched_until(self, at: float | None, beside: int) -> None:
        """A horizon, or none any more."""
        horizon = None if at is None else self.moment(at, beside)
        self.offered(replace(self.config, horizon_ns=horizon), self.requests)

    # -- several of them -------------------------------------------------------------------------

    @rule(chance=chances, alone=st.booleans())
    def a_cluster_of_them(self, chance: Random, alone: bool) -> None:
        count = chance.randint(1, 3)
        self.behind = {
            "count": count,
            "apart": chance.choice([None, None, None, 0.0, 0.001]),  # latency of a link
            "starts": [chance.choice([0, 0, 0, 20 * MS]) for _ in range(count)],
            "outages": [Outages()] * count,
            "router": Router(kind=chance.choice(ROUTERS), imbalance=chance.choice([0, 2, 8])),
            "max_outstanding": chance.choice([None, None, 1, 4]),
            "queue_cap": chance.choice([None, None, 0, 3]),
            "shed_after_ns": chance.choice([None, 10 * MS]),
            "on_failure": chance.choice(["retry", "fail"]),
            "retries": chance.choice([0, 2]),
        }
        if alone:
            self.behind = None
        self.since = 0

    @rule(who=st.integers(0, 2), at=st.floats(0, 1), beside=st.integers(-1, 1), data=st.data())
    def a_replica_fails(self, who: int, at: float, beside: int, data: st.DataObject) -> None:
        """At about an end of an iteration: declared; or now and then."""
        if self.behind is None:
            return
        begin = max(self.moment(at, beside), 1)
        down = data.draw(st.sampled_from([None, 1, 5 * MS, 300 * MS]))
        fails = Outages(declared=((begin, down),))
        if data.draw(st.integers(0, 3)) == 0:
            fails, begin = Outages(mean_up_ns=3e8, mean_down_ns=5e7), 0
        outages = self.behind["outages"]
        place = who % len(outages)
        begin = min([begin, *(at for at, _ in outages[place].declared)])
        if outages[place].mean_up_ns is not None:
            begin = 0
        self.behind["outages"] = [*outages[:place], fails, *outages[place + 1 :]]
        self.since = begin

    # -- what that makes -------------------------------------------------------------------------

    def moment(self, at: float, beside: int) -> int:
        """At, or a nanosecond beside, something that happened last time."""
        return max(self.moments[int(at * (len(self.moments) - 1))] + beside, 0)

    def offered(self, config: NaiveConfig, requests: list[NaiveRequest]) -> None:
        """Take over what does not contradict itself."""
        made = Case(config, requests, self.curve)
        try:
            made.server, made.policy, made.trace  # noqa: B018 - raises if contradictory
        except ValueError as error:
            assert str(error)
            self.since = EVER
            return
        self.config, self.requests, self.since = config, requests, 0

    def told(self) -> str:
        """All that was set, for whoever reads of a fault."""
        rows = [said(row, NaiveRequest(-1, 0, 0)) for row in self.requests]
        parts = [self.since, said(self.config, NaiveConfig("", 0)), self.curve, *rows]
        parts += [self.front_end, self.clients, self.behind, self.sessions]
        return "\n  ".join(map(str, parts))

    @property
    def case(self) -> Case:
        return Case(self.config, self.requests, self.curve)

    @property
    def server(self) -> Server:
        return replace(self.case.server, front_end=self.front_end)

    @property
    def policy(self) -> Policy:
        return self.case.policy

    @property
    def work(self) -> Trace | Source:
        trace = self.case.trace
        columns = dict(trace.attributes)
        if any(self.sessions):
            columns["session"] = objects([self.sessions[i] for i in self.case.order])
        return self.clients.applied(replace(trace, attributes=columns))

    @property
    def looks_ahead(self) -> bool:
        """Whether launches depend on who is still to come."""
        return isinstance(self.policy, Static) and self.policy.waits

    def served(self, fast_forward: bool = True) -> Answer:
        try:
            return simulate(
                self.work,
                self.server,
                self.policy,
                self.curve,
                horizon_ns=self.config.horizon_ns,
                fast_forward=fast_forward,
            )
        except (StepTimeError, ValueError) as error:
            return refusal(error)

    def cluster(self, said: dict[str, Any]) -> Cluster:
        def member(place: int, **more: Any) -> Member:
            return Member(
                server=self.server,
                policy=self.policy,
                curve=self.curve,
                start_ns=said["starts"][place],
                outages=said["outages"][place],
                **more,
            )

        settings = {k: v for k, v in said.items() if k not in ("count", "apart", "starts")}
        del settings["outages"]
        places = range(said["count"])
        if said["apart"] is None:
            return Cluster(members=tuple(map(member, places)), **settings)
        link = Link(bytes_per_token=100_000, bytes_per_s=1e9, latency_s=said["apart"])
        second = Member(
            server=self.server, policy=self.policy, curve=self.curve, role="decode", group="d"
        )
        firsts = [member(place, role="prefill", group="p") for place in places]
        return Cluster(members=(*firsts, second, second), link=link, **settings)

    def served_together(self, fast_forward: bool = True, together: bool = True) -> Answer | None:
        if self.behind is None:
            return None
        try:
            return simulate_cluster(
                self.work,
                self.cluster(self.behind),
                horizon_ns=self.config.horizon_ns,
                seed=3,
                fast_forward=fast_forward,
                together=together,
            )
        except (StepTimeError, ValueError) as error:
            return refusal(error)

    @invariant()
    def the_server_keeps_its_laws(self) -> None:
        if not self.requests or self.since == EVER:
            return
        note(self.told())
        run = self.served()
        same(run, self.served(), "the same input twice")
        same(run, self.served(fast_forward=False), "skipping ahead")
        if isinstance(run, Run):
            self.moments = sorted(kept_laws(run))
            if not self.looks_ahead:
                same(run, served_again(run), "the requests that it leaves, again")
                if isinstance(self.before, Run):
                    for one, other in zip(
                        history(self.before, self.since), history(run, self.since), strict=True
                    ):
                        assert one == other, f"before {self.since}, when nothing had changed yet"
        self.before = run

    @invariant()
    def the_cluster_keeps_its_laws(self) -> None:
        if not self.requests or self.since == EVER:
            return
        run = self.served_together()
        same(run, self.served_together(), "the same input twice")
        same(run, self.served_together(fast_forward=False), "skipping ahead")
        if isinstance(run, ClusterRun):
            if run.cluster.divides:
                alone = self.served_together(together=False)
                assert isinstance(alone, ClusterRun)
                assert same_outcomes(run, alone), "one by one"
            kept_together(run, self.looks_ahead)
            if isinstance(self.before_together, ClusterRun) and not self.looks_ahead:
                one, other = tokens((self.before_together, run), self.since)
                assert one == other, f"before {self.since}, when nothing had changed yet"
        self.before_together = run


def few(chance: Random, count: int, tick_ns: int) -> list[NaiveRequest]:
    """A workload whose answers are not so long that stepping takes all the time."""
    return [replace(r, output=min(r.output, 80)) for r in a_workload(chance, count, tick_ns)]


TestServerOverTime = ServerOverTime.TestCase
TestServerOverTime.settings = budget(few=20, steps=8)
