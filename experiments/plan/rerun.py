"""`check.yaml`: the recommended cluster as an experiment of its own, for `itersim run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.plan.answer import Answer
from experiments.plan.streams import Streams
from experiments.spec import Spec
from experiments.spec_resolved import resolve
from experiments.yaml_write import dump_yaml
from workloads.table import write_table

NAME, REQUESTS = "check.yaml", "check.csv"


def write_rerun(
    folder: Path, out: Path, spec: Spec, answer: Answer, streams: Streams, router: str
) -> bool:
    """Write the cluster of *answer*, an option whose spec is *spec*, into *folder*, which becomes
    *out*: its replicas behind *router*, and what arrives there; requests that no workload of a spec
    makes go to a table beside it, those of the first seed. False where the scheduler is a cluster
    already."""
    said = spec.schedulers[answer.scheduler]
    count = answer.replicas
    if said.cluster is not None or count is None:
        return False
    data = resolve(spec, out)
    server = data["schedulers"][answer.scheduler]
    if count > 1:
        server["cluster"] = {"replicas": count, "router": router}
    data["schedulers"] = {answer.scheduler: server}
    data["workload"] = _workload(folder, data, spec, streams, count)
    made = REQUESTS in str(data["workload"])
    data |= {
        "name": f"{spec.name[:40]}-check",
        "description": f"{count} × {answer.label}, as {spec.name} recommends it.",
        "seeds": list(spec.seeds[:1] if made else spec.seeds),
        "horizon_s": None,
        "figures": [],
        "warmup": None,
    }
    for key in ("plan", "sweep"):
        data.pop(key, None)
    (folder / NAME).write_text(dump_yaml(data), encoding="utf-8")
    return True


def _workload(
    folder: Path, data: dict[str, Any], spec: Spec, streams: Streams, replicas: int
) -> dict[str, Any]:
    workload: dict[str, Any] = data["workload"]
    whole = streams.whole(spec.seeds[0], replicas)
    if streams.regular is not None:
        told = {"rate_per_s": float(streams.rate), "requests": len(whole)}
        return workload | {"arrivals": workload["arrivals"] | told}
    if streams.rate == streams.own_rate and spec.horizon_s is None:
        return workload
    write_table(whole, folder / REQUESTS)
    return {"trace": {"format": "csv", "path": REQUESTS}}
