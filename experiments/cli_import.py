"""`itersim calibrate import`: profiles from what others have measured.

Imports nothing heavy until a command needs it, so that help is instant.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.answering import DONE, answered, command_line
from experiments.cli_calibrate import one_thread
from experiments.cli_options import pairs

if TYPE_CHECKING:
    from calibrate.document import Document

import_ = typer.Typer(
    help="Make profiles from measurements of others.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[Path, typer.Argument(metavar="PATH", help="The file, or the folder it is in.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The profile to write (a folder for several).  [NAME.yaml]"),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
ProfileName = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The profile's.")]
Device = Annotated[str | None, typer.Option(metavar="TEXT", help="The device that was measured.")]
Model = Annotated[str | None, typer.Option(metavar="TEXT", help="The model that was measured.")]
Parallel = Annotated[
    int | None, typer.Option("--tp", min=1, metavar="DEVICES", help="Tensor parallelism.")
]
Version = Annotated[
    str | None, typer.Option("--engine-version", metavar="TEXT", help="The engine's version.")
]


def _write(found: Sequence[Document], out: Path | None, overwrite: bool) -> int:
    """Write the profiles and print what is known of their errors."""
    from experiments.import_tables import error_table
    from experiments.output import staged_file

    many = len(found) > 1
    if many and out is not None:
        out.mkdir(parents=True, exist_ok=True)
    for one in found:
        words = [Path(word).name if _is_path(word) else word for word in command_line()]
        one = replace(one, made_by=" ".join(words))
        path = Path(f"{one.name}.yaml")
        if out is not None:
            path = out / path if many or out.is_dir() else out
        with staged_file(path, overwrite) as partial:
            partial.write_text(one.text(), encoding="utf-8")
        print(error_table(one))
        print(f"written to {path}\n")
    return DONE


def _is_path(word: str) -> bool:
    """Whether it is where something lies (and not a model that is called by its owner)."""
    return "/" in word and (Path(word).is_absolute() or Path(word).exists())


def _file(path: Path, name: str) -> Path:
    """*path*, or the file *name* in the folder that it is."""
    if not path.is_dir():
        return path
    inner = path / "calibration"
    return (inner if inner.is_dir() else path) / name


def _chosen(found: Sequence[Document], name: str | None) -> Sequence[Document]:
    if name is None:
        return found
    from calibrate.csv_files import ReadError

    some = [one for one in found if one.name == name]
    if not some:
        known = ", ".join(one.name for one in found)
        raise ReadError(
            f"--name {name}: no such profile comes from these files; there are: {known}"
        )
    return some


@import_.command()
@answered
def splitwise(
    path: Folder, name: ProfileName = None, out: Out = None, overwrite: Overwrite = False
) -> int:
    """Batched forward passes of Llama-2-70B and BLOOM (Splitwise); --name picks one profile."""
    one_thread()
    from calibrate.published import splitwise as reader
    from calibrate.published import splitwise_profiles

    found = splitwise_profiles.documents(_file(path, reader.FILE))
    return _write(_chosen(found, name), out, overwrite)


@import_.command()
@answered
def distserve(
    path: Folder, name: ProfileName = None, out: Out = None, overwrite: Overwrite = False
) -> int:
    """Published fits of OPT on A100 (DistServe)."""
    one_thread()
    from calibrate.published import distserve as reader

    found = reader.documents(_file(path, reader.FILE))
    return _write(_chosen(found, name), out, overwrite)


@import_.command()
@answered
def aic(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]", help="Folder of its tables; without, the installed aiconfigurator."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="TEXT", help="As the database calls it.")
    ] = "meta-llama/Meta-Llama-3.1-8B",
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Such as h100_sxm; may be repeated.  [default: all]"),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="vllm, trtllm or sglang; may be repeated."),
    ] = None,
    tp: Annotated[
        list[int] | None,
        typer.Option("--tp", min=1, metavar="DEVICES", help="Tensor parallelism; repeated: each."),
    ] = None,
    backend_version: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of the installed database.")
    ] = None,
    gemm: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="Of the installed database: bfloat16, fp8_static, nvfp4…"
        ),
    ] = None,
    kv: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="Of the installed database: KV in bfloat16, fp8…"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What the tables were made for, such as 'fp8, KV bf16'."),
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> int:
    """AIConfigurator's operator sums: its tables, or its installed package (itersim[aic])."""
    one_thread()
    from calibrate.document import profile_name
    from calibrate.published import aic as reader
    from calibrate.published import aic_package, aic_profiles

    short = profile_name(model.rpartition("/")[2].removeprefix("Meta-").replace("-Instruct", ""))
    wanted = list(product(backend or ("vllm",), tp or (1,)))
    found = []
    for engine, devices in wanted:
        if path is None:
            modes = {"gemm_quant_mode": gemm, "kvcache_quant_mode": kv}
            chosen = {name: mode for name, mode in modes.items() if mode is not None}
            source = f"aiconfigurator-core {aic_package.package_version()}, operator database"
            for one in system or ("h100_sxm",):
                said = precision or aic_package.precision(model, engine, devices, chosen)
                table = aic_package.measured(model, one, engine, devices, backend_version, chosen)
                found.append(
                    aic_profiles.document(table, one, devices, short, engine, source, said)
                )
            continue
        table = reader.read(_file(path, ""), model, engine)
        known = precision or (reader.PRECISION if model in reader.MODELS else None)
        found += [
            aic_profiles.document(table, one, devices, short, engine, reader.SOURCE, known)
            for one in system or sorted(table.decode["system"].unique())
        ]
    return _write(found, out, overwrite)


