"""AIConfigurator's operator database through its installed package, instead of files made with it.

The same three tables as `calibrate.published.aic` reads, for any model, system and backend that
the package knows. Needs the extra: pip install 'itersim[aic]'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pandas as pd

from calibrate.csv_files import ReadError
from calibrate.published.aic import Measurements

ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
CONTEXTS = (512, 1024, 2048, 4096, 8192)
PROMPTS = (128, 256, 512, 1024, 2048, 4096, 8192)
PROMPT_ROWS = (1, 2, 4, 8)
CHUNKS = (256, 512, 1024, 2048, 4096, 8192)
BESIDE = (1, 8, 32, 64, 128, 256)
LENGTHS = (512, 2048, 8192)
"""What is asked of it: the places of the published tables."""


def measured(
    model: str,
    system: str,
    backend: str,
    tensor_parallel: int = 1,
    version: str | None = None,
    modes: Mapping[str, str] | None = None,
) -> Measurements:
    """The three tables of one model on one system, in seconds. *modes*: see `precision`.

    Raises ImportError without the package, ReadError for what it does not know.
    """
    engine = _engine(model, system, backend, tensor_parallel, version, modes or {})
    decode = [
        {"batch": n, "context": c, "decode_step_s": engine.decode_step_latency(n, c, 2) / 1e3}
        for n, c in product(ROWS, CONTEXTS)
    ]
    prefill = [
        {
            "batch": n,
            "prompt_tokens": p,
            "prefix": 0,
            "prefill_s": engine.predict_prefill_latency(n, p) / 1e3,
        }
        for n, p in product(PROMPT_ROWS, PROMPTS)
    ]
    return Measurements(
        *(
            pd.DataFrame(rows).assign(system=system, tensor_parallel=tensor_parallel)
            for rows in (decode, prefill, list(_mixed(engine)))
        )
    )


def _mixed(engine: Any) -> Iterator[dict[str, float]]:
    for chunk, n, length in product(CHUNKS, BESIDE, LENGTHS):
        parts = [part / 1e3 for part in engine.mixed_step_breakdown(chunk, n, length, 2)]
        yield {
            "prefill_chunk_tokens": chunk,
            "decode_batch": n,
            "isl": length,
            "step_s": parts[0],
            "non_attn_s": parts[1],
            "ctx_attn_s": parts[2],
            "dec_attn_s": parts[3],
        }


def _engine(
    model: str,
    system: str,
    backend: str,
    tensor_parallel: int,
    version: str | None,
    modes: Mapping[str, str],
) -> Any:
    try:
        from aiconfigurator_core.sdk import EngineHandle  # type: ignore[import-not-found,unused-ignore]  # an extra
    except ImportError:
        raise ImportError(
            "reading AIConfigurator's own database needs its package: pip install 'itersim[aic]', "
            "or give the folder of its tables"
        ) from None
    try:
        return EngineHandle.compile(
            model, system, backend, tp_size=tensor_parallel, backend_version=version, **modes
        )
    except Exception as error:  # of any class, the package's own among them
        raise _no_answer(model, system, backend, error) from error


def _no_answer(model: str, system: str, backend: str, error: Exception) -> ReadError:
    said = " ".join(str(error).split())[:300]
    return ReadError(
        f"aiconfigurator has no answer for {model} on {system} under {backend}: {said}"
    )


def precision(model: str, backend: str, tensor_parallel: int, modes: Mapping[str, str]) -> str:
    """Of the weights and the KV cache, as in ``fp8, KV bf16``: what *modes* (the package's
    ``gemm_quant_mode`` and ``kvcache_quant_mode``) say, else the model's own configuration."""
    from aiconfigurator_core.sdk import config_builders, models  # type: ignore[import-not-found,unused-ignore]  # an extra

    config = config_builders.build_model_config(
        tp_size=tensor_parallel,
        pp_size=1,
        attention_dp_size=1,
        moe_tp_size=1,
        moe_ep_size=1,
        **modes,
    )
    try:
        own = models.get_model(model, config, backend).config
    except Exception as error:  # of any class, the package's own among them
        raise _no_answer(model, "any system", backend, error) from error
    weights, kv = (
        str(mode.name).removesuffix("_static").replace("bfloat16", "bf16")
        for mode in (own.gemm_quant_mode, own.kvcache_quant_mode)
    )
    return f"{weights}, KV {kv}"


def package_version() -> str:
    """The version that answered."""
    from importlib.metadata import version

    return version("aiconfigurator-core")
