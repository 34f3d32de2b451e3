"""Small specs at random, settings to change in them, and ways to spoil a file of their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

SCHEDULERS: dict[str, dict[str, Any]] = {
    "static": {"kind": "static"},
    "waits": {"kind": "static", "launch": "full_or_timeout", "timeout_s": 0.5},
    "mixed": {"kind": "mixed", "order": "shortest_prompt"},
    "alone": {"kind": "prefill_first", "max_batched_tokens": None},
    "chunks": {"kind": "chunked", "pass_order": "decode_first", "order": "fair"},
    "urgent": {"kind": "chunked", "order": "priority", "displace": True, "preemption": "retain"},
    "swaps": {"kind": "chunked", "preemption": "swap", "swap": {"block_s": 0.001}},
    "ahead": {"kind": "chunked", "scheduling": "asynchronous", "host": {"constant_s": 0.01}},
    "caches": {"kind": "mixed", "prefix_caching": True},
    "lottery": {"kind": "mixed", "order": "random", "head_of_line": "skip"},
    "two": {"kind": "chunked", "cluster": 2},
    "fails": {
        "kind": "mixed",
        "cluster": {"replicas": 2, "outages": [{"replica": 1, "at_s": 0.3, "down_s": 0.5}]},
    },
    "narrow": {
        "kind": "mixed",
        "step_time": {
            "kind": "affine",
            "base_s": 0.1,
            "extrapolate": False,
            "range": {"context": [0, 12]},
        },
    },
}
ROW = st.fixed_dictionaries(
    {
        "arrival_s": st.sampled_from([0, 0.1, 0.25, 3]),
        "prompt_tokens": st.integers(1, 20),
        "output_tokens": st.integers(1, 8),
    },
    optional={
        "priority": st.integers(0, 2),
        "tenant": st.sampled_from(["a", "b"]),
        "timeout_s": st.sampled_from([0.2, 5]),
        "cancel_s": st.sampled_from([0.3, 0.4]),
        "label": st.sampled_from(["=1", "a,b", "ü"]),
    },
)
DRAWN = st.fixed_dictionaries(
    {
        "arrivals": st.sampled_from(
            [
                {"kind": "poisson", "rate_per_s": 5, "requests": 6},
                {"kind": "closed_loop", "clients": 2, "think_time_s": 0.1, "requests": 5},
                {"kind": "backlog", "requests": 5},
            ]
        ),
        "prompt_tokens": st.just({"kind": "uniform", "low": 1, "high": 20}),
        "output_tokens": st.just({"kind": "geometric", "mean": 4, "max": 20}),
    },
    optional={"tenants": st.just({"a": 2, "b": 1}), "priorities": st.just({0: 1, 5: 3})},
)
SPECS = st.fixed_dictionaries(
    {
        "name": st.just("small"),
        "workload": st.lists(ROW, min_size=2, max_size=6).map(lambda rows: {"requests": rows})
        | DRAWN,
        "step_time": st.just({"kind": "affine", "base_s": 0.1, "per_prefill_token_s": 0.01}),
        "server": st.fixed_dictionaries(
            {"slots": st.integers(1, 3), "block_size": st.just(4)},
            optional={"kv_blocks": st.integers(5, 12), "max_batched_tokens": st.just(32)},
        ),
        "schedulers": st.lists(
            st.sampled_from(sorted(SCHEDULERS)), min_size=1, max_size=2, unique=True
        ).map(lambda names: {name: SCHEDULERS[name] for name in names}),
        "figures": st.just([]),
    },
    optional={
        "seeds": st.sampled_from([1, 2, [3]]),
        "horizon_s": st.sampled_from([0.35, 30]),
        "sweep": st.sampled_from(
            [
                {"grid": {"server.slots": [1, 2]}},
                {"zip": {"server.slots": [1, 3], "server.kv_blocks": [9, 11]}},
                {"list": {"few": {"server.kv_blocks": 6}, "many": {"server.kv_blocks": 60}}},
            ]
        ),
        "slo": st.just({"ttft_s": 0.5}),
        "clients": st.just({"timeout_s": 1, "retries": {"attempts": 1, "backoff_s": 0.1}}),
    },
)
SETTINGS = (
    "server.slots=2",
    "server.kv_blocks=7",
    "server.block_size=1",
    "horizon_s=1.5",
    "seeds=2",
    "sweep=null",
    "warmup=mser5",
    "fast_forward=false",
    "server.slots=0",
    "server.no_such=1",
    "schedulers.static.kind=mixed",
)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no text": lambda data: b"\xff\xfe" + data,
    "a list": lambda data: b"[1]\n",
    "nothing in it": lambda data: b"{}\n",
}


def lost_keys(data: bytes) -> bytes:
    """JSON without half of what it held."""
    try:
        held = json.loads(data)
    except ValueError:
        return data
    return json.dumps(dict(list(held.items())[::2]) if isinstance(held, dict) else None).encode()


def twisted(data: bytes) -> bytes:
    """JSON whose values are of another kind."""
    try:
        held = json.loads(data)
    except ValueError:
        return data
    return json.dumps(
        {key: [value] for key, value in held.items()} if isinstance(held, dict) else 1
    ).encode()


DAMAGES |= {"lost keys": lost_keys, "twisted": twisted}
