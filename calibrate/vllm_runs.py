"""`python -m calibrate.vllm_runs DATA_DIR`: how far simulation is from real vLLM runs of others.

Two sets. No coefficient is fitted on what is judged, but which terms there are was chosen with
these runs in view (docs/validation.md):

* vLLM 0.19, Llama-3.1-8B on an RTX PRO 6000, 300 ShareGPT requests at 10/s: step times from kernel
  tables (the shipped profile); the front end and the host's time for mixed steps fitted on the
  first 60 requests, errors on the others.
* vLLM 0.23, Qwen3-14B on an H100, open loop at 2 to 8 requests/s: step times from the step log of
  the 2/s run, the front end from that run, errors on the others. Those files have no licence, so
  nothing of them is written but errors.

Writes ``errors.csv`` and ``causes.csv``: the same with one cause after another left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pandas as pd

from calibrate.against import Setup, compared, correlations, fitted, replayed
from calibrate.faults import CalibrationError
from calibrate.measured_run import MeasuredRun, read
from calibrate.profile import load_profile
from calibrate.steplog import binned, fit
from calibrate.steplog import read as read_log
from sim import Chunked, Server, Table

RTX_RUN = "vllm0190_rtxpro6000_llama31_8b_requests.csv"
RTX_PROFILE = "llama-3.1-8b-rtxpro6000-vllm"
RTX_FIRST = 60
RTX_FITTED = ("front_end", "mixed")
H100_LOG = "h100_qwen3_14b_vllm0230_step_log.csv"
H100_FITTED = "h100_qwen3_14b_vllm0230__sweep_rate__agg_2rps__vanilla.csv"
H100_RUNS = {
    "H100 4/s": "h100_qwen3_14b_vllm0230__sweep_rate__agg_4rps__vanilla.csv",
    "H100 6/s": "h100_qwen3_14b_vllm0230__sweep_rate__agg_6rps__vanilla.csv",
    "H100 8/s": "h100_qwen3_14b_vllm0230__sweep_rate__agg_8rps__vanilla.csv",
    "H100 w5 6/s": "h100_qwen3_14b_vllm0230__w5_sweep__agg6.csv",
}
RTX_NAME = "RTX PRO 6000"

Change = Callable[[Setup], Setup]


@dataclass(frozen=True, slots=True)
class Judged:
    """One run under one variant: the table of `calibrate.against.compared`, the correlations, and
    what was fitted, in seconds."""

    run: str
    variant: str
    requests: int
    errors: pd.DataFrame
    correlation: dict[str, float]
    fitted: dict[str, float]

    def error(self, metric: str, statistic: str = "mean") -> float:
        """The relative error of one figure."""
        rows = self.errors
        found = rows[(rows["metric"] == metric) & (rows["statistic"] == statistic)]
        return float(found["error"].iloc[0])


# --- the servers as the runs' settings say -----------------------------------------------------


def rtx_setup() -> Setup:
    """vLLM's V1 scheduler as engine.json has it; the KV size is not recorded, and never lacked."""
    curve = load_profile(RTX_PROFILE).curve
    server = Server(slots=128, max_batched_tokens=2048, scheduling="asynchronous")
    return Setup(name="vllm", server=server, policy=Chunked(), curve=curve)


@cache
def h100_setup(data: Path) -> Setup:
    """Budget 8,192, 256 sequences; the curve from the log of the 2/s run."""
    curve = fit(binned(read_log(data / "calibration" / H100_LOG), H100_LOG)).curve
    server = Server(slots=256, max_batched_tokens=8192, scheduling="asynchronous")
    return Setup(name="vllm", server=server, policy=Chunked(), curve=curve)


@cache
def run_of(data: Path, name: str) -> MeasuredRun:
    return read(data / "endtoend" / name)


def judge_rtx(
    data: Path,
    variant: str = "all",
    change: Change | None = None,
    names: Sequence[str] = RTX_FITTED,
) -> Judged:
    """The 240 requests after those that the host's times were fitted on."""
    measured = run_of(data, RTX_RUN)
    setup = (change or _same)(rtx_setup())
    values = dict(fitted(measured, setup, names, RTX_FIRST).values) if names else {}
    return _judged(RTX_NAME, variant, measured, setup.with_values(values), values, RTX_FIRST)


def judge_h100(
    data: Path,
    variant: str = "all",
    change: Change | None = None,
    names: Sequence[str] = ("front_end",),
) -> Iterator[Judged]:
    """The runs that nothing was fitted on."""
    setup = (change or _same)(h100_setup(data))
    base = run_of(data, H100_FITTED)
    values = dict(fitted(base, setup, names, len(base)).values) if names else {}
    for name, file in H100_RUNS.items():
        yield _judged(name, variant, run_of(data, file), setup.with_values(values), values)


def _judged(
    run: str,
    variant: str,
    measured: MeasuredRun,
    setup: Setup,
    values: dict[str, float],
    skip: int = 0,
) -> Judged:
    simulated = replayed(measured, setup)
    return Judged(
        run,
        variant,
        len(measured) - skip,
        compared(measured, simulated, skip),
        correlations(measured, simulated, skip),
        values,
    )


