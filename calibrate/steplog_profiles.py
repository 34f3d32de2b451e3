"""Profiles from step logs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calibrate.choose import monotone
from calibrate.document import Document, candidates
from calibrate.fit import predict
from calibrate.steplog import StepLog, fit, spread


def document(
    log: StepLog,
    steps: pd.DataFrame,
    path: Path,
    *,
    name: str,
    device: str,
    model: str,
    tensor_parallel: int = 1,
    engine: str | None = None,
    engine_version: str | None = None,
    per_context_s: float | None = None,
    licence: str = "that of the log",
) -> Document:
    """The profile of one log."""
    choice = fit(log, per_context_s)
    off = spread(steps, predict(choice.curve, steps))
    assumptions = [
        "a step's time is the log's, gaps between steps included: host work that the device waits "
        "for is in it, so add none.",
        "chunks of one step are of equal length where the log does not say otherwise.",
    ]
    if log.narrow and per_context_s is None:
        assumptions.append(
            "contexts hardly varied, so what rows cost is charged to their context: other lengths "
            "are an extrapolation; say what an entry costs, if you know it."
        )
    elif per_context_s is not None:
        assumptions.append(
            f"an entry of context costs {per_context_s:.4g} s at least: given, not fitted."
        )
    notes = []
    if log.sparse:
        notes.append(
            "token counts have wide gaps, so a knee was fitted across them, and no table: where it "
            "lies is a consequence of both sides."
        )
    return Document(
        name=name,
        device=device,
        model=model,
        tensor_parallel=tensor_parallel,
        engine=engine,
        engine_version=engine_version,
        precision=None,
        source=f"step log {path.name}, {log.steps} steps",
        licence=licence,
        made_by="itersim calibrate import steplog",
        curve=choice.curve,
        error=dict(choice.errors),
        fitted={
            "all": {
                "form": choice.form.name,
                "held_out_mean_by_form": candidates(choice.candidates),
                "monotone": monotone(choice.curve, log.samples).as_dict(),
                "steps": log.steps,
                "bins": len(log.samples),
                "spread_of_a_step": round(off, 4),
            }
        },
        assumptions=assumptions,
        notes=notes,
    )
