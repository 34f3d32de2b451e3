"""Policies from the file to the results: what a spec says reaches the run."""

import csv
import json

import pytest

from experiments.load import check_spec, load_spec
from experiments.point_cells import Works
from experiments.run import run

HEAD = """\
name: lab
workload:
  arrivals: {kind: poisson, rate_per_s: 20, requests: 60}
  prompt_tokens: {kind: uniform, low: 1, high: 64}
  output_tokens: {kind: uniform, low: 1, high: 64}
step_time: {kind: affine, base_s: 1e-2, per_decode_s: 1e-4, per_prefill_token_s: 1e-5}
server: {slots: 4}
"""


@pytest.fixture
def ran(tmp_path):
    """Run a text; its outcome and the folder of its results."""

    def of(text, *overrides):
        (tmp_path / "f.yaml").write_text(text)
        return run(load_spec(tmp_path / "f.yaml", overrides), tmp_path / "out", overwrite=True)

    return of


def summary(folder, *names):
    return json.loads(folder.joinpath("cells", *names, "summary.json").read_text())


def rows(folder, *names):
    with folder.joinpath("cells", *names, "requests.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_urgent_are_served_first_lower_numbers_being_more_urgent(ran):
    """Case C16 of the worked cases: r0, r2, r3, r1."""
    requests = """\
  requests:
  - {arrival_s: 0, prompt_tokens: 1, output_tokens: 2, priority: 5}
  - {arrival_s: 0.1, prompt_tokens: 1, output_tokens: 1, priority: 10}
  - {arrival_s: 0.2, prompt_tokens: 1, output_tokens: 1, priority: 0}
  - {arrival_s: 0.3, prompt_tokens: 1, output_tokens: 1, priority: 0}
"""
    outcome = ran(
        f"name: lab\nworkload:\n{requests}step_time: {{kind: constant, step_s: 1}}\n"
        "server: {slots: 1}\nschedulers:\n"
        "  priority: {kind: mixed, order: priority}\n  fcfs: {kind: mixed}\n"
    )
    assert not outcome.failed

    def ends(name):
        return [float(row["delivered_s"]) for row in rows(outcome.folder, name, "seed-1")]

    assert ends("priority") == [2, 5, 3, 4]
    assert ends("fcfs") == [2, 3, 4, 5]


def test_a_lottery_differs_between_seeds_and_not_between_runs(ran):
    text = HEAD.replace("poisson, rate_per_s: 20", "backlog")
    text = text.replace("uniform, low: 1, high: 64", "constant, value: 8")
    text += "schedulers: {s: {kind: mixed, order: random}}\nseeds: 2\n"

    def places(seed):
        table = rows(ran(text).folder, "s", f"seed-{seed}")
        return [row["admitted_s"] for row in table]

    first, second = places(1), places(2)
    assert first != second
    assert places(1) == first


@pytest.mark.parametrize("shape", ["sampled", "declared"])
def test_all_schedulers_see_the_same_labels_and_seeds_differ(tmp_path, shape):
    labels = "  tenants: {a: 1, b: 1}\n  priorities: {0: 1, 1: 1}\nstep_time"
    text = HEAD.replace("step_time", labels, 1) + "schedulers: {s: {kind: mixed}}\nseeds: 2\n"
    if shape == "declared":
        start, end = text.index("  arrivals"), text.index("  tenants")
        row = "  - {arrival_s: 0, prompt_tokens: 4, output_tokens: 6}\n"
        text = text[:start] + "  requests:\n" + 60 * row + text[end:]
    (tmp_path / "f.yaml").write_text(text)
    works = Works(load_spec(tmp_path / "f.yaml"))

    def drawn(seed):
        attributes = works.make(seed).attributes
        return attributes["tenant"].tolist(), attributes["priority"].tolist()

    first = drawn(1)
    assert drawn(1) == first != drawn(2)
    assert drawn(1) == first


def test_memory_by_dimensions_is_told_as_a_number_in_the_summary_and_the_spec(ran):
    memory = "{device_memory_bytes: 1 GB, weight_bytes: 0.1 GB, layers: 32, kv_heads: 8, "
    text = HEAD + "schedulers: {s: {kind: mixed, kv_blocks: " + memory + "head_size: 128}}}\n"
    folder = ran(text).folder
    assert summary(folder, "s", "seed-1")["kv_blocks"] == 381
    again, _ = check_spec(folder / "spec.yaml")
    assert again.schedulers["s"].kv_blocks == 381


def test_clients_give_up_and_try_again(ran):
    text = HEAD + "schedulers: {s: {kind: mixed}}\nclients: {ttft_timeout_s: 0.3}\n"
    outcome = ran(text)
    alone = summary(outcome.folder, "s", "seed-1")
    told = f"note: s: {alone['timed_out']} of 60 requests were given up by their client after a"
    assert told in outcome.text
    assert alone["timed_out"] > 0
    assert alone["offered"] == 60
    again = summary(ran(text, "clients.retries={attempts: 1, backoff_s: 5}").folder, "s", "seed-1")
    assert again["offered"] > 60


def test_shed_requests_are_told_with_their_reason(ran):
    text = HEAD.replace("step_time", "  deadline_after_s: 0.5\nstep_time", 1)
    outcome = ran(text + "schedulers: {s: {kind: mixed, order: {kind: edf, shed: true}}}\n")
    assert not outcome.failed
    assert "requests were rejected (hopeless: out of reach: an order" in outcome.text


OWN = """\
from sim.orders import Order


class LatestFirst(Order):
    def __init__(self, breaks_after=None):
        self.breaks_after = breaks_after

    def key(self, request, now_ns):
        if self.breaks_after is not None and request.index >= self.breaks_after:
            raise ValueError("no more")
        return -request.arrival_ns
"""


def test_an_order_of_ones_own_runs_and_its_failure_is_its_own(ran, tmp_path):
    (tmp_path / "latest_one.py").write_text(OWN)
    text = (
        HEAD
        + "schedulers:\n"
        + '  mine: {kind: mixed, order: {kind: "latest_one:LatestFirst"}}\n'
        + '  broken: {kind: mixed, order: {kind: "latest_one:LatestFirst", breaks_after: 9}}\n'
    )
    outcome = ran(text)
    assert outcome.failed == [
        "broken/seed-1: order latest_one:LatestFirst fails in latest_one.py:10: ValueError: no more"
    ]
    done = summary(outcome.folder, "mine", "seed-1")
    assert done["completed"] == 60
    assert len(done["order_sha256"]) == 64


def test_true_lengths_that_decide_are_told(ran):
    text = HEAD + "schedulers: {s: {kind: mixed, order: srpt}}\n"
    told = "note: s: no max_tokens is declared, so order srpt goes by the true output length"
    assert told in ran(text).text
    assert told not in ran(text, "workload.predictor={kind: lognormal, sigma: 1}").text
