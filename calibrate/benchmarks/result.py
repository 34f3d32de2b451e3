"""What the result file of a benchmark holds, whichever tool wrote it: requests, figures, the load.

Times are whole nanoseconds, as the simulator's clock has them. Whatever the tool calls it, `ttft`
counts from sending to the first token, `e2e` to the last token, `tpot_s` is their difference over
the tokens but the first, and `itl_s` are gaps between tokens (docs/live.md says who measures what).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.csv_files import ReadError
from calibrate.measured_run import MeasuredRun
from calibrate.samples import Floats
from sim import Trace
from workloads.exact import LAST_NS

Ints = NDArray[np.int64]
Figures = dict[tuple[str, str], float]
"""By (metric, statistic), such as ("ttft_s", "p99"); seconds, or rates per second."""

SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What the answered requests were and got, in the order of the file. *sent_ns* from any zero,
    None where the file does not say; *gaps_ns*, a row per request, where it has every gap.
    *places* is what the file calls each of them, for faults."""

    sent_ns: Ints | None
    prompt_tokens: Ints
    output_tokens: Ints
    ttft_ns: Ints
    e2e_ns: Ints
    gaps_ns: Sequence[Ints] | None
    places: Sequence[str]

    def __len__(self) -> int:
        return len(self.ttft_ns)

    def table(self) -> pd.DataFrame:
        """ttft_s, tpot_s (NaN for one token), e2e_s."""
        tpot = np.full(len(self), np.nan)
        many = self.output_tokens > 1
        tpot[many] = (self.e2e_ns - self.ttft_ns)[many] / (self.output_tokens[many] - 1)
        return pd.DataFrame(
            {"ttft_s": self.ttft_ns / 1e9, "tpot_s": tpot / 1e9, "e2e_s": self.e2e_ns / 1e9}
        )

    def in_order_of_sending(self) -> Requests:
        """The same, first sent first, from 0."""
        if self.sent_ns is None:
            return self
        order = np.argsort(self.sent_ns, kind="stable")
        gaps = self.gaps_ns
        return Requests(
            sent_ns=self.sent_ns[order] - self.sent_ns[order[0]],
            prompt_tokens=self.prompt_tokens[order],
            output_tokens=self.output_tokens[order],
            ttft_ns=self.ttft_ns[order],
            e2e_ns=self.e2e_ns[order],
            gaps_ns=None if gaps is None else [gaps[i] for i in order],
            places=[self.places[i] for i in order],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The load that a client offered: *requests* at *rate_per_s* with gamma gaps of shape
    *burstiness* (infinite: even gaps), or, without a rate, as soon as may be; at most *most* of
    them under way at once. *exact*: the last is due after requests / rate, as vLLM scales it."""

    requests: int
    rate_per_s: float | None = None
    burstiness: float = 1.0
    most: int | None = None
    exact: bool = False

    @property
    def is_random(self) -> bool:
        """Whether seeds differ in when requests come."""
        return self.rate_per_s is not None and np.isfinite(self.burstiness)

    def __str__(self) -> str:
        if self.rate_per_s is None:
            pace = "sent as soon as they may be"
        elif np.isinf(self.burstiness):
            pace = f"at {self.rate_per_s:g}/s, evenly"
        elif self.burstiness == 1:
            pace = f"at {self.rate_per_s:g}/s, Poisson"
        else:
            pace = f"at {self.rate_per_s:g}/s, gamma gaps of shape {self.burstiness:g}"
        cap = "" if self.most is None else f", at most {self.most} under way at once"
        return f"{self.requests} requests {pace}{cap}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a file says of lengths as a whole: the mean, and values at *levels* (0 to 1) of their
    distribution, where it has them."""

    mean: float
    levels: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One benchmark. *figures* are the tool's own; *tpot_by_token* where its TPOT counts a request
    as often as it has gaps. *failed* by reason. *load* is None where the file does not say."""

    format: str
    version: str | None
    requests: Requests | None
    figures: Figures
    load: Offered | None
    prompt: Known | None = None
    output: Known | None = None
    tpot_by_token: bool = False
    failed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def times_are_known(self) -> bool:
        return self.requests is not None and self.requests.sent_ns is not None

    def run(self) -> MeasuredRun:
        """The run that can be replayed: its requests and when each was sent."""
        assert self.requests is not None
        rows = self.requests.in_order_of_sending()
        assert rows.sent_ns is not None
        return MeasuredRun(
            trace=Trace(rows.sent_ns, rows.prompt_tokens, rows.output_tokens),
            table=rows.table(),
            dropped=sum(self.failed.values()),
            columns={},
            gaps_ns=rows.gaps_ns,
            failed=self.failed,
            notes=self.notes,
        )


def to_ns(values: Sequence[float] | Floats, unit_s: float = 1.0) -> Ints:
    """Times in units of *unit_s* as whole nanoseconds. ReadError for one that no clock shows."""
    found = np.asarray(values, dtype=np.float64) * (unit_s * 1e9)
    if (np.abs(found) >= LAST_NS).any():
        raise ReadError(f"a time of {np.abs(found).max() / 1e9:g} s lies beyond 292 years")
    return np.rint(found).astype(np.int64)


def checked(path: Path, requests: Requests) -> Requests:
    """*requests* if they can be; ReadError names every one that cannot."""
    faults = []
    for bad, what in (
        (requests.prompt_tokens < 1, "a prompt of less than 1 token"),
        (requests.output_tokens < 1, "an answer of less than 1 token"),
        (requests.ttft_ns <= 0, "TTFT is not above 0; did the endpoint stream its answers?"),
        (requests.e2e_ns < requests.ttft_ns, "the last token came before the first"),
    ):
        faults += [f"{requests.places[int(i)]}: {what}" for i in np.flatnonzero(bad)]
    raise_all(path, faults)
    return requests


def raise_all(path: Path, faults: Sequence[str]) -> None:
    """Raise ReadError with all *faults*, unless there are none."""
    if not faults:
        return
    lines = [f"{path}: {fault}" for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        lines.append(f"{path}: and {len(faults) - SHOWN} more")
    raise ReadError("\n".join(lines))
