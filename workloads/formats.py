"""The trace formats that can be read: what each calls its columns, and in which unit it counts.

A format's name fixes its unit: `timestamp` is milliseconds in Mooncake's and aiperf's files,
seconds in guidellm's and Bailian's. A dotted name is a path into nested JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

FormatName = Literal[
    "azure",
    "burstgpt",
    "mooncake",
    "bailian",
    "vidur",
    "llmservingsim",
    "aiperf",
    "guidellm",
    "csv",
    "jsonl",
    "parquet",
]
PLAIN: dict[str, Literal["csv", "jsonl", "parquet"]] = {
    "csv": "csv",
    "jsonl": "jsonl",
    "parquet": "parquet",
}
"""The formats that hold the canonical table, and the kind of file that each is."""

SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS = 9, 6, 3, 0
"""Units, as the power of ten that makes nanoseconds of them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one version of a format keeps things. *unit* None: calendar timestamps.

    *columns* maps our names to the file's; `parent` (Bailian) names the row a row follows on.
    *hash_tokens* is the number of tokens per hash id, where the format fixes it.
    """

    arrival: str
    unit: int | None
    prompt: str
    output: str
    columns: Mapping[str, str]
    hash_tokens: int | None = None


LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "azure": (Layout("TIMESTAMP", None, "ContextTokens", "GeneratedTokens", {}),),
    "burstgpt": (
        Layout(
            "Timestamp",
            SECONDS,
            "Request tokens",
            "Response tokens",
            {"session": "Session ID"},
        ),
    ),
    "mooncake": (
        Layout(
            "timestamp",
            MILLISECONDS,
            "input_length",
            "output_length",
            {"hash_ids": "hash_ids"},
            hash_tokens=512,
        ),
    ),
    "bailian": (
        Layout(
            "timestamp",
            SECONDS,
            "input_length",
            "output_length",
            {"session": "chat_id", "parent": "parent_chat_id", "hash_ids": "hash_ids"},
            hash_tokens=16,
        ),
    ),
    "vidur": (
        Layout(
            "arrived_at",
            SECONDS,
            "num_prefill_tokens",
            "num_decode_tokens",
            {"session": "session_id"},
        ),
    ),
    "llmservingsim": (Layout("arrival_time_ns", NANOSECONDS, "input_toks", "output_toks", {}),),
    "aiperf": (
        Layout(
            "timestamp", MILLISECONDS, "input_length", "output_length", {"session": "session_id"}
        ),
        Layout(
            "metadata.request_start_ns",
            NANOSECONDS,
            "metrics.input_sequence_length.value",
            "metrics.output_sequence_length.value",
            {"session": "metadata.x_correlation_id"},
        ),
    ),
    "guidellm": (
        Layout("timestamp", SECONDS, "input_length", "output_length", {}),
        Layout("request_start_time", SECONDS, "prompt_tokens", "output_tokens", {}),
    ),
}

ORIGINS: dict[str, str] = {
    "azure": "Azure/AzurePublicDataset, 2023 (naive times, 7 decimals) and 2024 (with an offset)",
    "burstgpt": "HPMLL/BurstGPT; seconds from the first day; later releases name sessions",
    "mooncake": "kvcache-ai/Mooncake, FAST25-release/traces; one hash id for 512 tokens",
    "bailian": "alibaba-edu/qwen-bailian-usagetraces-anon; one hash id for 16 tokens (`blksz_16`)",
    "vidur": "microsoft/vidur, trace_replay",
    "llmservingsim": "casys-kaist/LLMServingSim, flat rows",
    "aiperf": "ai-dynamo/aiperf: replay traces, or the records of a run (profile_export.jsonl)",
    "guidellm": "vllm-project/guidellm: replay traces, or the requests of a report that succeeded",
}
"""Where files of a format come from."""

ARRIVALS: dict[str, int | None] = {
    "arrival_s": SECONDS,
    "arrival_ms": MILLISECONDS,
    "arrival_us": MICROSECONDS,
    "arrival_ns": NANOSECONDS,
    "arrival_datetime": None,
}
"""What a plain file's column map may call its time column: the name chosen fixes the unit."""

OPTIONAL = (
    "max_tokens",
    "priority",
    "tenant",
    "deadline_s",
    "predicted_output_tokens",
    "session",
    "prefix_group",
    "prefix_tokens",
    "label",
    "cancel_s",
    "cancel_after_tokens",
    "ttft_timeout_s",
    "timeout_s",
    "hash_ids",
    "hash_tokens",
)
"""The optional columns of the canonical table."""

TIMES = {
    "deadline_s": "deadline_ns",
    "cancel_s": "cancel_ns",
    "ttft_timeout_s": "ttft_timeout_ns",
    "timeout_s": "timeout_ns",
}
"""Those in seconds, and what a trace calls them. The first two are moments on the arrivals' clock,
the others count from the arrival."""


def check_format(name: str) -> None:
    """Raises ValueError unless *name* is a format that can be read."""
    if name not in get_args(FormatName):
        known = ", ".join(get_args(FormatName))
        raise ValueError(f"format: {name!r} is not a trace format; known: {known}")


def plain_layout(columns: Mapping[str, str]) -> Layout:
    """The canonical table's own names, but for those that *columns* renames (ours -> theirs)."""
    known = (*ARRIVALS, "prompt_tokens", "output_tokens", *OPTIONAL)
    for name in columns:
        if name not in known:
            raise ValueError(f"columns: {name!r} is not a column; known: {', '.join(known)}")
    times = [name for name in ARRIVALS if name in columns]
    if len(times) > 1:
        raise ValueError(f"columns: {' and '.join(times)} are both given; a trace has one time")
    time = times[0] if times else "arrival_s"
    return Layout(
        columns.get(time, time),
        ARRIVALS[time],
        columns.get("prompt_tokens", "prompt_tokens"),
        columns.get("output_tokens", "output_tokens"),
        {name: columns.get(name, name) for name in OPTIONAL},
    )
