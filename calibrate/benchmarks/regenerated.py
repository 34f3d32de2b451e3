"""A benchmark that recorded no times of requests: its load made again, and ours beside it.

Seed by seed, what a server of ours gives the load stands beside what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calibrate.against import Fit, Setup, check_fit, distribution, fitted_to
from calibrate.benchmarks.clients import Client, due_ns
from calibrate.benchmarks.lengths import Draw, lengths_of
from calibrate.benchmarks.result import Figures, Ints, Result
from calibrate.compare import gap_statistics, latencies, statistics, table
from calibrate.csv_files import ReadError
from calibrate.samples import Floats
from sim import simulate
from sim.gaps_by_token import TokenGaps
from sim.timeline import Timeline

FITTED_FIGURES = ("ttft_s", "tpot_s")


@dataclass(frozen=True, slots=True)
class Told:
    """One simulation: ``frame`` has ttft_s, tpot_s, e2e_s of each request in the order of the load,
    NaN where it was not answered; ``gaps_ns`` of the requests compared."""

    frame: pd.DataFrame
    sent_ns: Ints
    output_tokens: Ints
    gaps_ns: Ints | None
    skip: int
    starts_at_0: bool
    tpot_by_token: bool

    def figures(self, wanted: Sequence[tuple[str, str]]) -> Figures:
        """Those of the *wanted* figures that it has."""
        found: Figures = {}
        for metric, statistic in wanted:
            value = self._figure(metric, statistic)
            if value is not None and np.isfinite(value):
                found[metric, statistic] = value
        return found

    def _figure(self, metric: str, statistic: str) -> float | None:
        if statistic == "total":
            return self._rate(metric)
        if metric == "itl_s":
            values = np.zeros(0) if self.gaps_ns is None else self.gaps_ns / 1e9
            weights = np.ones(len(values))
        else:
            column = self.frame[metric].to_numpy(np.float64)[self.skip :]
            there = ~np.isnan(column)
            by_token = metric == "tpot_s" and self.tpot_by_token
            tokens = self.output_tokens[self.skip :][there] - 1.0
            values = column[there]
            weights = tokens if by_token else np.ones(len(values))
        if not len(values):
            return None
        if statistic == "mean":
            return float(np.average(values, weights=weights))
        level = float(statistic.removeprefix("p")) / 100
        if metric == "tpot_s" and self.tpot_by_token:
            return weighted_quantile(values, weights, level)
        return float(np.quantile(values, level))

    def _rate(self, metric: str) -> float:
        """From the benchmark's beginning, or its first request, to the last token."""
        e2e = self.frame["e2e_s"].to_numpy(np.float64)[self.skip :]
        sent = self.sent_ns[self.skip :] / 1e9
        done = ~np.isnan(e2e)
        start = 0.0 if self.starts_at_0 and not self.skip else float(sent.min())
        window = float((sent + e2e)[done].max()) - start
        count = self.output_tokens[self.skip :][done].sum() if "token" in metric else done.sum()
        return float(count) / window


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The least value up to which a share *level* of the weight lies."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(share, level)), len(values) - 1)])


