"""Makes the shipped quantile tables: `python -m workloads.quantiles TRACE_DIR`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads.exact import Floats, Ints
from workloads.formats import FormatName
from workloads.points import FOLDER
from workloads.readers import TraceSettings, read_trace


@dataclass(frozen=True, slots=True)
class Original:
    """A public trace that tables are made of."""

    name: str
    format: FormatName
    file: str
    source: str
    licence: str


ORIGINALS = (
    Original(
        "azure2023_conv",
        "azure",
        "azure2023_conv.csv",
        "Azure/AzurePublicDataset, AzureLLMInferenceTrace_conv.csv (2023)",
        "CC-BY 4.0",
    ),
    Original(
        "azure2023_code",
        "azure",
        "azure2023_code.csv",
        "Azure/AzurePublicDataset, AzureLLMInferenceTrace_code.csv (2023)",
        "CC-BY 4.0",
    ),
    Original(
        "mooncake_conversation",
        "mooncake",
        "mooncake_fast25_conversation.csv",
        "kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl",
        "Apache-2.0",
    ),
    Original(
        "sharegpt300",
        "llmservingsim",
        "sharegpt300_sps10_llama-3.1-8b.csv",
        "casys-kaist/LLMServingSim, ShareGPT lengths by Llama-3.1-8B",
        "MIT",
    ),
)


def grid() -> Floats:
    """201 probabilities from 0 to 1: every hundredth, and finer towards both ends."""
    lower = np.concatenate((np.arange(0, 10) / 1000, np.arange(20, 200, 4) / 2000))
    upper = 1 - np.concatenate((np.geomspace(0.1, 1e-4, 60), [0.0]))
    middle = np.linspace(0.1, 0.9, 201 - len(lower) - len(upper) + 1)[:-1]
    return np.unique(np.concatenate((lower, middle, upper)).round(6))


def table_text(lengths: Ints, original: Original, sha256: str) -> str:
    """The quantiles of *lengths* as a table with its provenance, ready to be written."""
    p = grid()
    values = np.quantile(lengths, p)
    notes = {
        "source": original.source,
        "licence": original.licence,
        "sha256": sha256,
        "n": len(lengths),
        "mean": f"{lengths.mean():.6f}",
    }
    lines = [f"# {key}: {value}" for key, value in notes.items()]
    lines.append("p,value")
    lines += [f"{at:.6g},{value:.10g}" for at, value in zip(p, values.round(3), strict=True)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the tables of all originals found in the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace_dir", type=Path, help="folder that holds the public traces")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / FOLDER, help="folder for the tables"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for original in ORIGINALS:
        settings = TraceSettings(format=original.format, path=original.file)
        file = read_trace(settings, arguments.trace_dir)
        for part in ("prompt", "output"):
            lengths = getattr(file.trace, f"{part}_tokens")
            target = arguments.out / f"{original.name}_{part}.csv"
            target.write_text(table_text(lengths, original, file.report.sha256), encoding="utf-8")
            print(target)


if __name__ == "__main__":
    main()
