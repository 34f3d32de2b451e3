"""One trace, simulated and real: what each iteration and each request got, and who wins.

The real runs come from the engine (`calibrate.replay`), the simulated ones from the curves that
were fitted to what was measured beside them; scheduler, memory and metrics are the same objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calibrate.compare import side_by_side, spread
from calibrate.host import host_s
from calibrate.replay import Case, Replay, normalised
from calibrate.samples import Floats
from sim import Host, Run, StepTime, Swap, Trace, simulate

RANKED = {"ttft_s": 1, "tpot_s": 1, "e2e_s": 1, "output_tokens_per_s": -1}
"""Metrics by which policies are ranked, and whether less (1) or more (-1) is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is known of the engine: step times (``padded``: of static's rectangles) and the host's
    work by policy name."""

    flat: StepTime
    padded: StepTime | None
    host: Mapping[str, Host]
    swap_block_s: float | None = None

    def curve(self, padded: bool) -> StepTime:
        """The curve of rectangles, or that of everything else."""
        return self.padded if padded and self.padded is not None else self.flat


def predicted(model: Model, trace: Trace, case: Case) -> Run:
    """The simulated run of *case*."""
    static = case.policy.kind == "static" and case.policy.padding
    server = replace(case.server, host=model.host[case.name])
    if server.swap is not None and model.swap_block_s is not None:
        server = replace(server, swap=Swap(block_s=model.swap_block_s))
    return simulate(trace, server, case.policy, model.curve(static))


def iterations(model: Model, replay: Replay) -> pd.DataFrame:
    """Every iteration that was really run: seconds measured (at the reference speed, ``raw``: by
    the wall's clock), simulated, and the relative errors.

    Where the same schedule was run twice, measured is the geometric mean of both times, and
    ``noise`` is by how much such a mean would differ if it were measured anew: their difference
    / √2.
    """
    table, again = replay.table, replay.again
    shape = [table[name].to_numpy(np.int64) for name in SHAPE]
    flat, padded = model.flat.steps_ns(*shape), model.curve(True).steps_ns(*shape)
    frame = pd.DataFrame(
        {
            "policy": replay.case.name,
            "measured_s": replay.mean(lambda one: normalised(one)[0]) / 1e9,
            "raw_s": replay.mean(_wall) / 1e9,
            "simulated_s": np.where(table["padded"], padded, flat) / 1e9,
            "host_s": host_s(table),
        }
    )
    host = model.host[replay.case.name]
    frame["simulated_host_s"] = [
        host.ns(d + c, d + t, a) / 1e9
        for d, c, t, a in zip(
            table["decodes"], table["chunks"], table["tokens"], table["admitted"], strict=True
        )
    ]
    frame["error"] = frame["simulated_s"] / frame["measured_s"] - 1.0
    frame["raw_error"] = frame["simulated_s"] / frame["raw_s"] - 1.0
    if again is not None:
        frame["noise"] = (normalised(again)[0] / normalised(table)[0] - 1.0) / math.sqrt(2.0)
        frame["raw_noise"] = (_wall(again) / _wall(table) - 1.0) / math.sqrt(2.0)
    return frame.join(table[list(SHAPE)])


def _wall(table: pd.DataFrame) -> Floats:
    return table["wall_ns"].to_numpy(np.float64)


SHAPE = ("decodes", "context", "chunks", "tokens", "chunk_past", "chunk_squared")


def iteration_errors(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Per policy: how many iterations, median and p90 of |error|, signed mean, by both clocks, and
    beside each what the same schedule, run twice, differs by."""
    rows = []
    for frame in frames:
        row: dict[str, object] = {"policy": frame["policy"].iloc[0], "iterations": len(frame)}
        for name in ("error", "raw_error", "noise", "raw_noise"):
            if name in frame:
                values: Floats = frame[name].to_numpy(np.float64)
                row |= {f"{name}_{k}": v for k, v in spread(values).items()}
        rows.append(row)
    return pd.DataFrame(rows)


def latency_errors(model: Model, replay: Replay, load: str) -> pd.DataFrame:
    """Latencies and throughput of one replay: measured, simulated, signed error; ``noise``: how
    far the same schedule run a second time is from the first; ``raw_``: by the wall's clock.

    Where all requests come at once, so that nobody's wait depends on when he came, measured is the
    mean of both times, and noise that of such a mean, smaller by √2.
    """
    trace = replay.run.requests
    at_once = replay.again is not None and not np.ptp(trace.arrival_ns)
    run = replay.averaged() if at_once else replay.run
    simulated = predicted(model, trace, replay.case)
    frame = side_by_side(run, simulated)
    frame.insert(0, "load", load)
    frame.insert(0, "policy", replay.case.name)
    raw = side_by_side(replay.raw(), simulated)
    frame["raw_measured"], frame["raw_error"] = raw["measured"], raw["error"]
    again, raw_again = replay.repeated(), replay.repeated(raw=True)
    if again is not None and raw_again is not None:
        of_mean = math.sqrt(2.0) if at_once else 1.0
        frame["noise"] = side_by_side(replay.run, again)["error"] / of_mean
        frame["raw_noise"] = side_by_side(replay.raw(), raw_again)["error"] / of_mean
    return frame


def ranking(latencies: pd.DataFrame) -> pd.DataFrame:
    """Per load and metric: the policies, best first, as measured and as simulated.

    Two that differ by no more than the larger of their errors (`policy_errors`), or that are the
    same in simulation, as where they decide alike, are a tie: they may come in either order.
    """
    errors, rows = policy_errors(latencies), []
    for (load, metric), part in _telling(latencies).groupby(["load", "metric"], sort=False):
        sign = RANKED[str(metric)]
        measured = part.assign(key=sign * part["measured"]).sort_values("key")
        simulated = part.assign(key=sign * part["simulated"]).sort_values("key")
        rows.append(
            {
                "load": load,
                "metric": metric,
                "measured": " < ".join(measured["policy"]),
                "simulated": " < ".join(simulated["policy"]),
                "agree": _agree(part, errors),
            }
        )
    return pd.DataFrame(rows)


def _telling(latencies: pd.DataFrame) -> pd.DataFrame:
    """Means and totals; not throughput under load, which only repeats the arrival rate."""
    means = latencies[latencies["statistic"].isin(("mean", "total"))]
    return means[(means["metric"] != "output_tokens_per_s") | (means["load"] == "burst")]


def _agree(part: pd.DataFrame, errors: Mapping[str, float]) -> bool:
    measured, simulated = part["measured"].to_numpy(), part["simulated"].to_numpy()
    error = part["policy"].map(errors).to_numpy(np.float64)
    for i in range(len(part)):
        for j in range(i):
            margin = max(error[i], error[j]) * max(measured[i], measured[j])
            apart = measured[i] - measured[j]
            if abs(apart) > margin and (simulated[i] - simulated[j]) * apart < 0:
                return False
    return True


def policy_errors(latencies: pd.DataFrame) -> dict[str, float]:
    """One error per policy: the largest |error| of its means."""
    means = _telling(latencies)
    found = means["error"].abs().groupby(means["policy"], sort=False).max()
    return {str(policy): float(error) for policy, error in found.items()}