# --- one cause after another left out -----------------------------------------------------------


def _same(setup: Setup) -> Setup:
    return setup


def synchronous(setup: Setup) -> Setup:
    """Decided when the iteration before has ended: an arrival waits one iteration less."""
    return replace(setup, server=replace(setup.server, scheduling="synchronous"))


def without_gaps(setup: Setup) -> Setup:
    """Nothing lost between kernels."""
    profile = load_profile(RTX_PROFILE)
    gaps = float(profile.fit["all"]["gaps_s"])
    return _curve(setup, base_s=_table(setup).base_s - gaps)


def parts_summed(setup: Setup) -> Setup:
    """A mixed step is the sum of its parts: decodes cost beside a prefill what they cost alone."""
    return _curve(setup, mixed_decode=None, mixed_per_decode_token_s=0.0)


def one_line(setup: Setup) -> Setup:
    """Everything but attention is a straight line over the tokens, not a staircase of tiles."""
    dense = _table(setup).dense
    assert dense is not None
    ends = (dense.x[0], dense.x[-1]), (dense.step_s[0], dense.step_s[-1])
    return _curve(setup, dense=replace(dense, x=ends[0], step_s=ends[1]))


def _table(setup: Setup) -> Table:
    assert isinstance(setup.curve, Table)
    return setup.curve


def _curve(setup: Setup, **changes: object) -> Setup:
    return replace(setup, curve=replace(_table(setup), **changes))  # type: ignore[arg-type]


def affine_log(data: Path) -> Change:
    """The step log fitted by a line through everything, without a knee or mixed steps."""

    def change(setup: Setup) -> Setup:
        from calibrate.curves import AFFINE
        from calibrate.fit import fit as fit_form

        log = binned(read_log(data / "calibration" / H100_LOG), H100_LOG)
        terms = tuple(t for t in AFFINE.terms if t in ("base_s", "per_context_s", "per_chunk_s"))
        return replace(setup, curve=fit_form(log.samples, replace(AFFINE, terms=terms)))

    return change


def causes(data: Path) -> Iterator[Judged]:
    """Both sets, with everything and with one thing after another left out."""
    yield judge_rtx(data)
    yield judge_rtx(data, "no front end", names=("mixed",))
    yield judge_rtx(data, "no host time of mixed steps", names=("front_end",))
    yield judge_rtx(data, "synchronous scheduling", synchronous)
    yield judge_rtx(data, "no gaps between kernels", without_gaps)
    yield judge_rtx(data, "mixed steps the sum of their parts", parts_summed)
    yield judge_rtx(data, "GEMMs a line, no tiles", one_line)
    yield judge_rtx(data, "host time of all steps instead", names=("front_end", "host"))
    yield judge_rtx(data, "an overhead of all steps instead", names=("front_end", "overhead"))
    yield from judge_h100(data)
    yield from judge_h100(data, "no front end", names=())
    yield from judge_h100(data, "synchronous scheduling", synchronous)
    yield from judge_h100(data, "a prefill costs per prompt, not per token", affine_log(data))
    yield from judge_h100(data, "host time fitted too", names=("front_end", "host"))


# --- tables -------------------------------------------------------------------------------------


def error_table(found: Sequence[Judged]) -> pd.DataFrame:
    """Columns run, requests, metric, statistic, error: no measured value is in it."""
    frames = []
    for one in found:
        frame = one.errors[["metric", "statistic", "error"]].copy()
        frame.insert(0, "requests", one.requests)
        frame.insert(0, "run", one.run)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def cause_table(found: Sequence[Judged]) -> pd.DataFrame:
    """A row per run and variant: errors of the means and of throughput, TTFT's at p99, and the
    correlation of TTFT request by request."""
    return pd.DataFrame(
        [
            {
                "run": one.run,
                "variant": one.variant,
                "ttft_mean": one.error("ttft_s"),
                "tpot_mean": one.error("tpot_s"),
                "e2e_mean": one.error("e2e_s"),
                "ttft_p99": one.error("ttft_s", "p99"),
                "output_tokens_per_s": one.error("output_tokens_per_s", "total"),
                "ttft_correlation": one.correlation["ttft_s"],
                **{f"{name}_s": value for name, value in one.fitted.items()},
            }
            for one in found
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write and print both tables; 0 done, 2 the input is wrong."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.vllm_runs", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA_DIR", help="holds calibration, endtoend")
    parser.add_argument("--out", type=Path, default=Path("results/vllm"), help="folder to write to")
    given = parser.parse_args(arguments)
    try:
        found = list(causes(given.data))
    except CalibrationError as error:
        print(error, file=sys.stderr)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    errors = error_table([one for one in found if one.variant == "all"])
    table = cause_table(found)
    errors.to_csv(given.out / "errors.csv", index=False, float_format="%.4f")
    table.to_csv(given.out / "causes.csv", index=False, float_format="%.4g")
    with pd.option_context("display.width", 200, "display.max_columns", 20, "display.max_rows", 99):
        print(table.to_string(index=False, float_format=lambda value: f"{value:+.4f}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
