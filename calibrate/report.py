"""What a calibration says for itself: the profile and the table of errors. Writes nothing."""

from __future__ import annotations

from typing import Any

from calibrate.campaign import Result
from calibrate.choose import monotone
from calibrate.curves import BAR, GAIN, Curves, RegionReport
from calibrate.document import Document, candidates
from calibrate.samples import medians

NAMED = 12
"""Falls that are named in a profile; the rest are counted."""


def document(result: Result, name: str, command: str) -> Document:
    """The profile of *result*, made by *command*."""
    settings, curves = result.settings, result.curves
    on = settings.on
    padded = None if curves.padded is None else curves.padded.curve
    return Document(
        name=name,
        device=str(on["device_name"]),
        model=settings.model,
        tensor_parallel=1,
        engine="itersim",
        engine_version=str(on["itersim"]),
        precision=settings.dtype,
        source=f"measured with `{command}` on {on['device_name']}, torch {on['torch']}",
        licence="Apache-2.0",
        made_by=command,
        curve=curves.flat.curve,
        padded=padded,
        graph_sizes=curves.graph_sizes,
        measured=_measured(result),
        error={region: report.as_dict() for region, report in curves.regions.items()},
        fitted=_fitted(result),
        assumptions=[
            "a step is the forward pass and the choice of the likeliest token, on the device's "
            "clock where it has one; the host's work for it is not in the curve: see "
            "measured.host.",
            "the weights may be random: times depend on shapes, not on values.",
            "times are at the middle speed of the whole run, which the anchors show "
            f"(measured.anchors; drift: {result.data.smoothing}); a sample's noise is "
            + _noise_text(curves),
        ],
        notes=notes(result),
    )


def _measured(result: Result) -> dict[str, Any]:
    return {
        "anchors": {
            kind: {"point": point.text(), "step_s": float(f"{result.data.anchors[kind]:.6g}")}
            for kind, point in result.anchors.items()
        },
        "host": result.host.as_dict(),
        "swap": {way: copies.as_dict() for way, copies in result.swap.items()},
    }


def _fitted(result: Result) -> dict[str, Any]:
    curves, table = result.curves, medians(result.data.samples)
    parts = {"flat": curves.flat} | ({} if curves.padded is None else {"padded": curves.padded})
    return {
        **{
            part: {
                "form": choice.form.name,
                "held_out_mean_by_form": candidates(choice.candidates),
                "monotone": monotone(
                    choice.curve, table[table["region"].isin(choice.errors)]
                ).as_dict(),
            }
            for part, choice in parts.items()
        },
        "held_out_median": round(curves.all.median, 4),
        "held_out_median_of_affine": round(curves.all.affine_median, 4),
    }


def notes(result: Result) -> list[str]:
    """What was odd, in words."""
    data, curves = result.data, result.curves
    said = [
        f"{len(data.raw)} samples, anchors among them, {data.outliers} of them outliers: kept in "
        "raw.csv, marked, and left out of the curve.",
        verdict(curves),
    ]
    if result.missing:
        said.append(f"cut short: {result.missing} samples are missing; the same command goes on.")
    if curves.falls:
        said.append(
            f"{len(curves.falls)} points took less time than one with no more work, by more than "
            "their spread; the curve never falls, so it runs between them: "
            + "; ".join(fall.text() for fall in curves.falls[:NAMED])
            + ("; …" if len(curves.falls) > NAMED else "")
            + "."
        )
    return said + list(result.told)


def verdict(curves: Curves) -> str:
    """Whether the curves are as good as they should be."""
    whole = curves.all
    reached = "as good as it should be" if curves.reaches_the_bar else "NOT as good as it should be"
    return (
        f"held-out error {whole.median:.2%} (median of {whole.configurations} points), "
        f"{abs(curves.gain):.0%} {'below' if curves.gain >= 0 else 'ABOVE'} a plain affine curve's "
        f"{whole.affine_median:.2%}: {reached} (at most {BAR:.1%}, and {GAIN:.0%} below)"
    )


HEADER = ("region", "points", "median", "p90", "largest", "bias", "affine", "noise")


def table(result: Result) -> str:
    """Held-out errors by region, as text."""
    curves = result.curves
    rows = [HEADER, *(_row(region, report) for region, report in curves.regions.items())]
    rows.append(_row("all", curves.all))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    form = curves.flat.form.name
    forms = f"form: {form}" + (
        "" if curves.padded is None else f"; padded batches: {curves.padded.form.name}"
    )
    return "\n".join(["|error| of configurations held out, %", *lines, forms, verdict(curves)])


def _row(name: str, report: RegionReport) -> tuple[str, ...]:
    shares = (report.median, report.p90, report.max)
    return (
        name,
        str(report.configurations),
        *(f"{100 * share:.2f}" for share in shares),
        f"{100 * report.bias:+.2f}",
        f"{100 * report.affine_median:.2f}",
        f"{100 * report.noise:.2f}" if report.noise else "–",
    )


def _noise_text(curves: Curves) -> str:
    worst = max(report.noise for report in curves.regions.values())
    return f"{worst:.1%} at most." if worst else "not known: every point was measured once."