@import_.command()
@answered
def llmservingsim(
    path: Folder,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Which tables, if there are several.")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Decoder layers, if no name tells them.")
    ] = None,
    gap_us: Annotated[
        float | None,
        typer.Option(min=0, metavar="US", help="Lost between two kernels.  [default: 1.3]"),
    ] = None,
    name: ProfileName = None,
    device: Device = None,
    model: Model = None,
    tp: Parallel = 1,
    engine_version: Version = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> int:
    """Kernel times of LLMServingSim's profiler (dense, per_sequence, attention) as whole steps."""
    one_thread()
    from calibrate.document import profile_name
    from calibrate.published import llmservingsim as reader
    from calibrate.published.llmservingsim_profiles import GAP_S, document

    kernels = reader.read(_file(path, ""), prefix)
    label = profile_name(kernels.prefix.removeprefix("llmservingsim_").strip("_")) or "kernels"
    found = document(
        kernels,
        reader.layers_of(kernels, layers),
        name=name or label,
        device=device or label,
        model=model or label,
        tensor_parallel=tp or 1,
        engine_version=engine_version,
        gap_s=GAP_S if gap_us is None else gap_us / 1e6,
    )
    return _write([found], out, overwrite)


@import_.command()
@answered
def steplog(
    path: Annotated[Path, typer.Argument(metavar="CSV", help="One row per forward pass.")],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="OURS=THEIRS",
            help="decodes, context, chunks, tokens, chunk_past, chunk_squared or time.",
        ),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Of a time without one: s, ms, us, ns.")
    ] = None,
    mean_context: Annotated[
        bool, typer.Option("--mean-context", help="Contexts are per row, not summed over rows.")
    ] = False,
    kv_bytes: Annotated[
        float | None,
        typer.Option(min=0, metavar="BYTES", help="Keys and values of a token, with --bandwidth."),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(min=1, metavar="BYTES_PER_S", help="Memory's: reading an entry costs that."),
    ] = None,
    name: ProfileName = None,
    device: Device = None,
    model: Model = None,
    tp: Parallel = 1,
    engine: Annotated[str | None, typer.Option(metavar="TEXT", help="Such as vllm.")] = None,
    engine_version: Version = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> int:
    """Any engine's log of steps: decodes, their context, prefill chunks and tokens, time."""
    one_thread()
    from calibrate import steplog as reader
    from calibrate.csv_files import ReadError
    from calibrate.document import profile_name
    from calibrate.steplog_profiles import document

    if (kv_bytes is None) != (bandwidth is None):
        raise ReadError("--kv-bytes and --bandwidth need each other: an entry costs their quotient")
    steps = reader.read(path, pairs(columns), unit=unit, mean_context=mean_context)
    found = document(
        reader.binned(steps, path.name),
        steps,
        path,
        name=name or profile_name(path.stem),
        device=device or "unknown",
        model=model or "unknown",
        tensor_parallel=tp or 1,
        engine=engine,
        engine_version=engine_version,
        per_context_s=None if kv_bytes is None or bandwidth is None else kv_bytes / bandwidth,
    )
    return _write([found], out, overwrite)


@import_.command()
@answered
def argonne(
    path: Annotated[Path, typer.Argument(metavar="CSV", help="Latencies of static batches.")],
    device: Device = None,
    tp: Parallel = None,
    framework: Annotated[str | None, typer.Option(metavar="TEXT", help="Such as vLLM.")] = None,
    model: Model = None,
    name: ProfileName = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> int:
    """Run-to-completion latencies of static batches (LLM-Inference-Bench, Argonne)."""
    one_thread()
    from calibrate.published import argonne as reader
    from calibrate.published.argonne_profiles import document

    batches = reader.read(_file(path, "argonne_static_batch_latency.csv"))
    rows = reader.pick(batches, hardware=device, num_gpus=tp, framework=framework, model=model)
    if batches.skipped:
        print(f"{batches.skipped} suspect rows skipped", file=sys.stderr)
    return _write([document(rows, name)], out, overwrite)
