"""Profiles from LLMServingSim's kernel tables."""

from __future__ import annotations

from pathlib import Path

from calibrate.document import Document
from calibrate.published import COMMAND
from calibrate.published.kernel_curves import curve_of, region_errors
from calibrate.published.llmservingsim import LICENCE, SOURCE, Kernels, layers_of, read

KERNELS_A_LAYER = 11
"""Two norms, QKV, rotary, KV write, attention, output, two products of the MLP, its activation,
and the merge of attention's parts."""

GAP_S = 1.3e-6
"""From one kernel's end to the next one's start within a captured graph, measured with empty
kernels on an H100 (Spector et al., Look Ma, No Bubbles!, Hazy Research, 27 May 2025)."""

SHIPPED = "llmservingsim_rtxpro6000_llama31_8b_tp1_"


def gaps_s(layers: int, gap_s: float = GAP_S) -> float:
    """What a step takes between its kernels."""
    return KERNELS_A_LAYER * layers * gap_s


def documents(folder: Path) -> list[Document]:
    """The profile that ships."""
    kernels = read(folder, SHIPPED)
    return [
        document(
            kernels,
            layers_of(kernels),
            name="llama-3.1-8b-rtxpro6000-vllm",
            device="RTX PRO 6000 Blackwell",
            model="llama-3.1-8b",
            engine_version="0.19",
        )
    ]


def document(
    kernels: Kernels,
    layers: int,
    *,
    name: str,
    device: str,
    model: str,
    tensor_parallel: int = 1,
    engine_version: str | None = None,
    gap_s: float = GAP_S,
) -> Document:
    """The profile of one model on one device."""
    gaps = gaps_s(layers, gap_s)
    curve = curve_of(kernels, layers, gaps)
    return Document(
        name=name,
        device=device,
        model=model,
        tensor_parallel=tensor_parallel,
        engine="vllm",
        engine_version=engine_version,
        precision="bf16",
        source=SOURCE,
        licence=LICENCE,
        made_by=COMMAND,
        curve=curve,
        error=dict(region_errors(kernels, layers)),
        fitted={"all": {"layers": layers, "gaps_s": gaps, "kernels": len(kernels.attention)}},
        assumptions=[
            f"between kernels a step loses {gaps * 1e3:.2f} ms ({KERNELS_A_LAYER} kernels a layer, "
            f"{gap_s * 1e6:g} us each), which is in base_s; the tables have none of it.",
            "the sums have no host work, and no communication between devices.",
            "decodes of unequal contexts cost what as many of their mean context cost.",
        ],
        notes=[
            "errors are against the sums of the kernels' own times, contexts and pasts up to 4096 "
            "tokens: held out are the steps that have a length or a batch of every second place "
            "of the attention table.",
            "the worst are one or two decodes of long contexts beside a prefill, and short chunks "
            "after long pasts: there the longest row alone decides, and a sum over rows, which "
            "rises with each of them, cannot say so.",
        ],
    )