class Regenerated:
    """The load of *result*, made again under every one of *seeds*: all servers get the same."""

    def __init__(self, result: Result, seeds: Sequence[int], spec: Draw | None = None) -> None:
        if result.load is None:
            raise ReadError(
                "neither the times of requests nor the load (rate, concurrency) can be read from "
                "this result; save it with every request, or with a fixed rate or concurrency"
            )
        if result.figures.get(("ttft_s", "mean"), 1.0) == 0:
            raise ReadError("the mean TTFT is 0: the endpoint did not stream, so none was measured")
        if result.requests is not None:
            result = replace(result, requests=result.requests.in_order_of_sending())
        assert result.load is not None
        self.result, self.load = result, result.load
        self.draw, self.words, varied = lengths_of(result, spec)
        self.is_random = self.load.is_random or varied
        self.seeds = tuple(seeds) if self.is_random else tuple(seeds)[:1]

    def __len__(self) -> int:
        return self.load.requests

    @property
    def table(self) -> pd.DataFrame | None:
        """What each request got, in the order of the load, where that is recorded."""
        return None if self.result.requests is None else self.result.requests.table()

    def measured(self, skip: int = 0) -> Figures:
        """The figures to compare: of the requests after the first *skip*, or the tool's own."""
        requests, figures = self.result.requests, self.result.figures
        if requests is None:
            return dict(figures)
        found = statistics(requests.table().iloc[skip:])
        if requests.gaps_ns is not None:
            gaps = np.concatenate(requests.gaps_ns[skip:])
            found |= gap_statistics(gaps) if len(gaps) else {}
        rates = {key: value for key, value in figures.items() if key[1] == "total"}
        return found | ({} if skip else rates)

    def play(self, setup: Setup, seed: int, skip: int = 0) -> Told:
        """One simulation of it."""
        prompt, output = self.draw(seed, self.load.requests)
        due = due_ns(self.load, seed)
        client = Client(due, prompt, output, self.load.most, setup.server.front_end)
        server = replace(setup.server, front_end=None)
        run = simulate(client, server, setup.policy, setup.curve)
        order = np.argsort(client.rows, kind="stable")
        frame = latencies(run).iloc[order].reset_index(drop=True)
        for name in ("ttft_s", "e2e_s"):
            frame[name] += client.delivery_ns / 1e9
        chosen = np.zeros(len(run.requests), dtype=np.bool_)
        chosen[order[skip:]] = True
        gaps = None if run.static else TokenGaps(run, Timeline(run)).of_ns(chosen)
        return Told(
            frame=frame,
            sent_ns=run.requests.attributes["sent_ns"][order],
            output_tokens=run.requests.output_tokens[order],
            gaps_ns=gaps,
            skip=skip,
            starts_at_0=self.load.exact,
            tpot_by_token=self.result.tpot_by_token and self.result.requests is None,
        )

    def plays(self, setup: Setup, skip: int = 0) -> list[Told]:
        """A simulation per seed."""
        return [self.play(setup, seed, skip) for seed in self.seeds]

    def fitted(self, setup: Setup, names: Sequence[str], first: int | None) -> Fit:
        """Fitted to the first *first* requests, or where only figures are known, to these."""
        if self.result.requests is None and first is not None:
            raise ReadError(
                "--first: the result has no requests, only figures of all of them; leave it out"
            )
        count = len(self) if first is None else first
        check_fit(names, count, len(self))
        return fitted_to(_Figures(self, count), setup, names)


class _Figures:
    """Figures of a load that is made again: means over its seeds."""

    def __init__(self, regenerated: Regenerated, first: int) -> None:
        self.regenerated, self.first = regenerated, first
        self.shifts = regenerated.load.most is None
        self.own = {
            metric: [s for m, s in regenerated.result.figures if m == metric]
            for metric in FITTED_FIGURES
        }
        measured = regenerated.table
        self.real: Mapping[str, Floats] = (
            self._of(regenerated.result.figures)
            if measured is None
            else distribution(measured.iloc[:first])
        )
        if not len(self.real["ttft_s"]):
            raise ReadError("the result has no TTFT; there is nothing to fit to")

    def _of(self, figures: Figures) -> dict[str, Floats]:
        return {
            metric: np.array([figures.get((metric, s), np.nan) for s in names])
            for metric, names in self.own.items()
        }

    def told(self, setup: Setup) -> Mapping[str, Floats]:
        told = self.regenerated.plays(setup)
        if self.regenerated.table is not None:
            found = [distribution(one.frame.iloc[: self.first]) for one in told]
        else:
            wanted = list(self.regenerated.result.figures)
            found = [self._of(one.figures(wanted)) for one in told]
        return {name: np.mean([one[name] for one in found], axis=0) for name in FITTED_FIGURES}


def compared(measured: Figures, told: Sequence[Told]) -> pd.DataFrame:
    """Columns metric, statistic, measured, simulated (mean over seeds), error (relative, signed),
    and error_sd, the standard deviation of the error from seed to seed (NaN for one)."""
    wanted = list(measured)
    each = [one.figures(wanted) for one in told]
    shared = [key for key in wanted if all(key in one for one in each)]
    values = {key: np.array([one[key] for one in each]) for key in shared}
    frame = table(measured, {key: float(found.mean()) for key, found in values.items()})
    frame["error_sd"] = [
        float(values[m, s].std(ddof=1)) / real if len(told) > 1 else float("nan")
        for m, s, real in zip(frame["metric"], frame["statistic"], frame["measured"], strict=True)
    ]
    return frame
