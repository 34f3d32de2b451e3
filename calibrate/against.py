"""A measured run replayed: its arrivals and lengths under a server of ours, and how far that is.

What nobody measured of the server may be fitted to the first requests; errors are then stated on
the others. All requests run in any case: the first are the load of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from calibrate.compare import gap_statistics, latencies, statistics, table
from calibrate.faults import CalibrationError
from calibrate.measured_run import MeasuredRun
from calibrate.samples import Floats
from sim import FrontEnd, Host, Run, Server, StepTime, simulate
from sim.gaps_by_token import TokenGaps
from sim.settings import Policy
from sim.steptime import with_overhead
from sim.timeline import Timeline

OVERHEADS = {"overhead": "base_s", "mixed": "mixed_base_s"}
"""The term of the step times that each of these adds to."""

FITTED = ("front_end", "host", *OVERHEADS)
"""What may be fitted: ``front_end.constant_s`` of the server, its ``host.constant_s``, and of the
step times ``overhead.base_s`` and ``overhead.mixed_base_s``, what every step takes beyond its
kernels, and what one with decodes and prompts takes (engines run those in pieces, between which the
host launches attention)."""

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)

TTFT_WEIGHT = 0.25
"""An error of TTFT against one of TPOT: an error of speed is some four times as large in TTFT,
which adds up what a request waits for."""

COARSE_S = (0.0, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.024, 0.032)
FINE = 4
"""Where a fitted time is looked for first, and how often the intervals about the best are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A server as the spec has it."""

    name: str
    server: Server
    policy: Policy
    curve: StepTime

    def with_values(self, values: Mapping[str, float]) -> Setup:
        """The same with the fitted times."""
        server, curve = self.server, self.curve
        if "front_end" in values:
            front = server.front_end or FrontEnd()
            server = replace(server, front_end=replace(front, constant_s=values["front_end"]))
        if "host" in values:
            host = server.host or Host()
            server = replace(server, host=replace(host, constant_s=values["host"]))
        overhead = {term: values[name] for name, term in OVERHEADS.items() if name in values}
        if overhead:
            curve = with_overhead(curve, overhead)
        return replace(self, server=server, curve=curve)


def replayed(measured: MeasuredRun, setup: Setup) -> pd.DataFrame:
    """What the simulation gives each request, in the order of *measured*: ttft_s, tpot_s, e2e_s
    (NaN where it was not completed), and finished_s since the first arrival."""
    return per_request(played(measured, setup), measured)


def played(measured: MeasuredRun, setup: Setup) -> Run:
    """The simulation itself."""
    return simulate(measured.trace, setup.server, setup.policy, setup.curve)


def per_request(run: Run, measured: MeasuredRun) -> pd.DataFrame:
    frame = latencies(run)
    sent = run.requests.attributes.get("sent_ns", run.requests.arrival_ns)
    frame["finished_s"] = sent / 1e9 + frame["e2e_s"]
    return frame.iloc[_places(run, measured)].reset_index(drop=True)


def _places(run: Run, measured: MeasuredRun) -> NDArray[np.intp]:
    """Where in *run* each request of *measured* is: behind a front end requests join in another
    order than they were sent."""
    sent = run.requests.attributes.get("sent_ns", run.requests.arrival_ns)
    prompt, output = run.requests.prompt_tokens, run.requests.output_tokens
    trace = measured.trace
    ours = np.lexsort((output, prompt, sent))
    theirs = np.lexsort((trace.output_tokens, trace.prompt_tokens, trace.arrival_ns))
    place = np.empty(len(trace), dtype=np.intp)
    place[theirs] = ours
    return place


# --- comparing --------------------------------------------------------------------------------


def compared(measured: MeasuredRun, simulated: pd.DataFrame, skip: int = 0) -> pd.DataFrame:
    """Columns metric, statistic, measured, simulated, error (relative, signed), without the first
    *skip* requests; rates count from the first of them that is compared to the last token."""
    real, told = measured.table.iloc[skip:], simulated.iloc[skip:]
    sent = measured.trace.arrival_ns[skip:] / 1e9
    output = measured.trace.output_tokens[skip:]
    rates = []
    for end in (sent + real["e2e_s"], told["finished_s"]):
        window = float(np.nanmax(end)) - float(sent.min())
        done = ~np.isnan(np.asarray(end, dtype=np.float64))
        rates.append(
            {
                ("output_tokens_per_s", "total"): float(output[done].sum()) / window,
                ("requests_per_s", "total"): float(done.sum()) / window,
            }
        )
    names = ["ttft_s", "tpot_s", "e2e_s"]
    return table({**statistics(real), **rates[0]}, {**statistics(told[names]), **rates[1]})


def compared_gaps(measured: MeasuredRun, run: Run, skip: int = 0) -> pd.DataFrame:
    """The same of the gaps between tokens, pooled; empty where they were not recorded, and of
    static batches."""
    if measured.gaps_ns is None or run.static:
        return table({}, {})
    chosen = np.zeros(len(run.requests), dtype=np.bool_)
    chosen[_places(run, measured)[skip:]] = True
    told = TokenGaps(run, Timeline(run)).of_ns(chosen)
    real = np.concatenate(measured.gaps_ns[skip:])
    if not len(real) or not len(told):
        return table({}, {})
    return table(gap_statistics(real), gap_statistics(told))


def correlations(measured: MeasuredRun, simulated: pd.DataFrame, skip: int = 0) -> dict[str, float]:
    """Of each latency, request by request; NaN where all are alike."""
    found = {}
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        pair = pd.DataFrame({"r": measured.table[name], "s": simulated[name]}).iloc[skip:].dropna()
        varied = len(pair) > 2 and pair["r"].std() > 0 and pair["s"].std() > 0
        found[name] = float(np.corrcoef(pair["r"], pair["s"])[0, 1]) if varied else float("nan")
    return found


# --- fitting ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """The values in seconds, by `FITTED`; how far off the first requests are with them; how many
    simulations it took."""

    values: Mapping[str, float]
    loss: float
    simulations: int


class Target(Protocol):
    """What a server is fitted to: ``real`` figures of TTFT and TPOT, and what a server gives.
    ``shifts``: a constant front end does nothing but shift TTFT, since no arrival waits for an
    answer."""

    @property
    def real(self) -> Mapping[str, Floats]: ...

    @property
    def shifts(self) -> bool: ...

    def told(self, setup: Setup) -> Mapping[str, Floats]: ...


def fitted(measured: MeasuredRun, setup: Setup, names: Sequence[str], first: int) -> Fit:
    """The times *names* under which the first *first* requests come nearest to what they got.

    Distributions are compared, not requests: where a request lands within a step is chance.
    Raises CalibrationError for an unknown name, or when there is nothing to fit to.
    """
    check_fit(names, first, len(measured))
    return fitted_to(_First(measured, first), setup, names)


def check_fit(names: Sequence[str], first: int, requests: int) -> None:
    """Raise CalibrationError unless the first *first* of *requests* can be fitted by *names*."""
    for name in names:
        if name not in FITTED:
            raise CalibrationError(f"--fit {name}: unknown; known: {', '.join(FITTED)}")
    if not 0 < first <= requests:
        raise CalibrationError(
            f"--first {first}: the run has {requests} requests; give a number up to that"
        )


def fitted_to(target: Target, setup: Setup, names: Sequence[str]) -> Fit:
    """The times *names* under which a server comes nearest to *target*.

    A front end that only shifts needs no simulation of its own; of the others the one that helps
    most comes first, each on a coarse grid and then about its best.
    """
    shifts = "front_end" in names and target.shifts
    search = _Search(target, setup, shifts)
    others = [name for name in FITTED if name in names and not (shifts and name == "front_end")]
    values = dict.fromkeys(others, 0.0)
    front, loss = search.at(values)
    while others:
        best = {name: search.along(name, values) for name in others}
        name = min(others, key=lambda one: best[one][1])
        values[name] = best[name][0]
        front, loss = search.at(values)
        others.remove(name)
    if shifts:
        values = {"front_end": front, **values}
    return Fit({k: float(f"{v:.3g}") for k, v in values.items()}, loss, search.count)


class _First:
    """The first requests of a run that is replayed."""

    shifts = True

    def __init__(self, measured: MeasuredRun, first: int) -> None:
        self.measured, self.first = measured, first
        self.real = distribution(measured.table.iloc[:first])

    def told(self, setup: Setup) -> Mapping[str, Floats]:
        return distribution(replayed(self.measured, setup).iloc[: self.first])


class _Search:
    def __init__(self, target: Target, setup: Setup, shifts: bool) -> None:
        self.target, self.setup, self.shifts = target, setup, shifts
        self.count = 0
        self.real = target.real
        self.known: dict[tuple[tuple[str, float], ...], tuple[float, float]] = {}

    def at(self, values: Mapping[str, float]) -> tuple[float, float]:
        """(the best front end, the loss) with these values of the others."""
        key = tuple(sorted(values.items()))
        if key not in self.known:
            self.count += 1
            more = {"front_end": 0.0} if self.shifts else {}
            told = self.target.told(self.setup.with_values({**values, **more}))
            self.known[key] = self._shifted(told) if self.shifts else (0.0, self._loss(told, 0.0))
        return self.known[key]

    def _shifted(self, told: Mapping[str, Floats]) -> tuple[float, float]:
        most = max(float(self.real["ttft_s"].max()), 1e-6)
        best = minimize_scalar(
            lambda shift: self._loss(told, shift), bounds=(0.0, most), method="bounded"
        )
        still = self._loss(told, 0.0)
        return (0.0, still) if still <= best.fun else (float(best.x), float(best.fun))

    def _loss(self, told: Mapping[str, Floats], shift: float) -> float:
        off = TTFT_WEIGHT * ((told["ttft_s"] + shift) / self.real["ttft_s"] - 1.0)
        loss = float(np.mean(off**2))
        if len(self.real["tpot_s"]):
            loss += float(np.mean((told["tpot_s"] / self.real["tpot_s"] - 1.0) ** 2))
        return loss

    def along(self, name: str, values: Mapping[str, float]) -> tuple[float, float]:
        """(the best value of *name*, the others as they are; the loss with it)."""
        tried = {v: self.at({**values, name: v})[1] for v in COARSE_S}
        for _ in range(FINE):
            best = min(tried, key=lambda value: (tried[value], value))
            for value in _between(sorted(tried), best):
                tried[value] = self.at({**values, name: value})[1]
        best = min(tried, key=lambda value: (tried[value], value))
        return best, tried[best]


def _between(places: Sequence[float], best: float) -> Iterator[float]:
    """The middles of the intervals on both sides of *best*."""
    i = places.index(best)
    if i > 0:
        yield (places[i - 1] + best) / 2
    if i + 1 < len(places):
        yield (best + places[i + 1]) / 2


def distribution(frame: pd.DataFrame) -> dict[str, Floats]:
    """Mean and quantiles of TTFT and TPOT."""
    found = {}
    for name in ("ttft_s", "tpot_s"):
        values = frame[name].to_numpy(np.float64)
        values = values[~np.isnan(values)]
        found[name] = values
        if len(values):
            found[name] = np.array([values.mean(), *np.quantile(values, LEVELS)])
    return found
