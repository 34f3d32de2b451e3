"""The curves of one calibration: which forms are tried, which won, and by how much. Knows no files.

Iteration-level steps (decode, prefill, mixed) share one curve; the rectangles of `static` run other
kernels over other shapes and have their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibrate.choose import Choice, choose, held_out, rounded_fields
from calibrate.clean import Cleaned, Fall, falls
from calibrate.fit import ATTENTION, MIXED, FitError, Form
from calibrate.points import PADDED
from calibrate.samples import medians
from sim.steptime import Curve, next_sizes

FOLDS = 10
"""Parts of the configurations held out in turn; each alone when there are few."""

FEW = 20

BAR, GAIN = 0.025, 0.25
"""What a calibration should reach: a held-out error (median) of at most 2.5 %, and at least 25 %
below that of a plain affine curve."""

AFFINE = Form(name="affine", terms=("base_s", "per_decode_s", "per_prefill_token_s", *ATTENTION))
"""What any better form is compared with."""

_TABLE_TERMS = ("per_decode_s", *ATTENTION)
_ALL_TERMS = (*_TABLE_TERMS, *MIXED)
FLAT_FORMS: tuple[Form, ...] = (
    AFFINE,
    Form(name="affine + mixed", terms=(*AFFINE.terms, *MIXED)),
    Form(name="knee", knee=True, terms=_TABLE_TERMS),
    Form(name="knee + mixed", knee=True, terms=_ALL_TERMS),
    Form(name="sparse table", dense="sparse", terms=_TABLE_TERMS),
    Form(name="sparse table + mixed", dense="sparse", terms=_ALL_TERMS),
    Form(name="table", dense="every", terms=_TABLE_TERMS),
    Form(name="table + mixed", dense="every", terms=_ALL_TERMS),
    Form(name="fine table", dense="small", terms=_TABLE_TERMS),
    Form(name="fine table + mixed", dense="small", terms=_ALL_TERMS),
    Form(name="tiles", dense="tiles", terms=_TABLE_TERMS),
    Form(name="tiles + mixed", dense="tiles", terms=_ALL_TERMS),
    Form(name="tiles + rows", dense="tiles", decode="tiles", terms=_TABLE_TERMS),
    Form(name="tiles + rows + mixed", dense="tiles", decode="tiles", terms=_ALL_TERMS),
    Form(name="fine table + prefill", dense="small", prefill=(), terms=_TABLE_TERMS),
    Form(name="fine table + prefill + mixed", dense="small", prefill=(), terms=_ALL_TERMS),
)
"""Over the tokens of a step: a line, a knee, tables, stairs (``rows``: decodes their own).
``prefill``: what steps with prompts cost more than as many decodes (other kernels, no captured
graph); ``mixed``: what steps with both do."""

_RECTANGLE = ("per_context_s", "per_chunk_squared_s", "per_chunk_s")
PLAIN_PADDED = Form(
    name="affine", terms=("base_s", "per_decode_s", "per_prefill_token_s", *_RECTANGLE)
)
PADDED_FORMS: tuple[Form, ...] = (
    PLAIN_PADDED,
    Form(name="knee", knee=True, terms=("per_decode_s", *_RECTANGLE)),
    Form(name="sparse table", dense="sparse", terms=("per_decode_s", *_RECTANGLE)),
    Form(name="table", dense="every", terms=("per_decode_s", *_RECTANGLE)),
    Form(name="fine table", dense="small", terms=("per_decode_s", *_RECTANGLE)),
    Form(name="tiles", dense="tiles", terms=("per_decode_s", *_RECTANGLE)),
    Form(name="two sparse tables", decode="sparse", prefill="sparse", terms=_RECTANGLE),
    Form(name="two tables", decode="every", prefill="every", terms=_RECTANGLE),
    Form(name="two fine tables", decode="small", prefill="small", terms=_RECTANGLE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionReport:
    """|relative error| of configurations held out, of one region; ``affine_median`` that of a
    plain affine curve on the same, ``noise`` the standard deviation of one sample."""

    configurations: int
    median: float
    mean: float
    p90: float
    max: float
    bias: float
    affine_median: float
    noise: float

    def as_dict(self) -> dict[str, float | int]:
        """Plain values, errors rounded to 0.01 %."""
        return rounded_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """What a calibration is about. ``padded`` is None where nothing padded was measured; ``all``
    is the report over every configuration together."""

    flat: Choice
    padded: Choice | None
    regions: Mapping[str, RegionReport]
    all: RegionReport
    falls: Sequence[Fall]
    graph_sizes: tuple[int, ...]
    noise: float
    """By how much the median of a point's samples would differ if they were measured anew, median
    over the points."""

    @property
    def gain(self) -> float:
        """How much smaller the median held-out error is than a plain affine curve's."""
        return 1.0 - self.all.median / self.all.affine_median if self.all.affine_median else 0.0

    @property
    def reaches_the_bar(self) -> bool:
        return self.all.median <= BAR and self.gain >= GAIN


