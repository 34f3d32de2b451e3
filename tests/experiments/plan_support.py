"""Small plans: a server that serves one request a second, and how to ask for its capacity."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from experiments.load import spec_of
from experiments.plan.answer import Answer
from experiments.plan.found import answer
from experiments.plan.option import Ask, Option


def unit_server(
    arrivals: dict[str, Any], targets: dict[str, Any], seeds: Any = 1, **plan: Any
) -> dict[str, Any]:
    """One slot, one token, one second."""
    return {
        "name": "unit",
        "workload": {
            "arrivals": arrivals,
            "prompt_tokens": {"kind": "constant", "value": 1},
            "output_tokens": {"kind": "constant", "value": 1},
        },
        "step_time": {"kind": "constant", "step_s": 1},
        "server": {"slots": 1},
        "schedulers": {"mixed": {"kind": "mixed"}},
        "seeds": seeds,
        "plan": {"targets": targets, **plan},
    }


def steady(rate: float, requests: int = 150) -> dict[str, Any]:
    """Constant arrivals."""
    return {"kind": "constant", "rate_per_s": rate, "requests": requests}


def option_of(data: dict[str, Any], place: int = 0, scheduler: str | None = None) -> Option:
    """One option of a plan, ready to be asked."""
    spec = spec_of(data)
    assert spec.plan is not None
    variant = list(spec.variants())[place]
    name = scheduler or next(iter(variant.spec.schedulers))
    return Option(Ask(name, pickle.dumps(variant), name, spec.plan, spec.seeds))


def answered(data: dict[str, Any], place: int = 0) -> Answer:
    """What a plan says of one option."""
    return answer(option_of(data, place))


def trace_plan(folder: Path, targets: dict[str, Any], seeds: Any = 1, **plan: Any) -> Any:
    """The same server on a trace of its own: 300 requests, one every two seconds."""
    rows = "".join(f"{2 * row},1,1\n" for row in range(300))
    path = folder / "own.csv"
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}", encoding="utf-8")
    data = unit_server({}, targets, seeds, **plan)
    return data | {"workload": {"trace": {"format": "csv", "path": str(path)}}}
