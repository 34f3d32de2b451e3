"""Curves for AIConfigurator's operator sums, and what their profiles say."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd

from calibrate.choose import Choice, choose, monotone
from calibrate.document import Document, candidates
from calibrate.fit import ATTENTION, MIXED, Form
from calibrate.published import COMMAND
from calibrate.published.aic import (
    BACKEND,
    LARGE_MODEL,
    LICENCE,
    PRECISION,
    SOURCE,
    SYSTEMS,
    Measurements,
    agreement,
    only,
    read,
    samples,
)
from sim.steptime import Range, Table

FORMS: tuple[Form, ...] = (
    Form(name="affine", terms=("base_s", "per_decode_s", "per_prefill_token_s", *ATTENTION)),
    Form(name="knee", knee=True, terms=("per_decode_s", *ATTENTION)),
    Form(name="table", dense="every", terms=("per_decode_s", *ATTENTION)),
    Form(name="table + mixed", dense="every", terms=("per_decode_s", *ATTENTION, *MIXED)),
)
"""Linear attention, and over the tokens of the step: a line, a knee, a table; ``mixed``: what a
step that holds both costs beyond its parts. (A second table over decode rows gained nothing.)"""


UNSAID = (
    "the precision is not said by the files: the database gives these numbers for weights and KV "
    "cache in bf16."
)

FOLDS = 12
"""Parts in which the configurations of the large model are left out, since there are many of it."""


def fit_profile(table: pd.DataFrame, folds: int | None = None) -> Choice:
    """One curve for decode, prefill and mixed steps, the three weighing alike."""
    return choose(table, FORMS, folds=folds)


def documents(folder: Path) -> list[Document]:
    """Every profile that ships and comes from these files."""
    small = read(folder)
    found = [document(small, system) for system in SYSTEMS]
    for backend in ("vllm", "trtllm"):
        large = read(folder, LARGE_MODEL, backend)
        found += [
            document(large, system, devices, "llama-3.1-70b", backend, folds=FOLDS)
            for system, devices in product(("h100_sxm", "h200_sxm"), (2, 4, 8))
        ]
    return found


def document(
    measured: Measurements,
    system: str,
    tensor_parallel: int = 1,
    model: str = "llama-3.1-8b",
    backend: str = BACKEND,
    source: str = SOURCE,
    precision: str | None = PRECISION,
    folds: int | None = None,
) -> Document:
    """The profile of one system."""
    measured = only(measured, system, tensor_parallel)
    table = samples(measured, system, tensor_parallel)
    choice = fit_profile(table, folds)
    curve = choice.curve
    seen = agreement(measured, system)
    bounds = curve.range
    assert isinstance(curve, Table) and bounds.context and bounds.tokens and bounds.past
    return Document(
        name=f"{model}-{system.removesuffix('_sxm')}{_parallel(tensor_parallel)}-{backend}",
        device=SYSTEMS.get(system, system),
        model=model,
        tensor_parallel=tensor_parallel,
        engine=backend,
        engine_version=None,
        precision=precision,
        source=source,
        licence=LICENCE,
        made_by=COMMAND,
        curve=replace(
            curve,
            range=Range(
                decodes=bounds.decodes,
                context=(0.0, bounds.context[1]),
                tokens=(1.0, bounds.tokens[1]),
                past=bounds.past,
            ),
        ),
        error=dict(choice.errors),
        fitted={
            "all": {
                "form": choice.form.name,
                **({} if folds is None else {"left_out_in_parts": folds}),
                "held_out_mean_by_form": candidates(choice.candidates),
                "monotone": monotone(curve, table).as_dict(),
            }
        },
        assumptions=[
            "the sums of measured operators have no host work; add `host` time to the engine.",
            "a chunk of a longer prompt was charged an equal share of the prompt's attention, so "
            "it stands for the average chunk, its past half of what is left of the prompt.",
            "contexts under 512 tokens cost proportionally less; prefills under 128 tokens take "
            "the time of as many decode rows without their attention.",
        ],
        notes=[
            "errors are against the operator database's own sums, in which a mixed step is by "
            "construction the sum of its parts; measured mixed steps cost more than their parts.",
            "the database's time per output token was 1.6 to 18 % off silicon (8B on H100).",
            *([UNSAID] if source == SOURCE and precision == PRECISION else []),
            f"where the files overlap, without attention: {_decode_rows(measured, system)} decode "
            f"rows differ by {seen.decode_against_mixed:+.1%} from a mixed step of one token more, "
            f"a prompt by up to {seen.prefill_against_mixed:.1%}; the attention of decodes agrees "
            f"to {seen.decode_attention:.2%}. The regions weigh alike, so the curve runs between.",
        ],
    )


def _parallel(tensor_parallel: int) -> str:
    return "" if tensor_parallel == 1 else f"-tp{tensor_parallel}"


def _decode_rows(measured: Measurements, system: str) -> int:
    return int(measured.mixed[measured.mixed["system"] == system]["decode_batch"].max())
