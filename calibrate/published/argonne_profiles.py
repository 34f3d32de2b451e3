"""Profiles from run-to-completion latencies of static batches."""

from __future__ import annotations

import numpy as np
import pandas as pd

from calibrate.document import Document, profile_name
from calibrate.published import COMMAND
from calibrate.published.argonne import LICENCE, SOURCE, solve


def document(rows: pd.DataFrame, name: str | None = None) -> Document:
    """The profile of one configuration (`calibrate.published.argonne.pick`)."""
    solved = solve(rows)
    first = rows.iloc[0]
    device = str(first["hardware"]).removeprefix("Nvidia ").removesuffix(" GPU")
    model = str(first["model"]).rpartition("/")[2].lower()
    engine, gpus = str(first["framework"]), int(first["num_gpus"])
    return Document(
        name=name or profile_name(f"{model}-{device}-tp{gpus}-{engine}"),
        device=device,
        model=model,
        tensor_parallel=gpus,
        engine=engine,
        engine_version=None,
        precision=None,
        source=SOURCE,
        licence=LICENCE,
        made_by=COMMAND,
        curve=solved.curve,
        error={"decode": None, "prefill": None, "mixed": None},
        fitted={"batches": batch_errors(solved.table)},
        assumptions=[
            "only whole batches were timed. That a decode and a prefill token cost the same beyond "
            "the knee tells their parts apart.",
            "a prefill's attention grows with the prompt as its decodes' contexts do: it is "
            "charged to per_context_s, so prompts are a little too cheap and decodes too dear.",
            "the batch's prefill ran as one step.",
            "the host's work is in the terms, as far as the device waited for it.",
        ],
        notes=[f"lines of the file: {int(rows.index.min())} to {int(rows.index.max())}."],
    )


def batch_errors(table: pd.DataFrame) -> dict[str, float | int]:
    """|relative error| of batches held out, and of the final curve on what it saw."""
    held, seen = (
        np.abs(table[name] / table["latency_s"] - 1.0) for name in ("held_out_s", "fitted_s")
    )
    return {
        "configurations": len(table),
        "mean": round(float(held.mean()), 4),
        "max": round(float(held.max()), 4),
        "fitted_mean": round(float(seen.mean()), 4),
        "fitted_max": round(float(seen.max()), 4),
    }
