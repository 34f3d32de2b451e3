"""`itersim validate`: the simulation beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.answering import DONE, SOME_FAILED, answered, command_line
from experiments.cli_calibrate import one_thread
from experiments.cli_options import SpecFile, Weights, names, pairs


@answered
def validate(
    spec_file: SpecFile,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Run for real: a preset such as tiny, or a config.json."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu or cuda.")] = "cpu",
    dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="fp32, bf16 or fp16.")] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, metavar="MINUTES", help="Time for the calibration in it.")
    ] = 2.3,
    load: Annotated[
        float,
        typer.Option(
            min=0.05,
            max=1.0,
            metavar="SHARE",
            help="Spread the arrivals so that the policy with the least capacity is so busy.",
        ),
    ] = 0.5,
    passes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Real iterations are the median of N passes.")
    ] = 3,
    weights: Weights = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to.  [default: results/validate-NAME]")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Replace one value of the spec."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a bar is missed.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead: compare with this measured run of another's, a CSV of requests or the "
            "result of a benchmark.",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="With --against, fit: front_end (default), host, overhead, mixed; with "
            "--deployments: overhead, front_end.",
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Fit on the first N requests, compare the others.",
        ),
    ] = None,
    skip: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Leave the first N out of the errors.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="OURS=THEIRS", help="What the CSV calls one of our columns."
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Of --against: vllm-bench, aiperf, guidellm or csv.  [default: by what is in it]",
        ),
    ] = None,
    result: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Which of several results in one file, from 1."),
    ] = None,
    make_load: Annotated[
        bool,
        typer.Option(
            "--make-load",
            help="With a benchmark's result: make its load anew from rate and concurrency, though "
            "times are recorded.",
        ),
    ] = False,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Of times without one: s, ms, us, ns.")
    ] = None,
    deployments: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Instead: compare with the means of measured closed-loop benchmarks.",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="With --deployments: a profile, or a folder.  [default: shipped]"
        ),
    ] = None,
    shortest: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1.0,
            metavar="SHARE",
            help="With --deployments: lengths are uniform from that share of isl and osl up.",
        ),
    ] = 0.8,
    requests_per_client: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --deployments: as its benchmark had.")
    ] = 10,
    convert: Annotated[
        bool,
        typer.Option(
            help="With --deployments: step times of another precision less what fewer bytes and "
            "faster operations save."
        ),
    ] = True,
    kv: Annotated[
        str | None,
        typer.Option(
            metavar="BITS", help="With --deployments: KV cache in fp8 or bf16.  [as the profile]"
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", min=1, metavar="N", help="Processes for --deployments.")
    ] = 1,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="With --against or --deployments: replace what an earlier comparison wrote.",
        ),
    ] = False,
) -> int:
    """Compare simulated runs with real ones.

    SPEC's schedulers run on a real engine and in simulation; step times are measured in the same
    run, whatever the spec says. With --against, the real run is another's: its arrivals and lengths
    are replayed under the spec's servers. With --deployments, the real runs are many benchmarks, of
    which only mean TTFT and TPOT are known: the spec says how each engine is set.
    """
    one_thread()
    command = " ".join(command_line())
    if deployments is not None:
        from calibrate.deployment_run import Benchmark
        from experiments import validate_deployments as many
        from experiments.deployment_rows import Asked as AskedMany

        spec = many.spec_of(spec_file, overrides or ())
        print(
            many.validate(
                spec,
                AskedMany(
                    deployments=deployments,
                    profiles=profile or (),
                    benchmark=Benchmark(
                        requests_per_client=requests_per_client,
                        shortest=shortest,
                        seeds=spec.seeds,
                    ),
                    convert=convert,
                    kv=kv,
                    fit=names(fit),
                    jobs=jobs,
                    command=command,
                ),
                out or Path("results", f"deployments-{deployments.stem}"),
                overwrite,
            )
        )
        return DONE
    if against is not None:
        from experiments import validate_against as others

        print(
            others.validate(
                others.spec_of(spec_file, overrides or ()),
                others.Asked(
                    against=against,
                    columns=pairs(columns),
                    unit=unit,
                    fit=names(fit),
                    first=first,
                    skip=skip,
                    command=command,
                    format=file_format,
                    result=result,
                    make_load=make_load,
                    spec_file=spec_file,
                    overrides=overrides or (),
                ),
                out or Path("results", f"against-{against.stem}"),
                overwrite,
            )
        )
        return DONE
    from experiments.load import load_spec
    from experiments.validate_engine import Asked, ValidationError
    from experiments.validate_engine import validate as run_both

    if model is None:
        raise ValidationError(
            "say --model NAME to run the spec for real (such as --model tiny), or --against CSV"
        )
    if overwrite:
        raise typer.BadParameter(
            "is for --against and --deployments; with --model, tables are written anew without "
            "it (to calibrate anew too, name another folder with --out)",
            param_hint="'--overwrite'",
        )
    spec = load_spec(spec_file, overrides or ())
    folder = Path("results", f"validate-{spec.name}") if out is None else out
    asked = Asked(
        model=model,
        device=device,
        dtype=dtype,
        minutes=minutes,
        load=load,
        passes=passes,
        weights=weights,
        command=command,
    )
    outcome = run_both(spec, asked, folder)
    print(outcome.text)
    return DONE if outcome.reached or not strict else SOME_FAILED