def fit_curves(data: Cleaned, graph_sizes: Sequence[int] = ()) -> Curves:
    """Choose and fit both curves. *graph_sizes*: the batch sizes that decodes alone were run in,
    padded to the next one.

    Raises FitError when one of the regions cannot be fitted at all.
    """
    samples = _in_graphs(data.samples, tuple(graph_sizes))
    is_padded = samples["region"].isin(PADDED)
    if is_padded.all():
        raise FitError("no steps of iteration-level scheduling were measured; measure some")
    flat, trials = _chosen(samples[~is_padded], FLAT_FORMS, AFFINE)
    padded = None
    if is_padded.any():
        padded, more = _chosen(samples[is_padded], PADDED_FORMS, PLAIN_PADDED)
        trials = pd.concat([trials, more], ignore_index=True)
    regions = {
        str(region): _report(part, data.noise.get(str(region), 0.0))
        for region, part in trials.groupby("region", sort=False)
    }
    noise = float(np.median([report.noise for report in regions.values()]))
    return Curves(
        flat=flat,
        padded=padded,
        regions=regions,
        all=_report(trials, noise),
        falls=falls(data.samples),
        graph_sizes=tuple(graph_sizes),
        noise=_repeated(noise, data.samples),
    )


def _repeated(deviation: float, samples: pd.DataFrame) -> float:
    """The median difference of two medians of as many samples as a point has, each sample normal
    with this relative standard deviation."""
    each = float(samples.groupby("configuration").size().median())
    of_median = (
        deviation * math.sqrt(math.pi / 2 / each) if each > 2 else deviation / math.sqrt(each)
    )
    return 0.6745 * math.sqrt(2.0) * of_median


def _in_graphs(samples: pd.DataFrame, sizes: tuple[int, ...]) -> pd.DataFrame:
    """Decodes alone count the rows that their graph really computes."""
    if not sizes:
        return samples
    decodes = samples["decodes"].to_numpy(np.int64)
    rows = np.where(samples["region"] == "decode", next_sizes(sizes, decodes), decodes)
    return samples.assign(decodes=rows)


def _chosen(
    samples: pd.DataFrame, forms: Sequence[Form], plain: Form
) -> tuple[Choice, pd.DataFrame]:
    """The best form, and what it and *plain* say of configurations they have not seen."""
    table = medians(samples)
    folds = FOLDS if len(table) >= FEW else None
    choice = choose(table, forms, folds=folds)
    affine = held_out(table, plain, folds=folds)
    return choice, choice.held_out.assign(affine_error=affine["error"].to_numpy())


def _report(trial: pd.DataFrame, noise: float) -> RegionReport:
    error = trial["error"].to_numpy(np.float64)
    off = np.abs(error)
    return RegionReport(
        configurations=len(trial),
        median=float(np.median(off)),
        mean=float(off.mean()),
        p90=float(np.quantile(off, 0.9)),
        max=float(off.max()),
        bias=float(np.median(error)),
        affine_median=float(np.median(np.abs(trial["affine_error"]))),
        noise=noise,
    )


def curve_of(curves: Curves, region: str) -> Curve:
    """The curve that steps of *region* run under."""
    if region in PADDED and curves.padded is not None:
        return curves.padded.curve
    return curves.flat.curve
