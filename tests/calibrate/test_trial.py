"""A whole validation on a machine that is a formula: what it finds is what was put in."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from harness_support import TRUTH, FakeRunner
from test_executor import SIZE, Ledger

from calibrate.bars import Standing, as_table, standings
from calibrate.design import Limits, anchors, design
from calibrate.host import fit_host
from calibrate.measure import Plan, measure
from calibrate.points import Point
from calibrate.replay import AnchorPace, Case, replay
from calibrate.spread import scaled
from calibrate.store import Store
from calibrate.trial import Trial, anchors_of, run_trial
from calibrate.validation import iterations, latency_errors, ranking
from sim import Affine, Chunked, Host, Mixed, PrefillFirst, Server, Static, Trace, trace_of

SLOTS = 6
LIMITS = Limits(slots=SLOTS, context=96, budget=48, step_tokens=400, kv_blocks=400, block_size=SIZE)
ANCHORS = anchors(LIMITS)
CASES = [
    Case(name="static", server=Server(slots=SLOTS), policy=Static()),
    Case(name="mixed", server=Server(slots=SLOTS, max_batched_tokens=400), policy=Mixed()),
    Case(
        name="prefill_first",
        server=Server(slots=SLOTS, max_batched_tokens=400),
        policy=PrefillFirst(),
    ),
    Case(name="chunked", server=Server(slots=SLOTS, max_batched_tokens=48), policy=Chunked()),
]
CASES = [replace(c, server=replace(c.server, kv_blocks=400, block_size=SIZE)) for c in CASES]
PADDED = replace(TRUTH, base_s=1.5e-3, per_decode_s=1.5e-4)


def truth(point: Point) -> float:
    curve = PADDED if point.region.startswith("padded") else TRUTH
    return curve.step_ns(*point.shape()) / 1e9


class Device(Ledger):
    """Takes as long as the runner beside it would; both share one drifting clock."""

    def __init__(self, runner: FakeRunner) -> None:
        super().__init__(400)
        self.runner = runner

    def now_ns(self) -> int:
        """Whatever the host does takes it 20 us, and passes take their time."""
        self.clock += 20_000
        return self.clock + round(self.runner.moment * 1e9)

    def run(self, prepared: Any) -> tuple[list[int], int, int]:
        if isinstance(prepared, dict):
            rows, length = prepared["rows"], prepared["length"]
            made = len(rows[0]) - prepared["prompts"][0]
            if made:
                point = Point("padded_decode", pasts=(length + made - 1,) * len(rows))
            else:
                point = Point("padded_prefill", chunks=((length, 0),) * len(rows))
        else:
            pasts = tuple(past for new, past, _ in prepared if len(new) == 1 and past)
            chunks = tuple(
                (len(new), past) for new, past, _ in prepared if len(new) > 1 or not past
            )
            region = "mixed" if pasts and chunks else "decode" if pasts else "prefill"
            point = Point(region, pasts=pasts, chunks=chunks)  # type: ignore[arg-type]
        self.runner.prepare(point)
        ns = round(self.runner.run().step_s * 1e9)
        return super().run(prepared)[0], ns, ns

    def prepare_rectangle(self, prompts: list[list[int]], length: int, room: int) -> Any:
        state = super().prepare_rectangle(prompts, length, room)
        return {**state, "prompts": [len(p) for p in prompts]}

    def next_of_rectangle(self, state: Any, tokens: list[int], rows: list[int]) -> Any:
        made = super().next_of_rectangle(state, tokens, rows)
        return {**made, "prompts": [state["prompts"][place] for place in rows]}


@dataclass
class Fake:
    """The machine, and measuring on it in rounds."""

    runner: FakeRunner
    device: Device
    store: Store
    points: int = 80
    rounds: int = 3
    anchors: dict[str, Point] = field(default_factory=lambda: dict(ANCHORS))
    beside: bool = False

    def measure(self, rounds: int | None = None) -> int:
        plan = Plan(
            points=tuple(design(LIMITS, self.points)),
            anchors=ANCHORS,
            repeats=1,
            beside=self.beside,
            warm_up_s=0.0,
        )
        with self.store.opened({}):
            return measure(self.runner, plan, self.store, rounds=rounds)

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()


def a_trace(count: int = 40) -> Trace:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1e9, count)).astype(np.int64)
    prompts, outputs = rng.integers(2, 40, count), rng.integers(1, 30, count)
    return trace_of(arrivals.tolist(), prompts.tolist(), outputs.tolist())


def trial(folder: Path, noise: float, drift: Any) -> tuple[Trial, Fake]:
    runner = FakeRunner(truth, noise=noise, drift=drift)
    fake = Fake(runner, Device(runner), Store(folder, {}))
    return run_trial(fake.device, runner, fake, CASES, a_trace(), passes=1), fake


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Fake]:
    return trial(tmp_path_factory.mktemp("quiet") / "raw", 0.003, lambda moment: 1.0)


def test_a_quiet_machine_is_simulated_to_its_noise(quiet: tuple[Trial, Fake]) -> None:
    found, _ = quiet
    assert list(found.iterations["policy"]) == [c.name for c in CASES]
    assert (found.iterations["error_median"] < 0.01).all()
    assert (found.iterations["noise_median"] < 0.006).all()
    means = found.latencies[found.latencies["statistic"].isin(["mean", "total"])]
    assert (means["error"].abs() < 0.05).all(), means.to_string()
    assert found.ranking["agree"].all()
    assert 0.4 <= max(found.load.values()) <= 0.6 + 1e-6
    assert found.discarded == 0
    verdicts = as_table(standings(found.iterations, found.latencies))
    assert len(verdicts) == 4 * (2 + 3 + 1)
    assert (verdicts["verdict"] != "missed").all(), verdicts.to_string()


def test_the_second_time_is_the_same_schedule(quiet: tuple[Trial, Fake]) -> None:
    found, _ = quiet
    for served in [*found.replays.values(), *found.bursts.values()]:
        assert served.again is not None
        shape = ["padded", "decodes", "context", "chunks", "tokens", "chunk_past"]
        assert served.again[shape].equals(served.table[shape])
        assert not served.again["step_ns"].equals(served.table["step_ns"])


def test_a_drifting_machine_is_put_right(tmp_path: Path) -> None:
    found, _ = trial(tmp_path / "raw", 0.003, lambda t: 1.05 + 0.05 * math.sin(t / 20))
    assert (found.iterations["error_median"] < 0.02).all(), found.iterations.to_string()
    raw = found.iterations["raw_error_median"]
    assert (raw > found.iterations["error_median"]).all()
    assert 1.02 < found.worst_drift < 1.3


def test_a_curve_that_is_wrong_is_seen(quiet: tuple[Trial, Fake]) -> None:
    """Every step 10 % too long: so are the errors found, and the bars are missed."""
    found, _ = quiet
    slow = Affine(
        base_s=TRUTH.base_s * 1.1,
        **{
            name: getattr(TRUTH, name) * 1.1
            for name in (
                "per_decode_s",
                "per_context_s",
                "per_prefill_token_s",
                "per_chunk_s",
                "per_chunk_past_s",
                "per_chunk_squared_s",
            )
        },
    )
    model = replace(found.model, flat=slow)
    frame = iterations(model, found.replays["mixed"])
    assert frame["error"].median() == pytest.approx(0.1, abs=0.01)
    errors = latency_errors(model, found.replays["mixed"], "spread")
    tpot = errors[(errors["metric"] == "tpot_s") & (errors["statistic"] == "mean")]
    assert tpot["error"].iloc[0] == pytest.approx(0.1, abs=0.03)
    missed = [
        s.what
        for s in standings(
            found.iterations.assign(error_median=0.1, error_p90=0.1),
            errors,
        )
        if s.verdict == "missed"
    ]
    assert "tpot_s, mean" in missed and "iteration |error|, median" in missed


def test_a_replay_on_an_unsteady_machine_is_run_again(
    tmp_path: Path, quiet: tuple[Trial, Fake]
) -> None:
    _, station = quiet
    slow = {"on": True}

    def pace() -> AnchorPace:
        factor = 0.5 if slow["on"] else 1.0  # a reference half as long: twice as slow now
        slow["on"] = False
        reference = {kind: truth(point) * factor for kind, point in station.anchors.items()}
        return AnchorPace(station.runner, station.anchors, reference)

    found = replay(station.device, a_trace(6), CASES[1], pace, passes=1)
    assert found.discarded == 1 and found.worst < 1.3


def test_the_first_anchors_are_the_reference(tmp_path: Path) -> None:
    runner = FakeRunner(truth, drift=lambda moment: 1.0 + moment / 10)
    fake = Fake(runner, Device(runner), Store(tmp_path / "raw", {}), points=40)
    fake.measure(1)
    references = anchors_of(fake.store)
    for kind, point in fake.anchors.items():
        assert references[kind] == pytest.approx(truth(point), rel=0.05)


def test_host_work_is_learnt_term_by_term() -> None:
    rng = np.random.default_rng(1)
    n = 300
    decodes, chunks = rng.integers(0, 16, n), rng.integers(0, 3, n)
    table = pd.DataFrame(
        {
            "decodes": decodes,
            "chunks": chunks,
            "tokens": chunks * rng.integers(1, 60, n),
            "admitted": rng.integers(0, 2, n) * (chunks > 0),
            "drift": 1.0,
            "swap_ns": 0,
            "prepare_ns": 0,
        }
    )
    truth_ = Host(constant_s=2e-4, per_sequence_s=1e-5, per_token_s=1e-6, per_admission_s=5e-5)
    table["between_ns"] = [
        truth_.ns(d + c, d + t, a)
        for d, c, t, a in zip(
            table["decodes"], table["chunks"], table["tokens"], table["admitted"], strict=True
        )
    ]
    table.loc[7, "between_ns"] *= 50  # the host was interrupted
    found = fit_host(table)
    for name in ("constant_s", "per_sequence_s", "per_token_s", "per_admission_s"):
        assert getattr(found, name) == pytest.approx(getattr(truth_, name), rel=0.1)
    with pytest.raises(ValueError, match="too few"):
        fit_host(table.head(5))


def test_scaled_arrivals_keep_their_pattern() -> None:
    trace = a_trace(10)
    wide = scaled(trace, 5.0)
    assert wide.arrival_ns[0] == 0 and wide.arrival_ns[-1] == 5_000_000_000
    gaps = np.diff(trace.arrival_ns) / np.diff(wide.arrival_ns)
    assert np.allclose(gaps, gaps[0], rtol=1e-6)
    assert (scaled(trace, 0.0).arrival_ns == 0).all()


@pytest.mark.parametrize(
    ("value", "noise", "verdict"),
    [
        (0.02, None, "reached"),
        (0.04, None, "missed"),
        (0.04, 0.03, "within noise"),
        (0.04, 0.02, "missed"),
        (0.061, 0.5, "missed"),
    ],
)
def test_noise_excuses_only_so_much(value: float, noise: float | None, verdict: str) -> None:
    standing = Standing(policy="mixed", what="tpot_s", value=value, bar=0.03, noise=noise)
    assert standing.verdict == verdict


def test_rankings_agree_unless_what_is_apart_changes_places() -> None:
    def frame(simulated: list[float]) -> pd.DataFrame:
        measured = [1.0, 2.0, 2.02]
        return pd.DataFrame(
            {
                "policy": ["a", "b", "c"],
                "load": "burst",
                "metric": "ttft_s",
                "statistic": "mean",
                "measured": measured,
                "simulated": simulated,
                "error": np.array(simulated) / measured - 1.0,
            }
        )

    assert ranking(frame([1.01, 2.03, 2.0]))["agree"].all()  # b and c are a tie
    apart = ranking(frame([1.3, 1.2, 2.02]))
    assert apart["measured"][0] == "a < b < c" and apart["simulated"][0] == "b < a < c"
    assert not apart["agree"].any()
    assert ranking(frame([1.0, 2.01, 2.01]))["agree"].all()  # no order is foretold
    wild = ranking(frame([1.9, 1.7, 2.02]))  # a is 90 % off: nothing can be said of it
    assert wild["agree"].all()
