"""What is fuzzed: every reader of what users bring, an input that it takes, and what it may raise.

A target takes text or data and a scratch folder; whatever it raises that is not in its ``allowed``
is a fault of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from calibrate import deployments, measured_run, steplog, store
from calibrate.benchmarks.formats import FORMATS, read_result
from calibrate.faults import CalibrationError
from calibrate.profile import FOLDER, load_profile
from calibrate.published import aic, argonne, distserve, llmservingsim, splitwise
from experiments import load
from experiments.faults import SpecError
from experiments.yaml_source import document_of
from workloads import TraceError, TraceSettings, read_trace, write_table
from workloads.exact import ClockRangeError
from workloads.formats import FormatName

CONFIGS = Path(load.__file__).parent / "configs"
SEEDS: Mapping[str, list[str]] = json.loads(
    Path(__file__).with_name("fuzz_seeds.json").read_text(encoding="utf-8")
)
"""Small valid files of every format; those of benchmarks were made by our own simulator."""

TRACE_ERRORS = (TraceError, ClockRangeError, *(() if find_spec("pyarrow") else (ImportError,)))
"""Without pyarrow, a file that begins as Parquet does is answered with the extra that it needs."""

PROFILES = ("llama-3.1-8b-h100-vllm", "opt-13b-a100-80gb-tp1", "llama2-70b-a100-80gb-tp4")
LONGEST_CONFIG = 3000
"""Bytes of a shipped spec that is worth mutating: longer ones are read too slowly."""


@dataclass(frozen=True, slots=True)
class Target:
    """*read* takes an input of the *kind* and a folder to put files in."""

    name: str
    read: Callable[[Any, Path], object]
    allowed: tuple[type[Exception], ...]
    seeds: tuple[Any, ...]
    kind: Literal["text", "binary", "data", "random"] = "text"


def targets() -> Iterator[Target]:
    """All of them; parquet files only where pyarrow is installed."""
    for name, seeds in SEEDS.items():
        group, _, what = name.partition(" ")
        texts = tuple(seeds)
        if group == "trace":
            yield Target(name, _trace(what), TRACE_ERRORS, texts)
        elif group == "bench":
            yield Target(name, _bench, (CalibrationError,), texts)
        else:
            yield Target(name, IMPORTS[what], (CalibrationError,), texts)
    if find_spec("pyarrow") is not None:
        yield Target("trace parquet", _trace("parquet"), TRACE_ERRORS, (_parquet(),), "binary")
    head = ",".join(store.COLUMNS)
    row = ",".join(["decode", "1"] + ["1"] * (len(store.COLUMNS) - 2))
    samples = (f"{head}\n{row}\n{row}\n",)
    yield Target("raw samples", _samples, (CalibrationError,), samples)
    profiles = tuple(FOLDER.joinpath(f"{name}.yaml").read_text("utf-8") for name in PROFILES)
    yield Target("profile", _profile, (CalibrationError,), profiles)
    yield Target("spec text", _spec_text, (SpecError,), specs())
    data = tuple(document_of(text, "spec").data() for text in specs())
    yield Target("spec data", _spec_data, (SpecError,), data, "data")
    yield Target("spec random", _spec_data, (SpecError,), data, "random")


@cache
def specs() -> tuple[str, ...]:
    """The shipped specs that are short."""
    texts = [path.read_text("utf-8") for path in sorted(CONFIGS.rglob("*.yaml"))]
    return tuple(text for text in texts if len(text) <= LONGEST_CONFIG)


def _put(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def _trace(format: FormatName | str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        path = _put(folder, "trace", content)
        strict = len(content) % 2 == 1
        settings = TraceSettings(format=format, path=str(path), strict=strict)  # type: ignore[arg-type]
        return read_trace(settings).report.text()

    return read


def _parquet() -> bytes:
    with TemporaryDirectory() as name:
        _put(Path(name), "t.csv", SEEDS["trace csv"][1])
        settings = TraceSettings(format="csv", path=f"{name}/t.csv")
        write_table(read_trace(settings).trace, Path(name, "t.parquet"))
        return Path(name, "t.parquet").read_bytes()


def _bench(content: bytes, folder: Path) -> object:
    path = _put(folder, "result.json", content)
    said = FORMATS[len(content) % len(FORMATS)] if len(content) % 3 == 0 else None
    found = read_result(path, said)
    return measured_run.read(path) if found is None else found


def _steplog(content: bytes, folder: Path) -> object:
    return steplog.binned(steplog.read(_put(folder, "steps.csv", content)))


def _argonne(content: bytes, folder: Path) -> object:
    return argonne.pick(argonne.read(_put(folder, "argonne.csv", content)), hardware="A100")


def _llmservingsim(content: bytes, folder: Path) -> object:
    _put(folder, "dense.csv", content)
    _put(folder, "per_sequence.csv", "layer,sequences,time_us\nsampler,1,2\n")
    header = ",".join(llmservingsim.ATTENTION)
    _put(folder, "attention.csv", f"{header},time_us\n0,0,1,16,3\n16,0,0,0,4\n")
    return llmservingsim.read(folder)


def _aic(content: bytes, folder: Path) -> object:
    _put(folder, aic.DECODE_FILE, content)
    row = f"{aic.MODEL},h100_sxm,vllm,1"
    head = "model,system,backend,tp"
    _put(folder, aic.PREFILL_FILE, f"{head},batch,prompt_tokens,prefix,prefill_ms\n{row},1,64,0,9")
    shape = "prefill_chunk_tokens,decode_batch,isl,step_ms,non_attn_ms,ctx_attn_ms,dec_attn_ms"
    _put(folder, aic.MIXED_FILE, f"{head},{shape}\n{row},64,1,64,9,7,1,1")
    return aic.read(folder)


IMPORTS: Mapping[str, Callable[[bytes, Path], object]] = {
    "steplog": _steplog,
    "argonne": _argonne,
    "llmservingsim": _llmservingsim,
    "aic": _aic,
    "splitwise": lambda content, folder: splitwise.read(_put(folder, "s.csv", content)),
    "distserve": lambda content, folder: distserve.read(_put(folder, "d.csv", content)),
    "deployments": lambda content, folder: deployments.read(_put(folder, "d.csv", content)),
    "measured run": lambda content, folder: measured_run.read(_put(folder, "r.csv", content)),
}


def _samples(content: bytes, folder: Path) -> object:
    return store.read_raw(_put(folder, "raw.csv", content))


def _profile(content: bytes, folder: Path) -> object:
    return load_profile(_put(folder, "p.yaml", content))


def _spec_text(content: bytes, folder: Path) -> object:
    return load.load_spec(_put(folder, "spec.yaml", content))


def _spec_data(data: Any, folder: Path) -> object:
    return load.spec_of(data, folder=folder)
