"""What a spec says of queue order, memory, host time and clients: taken as said, or refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim
from experiments import parts
from experiments.faults import SpecError
from experiments.load import check_spec, spec_of
from experiments.parts import (
    clients_of,
    labels_of,
    order_of,
    policy_of,
    server_of,
    slo_of,
    workload_of,
)
from experiments.spec import json_schema
from experiments.spec_order import ORDERS
from experiments.spec_resolved import content_hash, resolve
from experiments.spec_server import NOT_FOR_STATIC
from experiments.yaml_source import document_of
from experiments.yaml_write import dump_yaml
from sim import orders
from sim.settings import Chunked, Host, Mixed, Server, Swap
from workloads import labels, predict
from workloads.clients import Clients

HEAD = """\
name: lab
workload:
  arrivals: {kind: poisson, rate_per_s: 2, requests: 9}
  prompt_tokens: {kind: constant, value: 64}
  output_tokens: {kind: constant, value: 8}
step_time: {kind: constant, step_s: 1}
"""
GOOD = (
    HEAD
    + """\
server:
  slots: 16
  kv_blocks: 100
schedulers:
  s: {kind: chunked}
"""
)


def loaded(text):
    return spec_of(document_of(text, "f.yaml").data())


def scheduler(settings_="kind: chunked", **server):
    lines = "".join(f"  {key}: {value}\n" for key, value in {"slots": 16, **server}.items())
    text = f"{HEAD}server:\n{lines}schedulers:\n  s: {{{settings_}}}\n"
    return loaded(text).schedulers["s"]


def order(said):
    return order_of(scheduler(order=said).order)


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """The faults of a text, as lines; the file is called f.yaml."""
    monkeypatch.chdir(tmp_path)

    def of(text):
        (tmp_path / "f.yaml").write_text(text)
        try:
            check_spec("f.yaml")
        except SpecError as error:
            return list(map(str, error.faults))
        return []

    return of


# --- queue order --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ORDERS)
def test_a_word_is_short_for_a_mapping_with_its_kind(model):
    kind = model.model_fields["kind"].default
    assert scheduler(order=kind) == scheduler(order=f"{{kind: {kind}}}")
    assert type(order(kind)) is parts.ORDERS[model]
    assert order(kind).kind == kind


@pytest.mark.parametrize("model", ORDERS)
def test_an_order_says_exactly_what_its_class_takes(model):
    import inspect

    taken = inspect.signature(parts.ORDERS[model]).parameters
    said = {name: field for name, field in model.model_fields.items() if name != "kind"}
    assert set(said) == set(taken)
    for name, field in said.items():
        default = field.get_default(call_default_factory=True)
        assert (default or None) == (taken[name].default or None), name


@pytest.mark.parametrize("model", ORDERS)
def test_an_order_displaces_in_the_spec_if_it_does_in_the_simulation(model):
    assert model.displaces == parts.ORDERS[model].displaces


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("{kind: priority, aging_s: 0.1}", orders.Priority(aging_s=0.1)),
        (
            "{kind: priority, quota: {5: 0.2, -1: 0.3}, reserved: {0: {slots: 2}, 1: {tokens: 9}}}",
            orders.Priority(
                quota={5: 0.2, -1: 0.3},
                reserved={0: orders.Reserved(2, 0), 1: orders.Reserved(0, 9)},
            ),
        ),
        ("{kind: srpt, aging_tokens_per_s: 7}", orders.Srpt(aging_tokens_per_s=7)),
        ("{kind: edf, shed: true, token_s: 0.02}", orders.Edf(shed=True, token_s=0.02)),
        (
            "{kind: fair, prompt_weight: 0, output_weight: 1.5, weights: {a: 3, 7: 0.1}}",
            orders.Fair(prompt_weight=0.0, output_weight=1.5, weights={"a": 3.0, "7": 0.1}),
        ),
        (
            "{kind: mlfq, levels: 2, quantum_tokens: 9, starve_s: 5}",
            orders.Mlfq(levels=2, quantum_tokens=9, starve_s=5.0),
        ),
    ],
)
def test_orders_are_made_as_they_are_said(said, made):
    found = order(said)
    assert type(found) is type(made)
    assert vars(found) == vars(made)


def test_a_lottery_is_drawn_from_the_seed_unless_it_has_one():
    said = scheduler(order="random").order
    seeds = [order_of(said, seed).seed for seed in (1, 2, 1)]
    assert seeds[0] == seeds[2] != seeds[1]
    fixed = scheduler(order="{kind: random, seed: 7}").order
    assert [order_of(fixed, seed).seed for seed in (1, 2)] == [7, 7]
    assert server_of(scheduler(order="random"), 1).order.seed == seeds[0]


def test_the_order_of_all_may_be_another_in_one():
    text = GOOD.replace("  slots: 16\n", "  slots: 16\n  order: srpt\n").replace(
        "  s: {kind: chunked}\n", "  s: {kind: chunked}\n  t: {kind: mixed, order: fcfs}\n"
    )
    assert [s.order.kind for s in loaded(text).schedulers.values()] == ["srpt", "fcfs"]


# --- memory and host time -----------------------------------------------------------------------


def test_servers_and_policies_are_made_as_they_are_said():
    said = scheduler(
        "kind: chunked, pass_order: decode_first, max_partial_prefills: 2, prefill_every: 3, "
        "target_step_s: 0.05, decode_reserve: 5, batch_wait_iterations: 4, batch_wait_tokens: 900",
        kv_blocks=100,
        watermark=0.01,
        head_of_line="skip",
        skip_age=3,
        order="priority",
        preemption="swap",
        swap="{block_s: 0.001, host_blocks: 7, overlap: true}",
        victim="largest_kv",
        host="{constant_s: 0.001, per_admission_s: 0.002}",
    )
    assert policy_of(said) == Chunked(
        pass_order="decode_first",
        max_partial_prefills=2,
        prefill_every=3,
        target_step_s=0.05,
        batch_wait_iterations=4,
        batch_wait_tokens=900,
    )
    server = server_of(said)
    assert server == Server(
        slots=16,
        max_batched_tokens=2048,
        decode_reserve=5,
        kv_blocks=100,
        watermark=0.01,
        head_of_line="skip",
        skip_age=3,
        order=server.order,
        preemption="swap",
        swap=Swap(block_s=0.001, host_blocks=7, overlap=True),
        victim="largest_kv",
        host=Host(constant_s=0.001, per_admission_s=0.002),
    )
    assert policy_of(scheduler("kind: mixed, prefill_every: 4")) == Mixed(prefill_every=4)
    late = server_of(scheduler(scheduling="asynchronous", stop="eos"))
    assert (late.scheduling, late.stop) == ("asynchronous", "eos")


def test_a_blocks_way_takes_its_bytes_over_the_bandwidth():
    swap = "{bytes_per_s: 25 GB/s, bytes_per_token: 131072}"
    made = server_of(scheduler(preemption="swap", swap=swap, block_size=32)).swap
    assert made.block_s == 32 * 131_072 / 25e9
    plain = "{bytes_per_s: 25e9, bytes_per_token: 128 KiB}"
    assert server_of(scheduler(preemption="swap", swap=plain, block_size=32)).swap == made


MEMORY = "{device_memory_bytes: 80 GB, weight_bytes: 16.06 GB, layers: 32, kv_heads: 8, "
MEMORY += "head_size: 128}"


def test_memory_by_dimensions_becomes_a_number_of_blocks():
    assert scheduler(kv_blocks=MEMORY).kv_blocks == 26_674
    own = scheduler("kind: chunked, block_size: 32", kv_blocks=MEMORY)
    assert own.kv_blocks == 13_337  # by its own block size
    assert server_of(own).kv_blocks == 13_337
    text = GOOD.replace("kv_blocks: 100", f"kv_blocks: {MEMORY}")
    assert resolve(loaded(text))["schedulers"]["s"]["kv_blocks"] == 26_674
    assert content_hash(loaded(text)) == content_hash(loaded(GOOD.replace("100", "26674")))


def test_what_means_nothing_to_static_is_left_out_of_the_servers():
    text = (
        GOOD.replace("  slots: 16\n", "  slots: 16\n  order: srpt\n  displace: true\n")
        .replace("  kv_blocks: 100\n", "  kv_blocks: 100\n  watermark: 0.1\n  victim: largest_kv\n")
        .replace("chunked}", "chunked}\n  t: {kind: static}")
    )
    chunked, static = loaded(text).schedulers.values()
    assert (chunked.order.kind, chunked.displace, chunked.victim) == ("srpt", True, "largest_kv")
    assert (static.order.kind, static.displace, static.watermark) == ("fcfs", False, 0)
    assert static.kv_blocks == 100
    for key in NOT_FOR_STATIC:
        default = Server.__dataclass_fields__[key].default
        if key != "order":
            assert getattr(static, key) == default


# --- whose requests they are, and how long they wait --------------------------------------------


def sampled(lines):
    return loaded(GOOD.replace("step_time", f"{lines}step_time", 1)).workload


def test_labels_are_drawn_as_they_are_said():
    workload = sampled(
        "  predictor: {kind: lognormal, sigma: 0.5}\n"
        "  tenants: {big: 9, small: 1}\n"
        "  priorities: {0: 1, 5: 3}\n"
        "  deadline_after_s: 0.1\n"
        "  prefix: {groups: 3, tokens: 50}\n"
    )
    made = labels.Labels(
        predictor=predict.Lognormal(0.5),
        tenants={"big": 9.0, "small": 1.0},
        priorities={0: 1.0, 5: 3.0},
        deadline_after_ns=100_000_000,
        prefix=labels.Prefix(groups=3, tokens=50),
    )
    assert labels_of(workload) == made
    assert workload_of(workload).labels == made
    assert not labels_of(sampled("")).any()


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("{kind: exact}", predict.Exact()),
        ("{kind: lognormal, sigma: 0.5, bias: 2}", predict.Lognormal(0.5, 2.0)),
        ("{kind: classes, edges: [64, 256], accuracy: 0.8}", predict.Classes([64, 256], 0.8)),
    ],
)
def test_predictors_are_made_as_they_are_said(said, made):
    assert labels_of(sampled(f"  predictor: {said}\n")).predictor == made


def test_a_trace_and_declared_requests_may_have_labels_too():
    rows = "workload:\n  requests: [{arrival_s: 0, prompt_tokens: 1, output_tokens: 6}]\n"
    trace = "workload:\n  trace: {format: csv, path: x.csv}\n"
    for shape in (rows, trace):
        start, end = HEAD.index("workload"), HEAD.index("step_time")
        text = HEAD[:start] + shape + "  tenants: {a: 1}\n" + HEAD[end:] + GOOD[len(HEAD) :]
        assert labels_of(loaded(text).workload).tenants == {"a": 1.0}


def test_a_requests_own_times_are_the_decimals_that_were_written():
    rows = (
        "workload:\n  requests:\n"
        "  - {arrival_s: 0.1, prompt_tokens: 4, output_tokens: 6, tenant: 7, priority: 3,"
        " cancel_s: 0.3, cancel_after_tokens: 2, ttft_timeout_s: 1.5, timeout_s: 4.35}\n"
        "  - {arrival_s: 0.2, prompt_tokens: 4, output_tokens: 6}\n"
    )
    text = HEAD[: HEAD.index("workload")] + rows + HEAD[HEAD.index("step_time") :]
    trace = workload_of(loaded(text + GOOD[len(HEAD) :]).workload)
    columns = {name: column.tolist() for name, column in trace.attributes.items()}
    assert columns["cancel_ns"] == [300_000_000, None]
    assert columns["cancel_after_tokens"] == [2, None]
    assert columns["ttft_timeout_ns"] == [1_500_000_000, None]
    assert columns["timeout_ns"] == [4_350_000_000, None]


def test_clients_are_made_as_they_are_said():
    def made(said):
        return clients_of(loaded(f"{GOOD}clients: {said}\n").clients)

    assert clients_of(loaded(GOOD).clients) is None
    assert made("{timeout_s: 0.1}") == Clients(timeout_ns=100_000_000)
    assert made(
        "{ttft_timeout_s: 2, timeout_s: 3, retries: {attempts: 4, backoff_s: 0.5, factor: 2}}"
    ) == Clients(
        ttft_timeout_ns=2_000_000_000,
        timeout_ns=3_000_000_000,
        attempts=4,
        backoff_ns=500_000_000,
        factor=2.0,
    )


@pytest.mark.skipif(
    "by_priority" not in sim.Slo.__dataclass_fields__, reason="sim.Slo has no classes yet"
)
def test_targets_may_be_of_a_class_or_a_tenant():
    said = loaded(
        f"{GOOD}slo: {{ttft_s: 1, by_priority: {{0: {{ttft_s: 0.5}}, 5: {{e2e_s: 9}}}}, "
        "by_tenant: {big: {tpot_s: 0.1}}}\n"
    ).slo
    made = slo_of(said)
    assert made.ttft_s == 1
    assert {key: (one.ttft_s, one.e2e_s) for key, one in made.by_priority.items()} == {
        0: (0.5, None),
        5: (None, 9),
    }
    assert made.by_tenant["big"].tpot_s == 0.1
    assert slo_of(loaded(GOOD).slo) is None
    assert slo_of(loaded(f"{GOOD}slo: {{tpot_s: 1}}\n").slo).tpot_s == 1


# --- faults -------------------------------------------------------------------------------------

SERVER, OWN = "f.yaml:9: server.", "f.yaml:11: schedulers.s."


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        # the order
        (
            "order: priorty",
            "order: unknown order 'priorty'; did you mean 'priority'? known: fcfs, priority, "
            "shortest_prompt, shortest_predicted, srpt, longest_first, edf, fair, mlfq, random; "
            "or module:Class, a class of your own",
        ),
        (
            "order: 3",
            "order: must be a mapping with a kind, not 3; kinds: fcfs, priority, "
            "shortest_prompt, shortest_predicted, srpt, longest_first, edf, fair, mlfq, random",
        ),
        (
            "order: {kind: priority, aging: 3}",
            "order.aging: unknown key; did you mean 'aging_s'? known: kind, aging_s, quota, "
            "reserved",
        ),
        (
            "order: {kind: fair, aging_s: 3}",
            "order.aging_s: belongs to kind priority, not fair; remove it or change the kind",
        ),
        (
            "order: {kind: priority, aging_s: 3, quota: {1: 0.5}}",
            "order.aging_s: goes without quota: with age, classes no longer decide; remove one of "
            "them",
        ),
        (
            "order: {kind: priority, quota: {1: 0.7, 2: 0.4}}",
            "order.quota: the shares together are 1.1, more than 1; lower some",
        ),
        (
            "order: {kind: priority, quota: {high: 0.7}}",
            "order.quota.high: 'high' is no priority; give a whole number",
        ),
        (
            "order: {kind: priority, quota: {1: 2}}",
            "order.quota.1: must be at most 1, not 2",
        ),
        (
            "order: {kind: priority, reserved: {1: {slot: 2}}}",
            "order.reserved.1.slot: unknown key; did you mean 'slots'? known: slots, tokens",
        ),
        (
            "order: {kind: priority, reserved: {1: {slots: 16}}}",
            "order: reserves 16 slots of 16, which leaves other classes none; lower slots under "
            "reserved",
        ),
        (
            "order: {kind: priority, reserved: {1: {tokens: 2000}, 2: {tokens: 49}}}",
            "order: reserves 2049 tokens of 2048, which leaves other classes none; lower tokens "
            "under reserved",
        ),
        (
            "order: {kind: srpt, aging_tokens_per_s: 0.5}",
            "order.aging_tokens_per_s: must be a whole number >= 0, not 0.5",
        ),
        (
            "order: {kind: edf, token_s: 0.5}",
            "order.token_s: has no effect with shed: false; say shed: true, or remove it",
        ),
        (
            "order: {kind: fair, prompt_weight: 0, output_weight: 0}",
            "order.prompt_weight: is 0 like output_weight, so nothing would count as service; "
            "raise one",
        ),
        (
            "order: {kind: fair, weights: {a: 0}}",
            "order.weights.a: must be a number > 0, not 0",
        ),
        (
            "order: {kind: mlfq, starve_s: 0}",
            "order.starve_s: must be a number > 0, not 0",
        ),
        # what goes with what
        (
            "displace: true",
            "displace: true makes no sense under order fcfs; orders that displace: priority, "
            "shortest_prompt, shortest_predicted, srpt, edf, mlfq",
        ),
        (
            "skip_age: 3",
            "skip_age: is for head_of_line: skip (strict passes over nobody); say that, or remove "
            "it",
        ),
        (
            "decode_reserve: 2048",
            "decode_reserve: 2048 leaves prefills nothing of the 2048 max_batched_tokens; lower it",
        ),
        ("watermark: 1", "watermark: must be below 1, not 1"),
        ("watermark: -0.1", "watermark: must be a number >= 0, not -0.1"),
        (
            "reservation: pow2",
            "reservation: pow2 is for kv: reserve or contiguous; paged reserves nothing",
        ),
        (
            "preemption: swap",
            "preemption: swap needs to know how fast blocks move; give swap: {block_s: SECONDS}, "
            "or swap: {bytes_per_s: …, bytes_per_token: …}",
        ),
        (
            "swap: {block_s: 1}",
            "swap: recompute swaps nothing, yet there are swap settings; say preemption: swap, or "
            "remove swap",
        ),
        (
            "preemption: retain",
            "preemption: retain is for displaced requests (for lack of blocks nothing can be "
            "retained); say displace: true, or preemption: recompute",
        ),
        (
            "stop: eos",
            "stop: eos has no effect under synchronous scheduling, where every end is known "
            "before the next decision; say scheduling: asynchronous, or remove it",
        ),
        (
            "victim: last_admited",
            "victim: unknown choice 'last_admited'; did you mean 'last_admitted'? known: "
            "last_admitted, least_urgent, fewest_generated, largest_kv",
        ),
        (
            "enable_prefix_caching: true",
            "enable_prefix_caching: unknown key; it is called 'prefix_caching' here",
        ),
        (
            "host: {constant_ms: 1}",
            "host.constant_ms: unknown key; did you mean 'constant_s', in seconds? known: "
            "constant_s, per_sequence_s, per_token_s, per_admission_s",
        ),
        ("host: 0.001", "host: must be a mapping, not 0.001"),
    ],
)
def test_one_mistake_is_one_fault_wherever_it_stands(faults, said, fault):
    server = GOOD.replace("  kv_blocks", f"  {said}\n  kv_blocks")
    own = GOOD.replace("{kind: chunked}", "{kind: chunked, " + said + "}")
    assert faults(server) == [SERVER + fault]
    assert faults(own) == [OWN + fault]


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            "order: {kind: priority, quota: {1: 0.5}}, displace: true",
            "displace: true goes without the order's quota; remove one of them",
        ),
        (
            "kv: reserve, watermark: 0.1",
            "watermark: is for kv: paged; a reservation never grows; remove it, or say kv: paged",
        ),
        (
            "kv: reserve, prefix_caching: true",
            "prefix_caching: needs kv: paged, whose blocks can be shared; remove it, or say kv: "
            "paged",
        ),
        (
            "kv: reserve, reservation: max",
            "reservation: max needs max_context_tokens, the length that it reserves; give it",
        ),
        (
            "kv: reserve, preemption: swap, swap: {block_s: 1}",
            "preemption: swap is for kv: paged; under reserve nothing is preempted for lack of "
            "blocks",
        ),
        (
            "preemption: swap, swap: {block_s: 1}, scheduling: asynchronous",
            "preemption: swap needs scheduling: synchronous; say that, or preemption: recompute",
        ),
        (
            "preemption: swap, swap: {block_s: 1}, prefix_caching: true",
            "preemption: swap and prefix_caching cannot be combined; turn one of them off",
        ),
        (
            "preemption: swap, swap: {}",
            "swap.block_s: is missing; give block_s, or bytes_per_s and bytes_per_token",
        ),
        (
            "preemption: swap, swap: {block_s: 1, bytes_per_s: 3}",
            "swap.block_s: says how fast blocks move, as bytes_per_s does; give one of them",
        ),
        (
            "preemption: swap, swap: {bytes_per_s: 3 GB/s}",
            "swap.bytes_per_s: needs bytes_per_token too: a block moves in block_size × "
            "bytes_per_token / bytes_per_s",
        ),
        (
            "preemption: swap, swap: {bytes_per_s: 3 GB, bytes_per_token: 1}",
            "swap.bytes_per_s: must be bytes per second: a number >= 1, or a text such as 80 GB/s "
            "or 80 GiB/s, not '3 GB'",
        ),
        (
            "preemption: swap, swap: {block_s: 1, overlaps: true}",
            "swap.overlaps: unknown key; did you mean 'overlap'? known: block_s, bytes_per_s, "
            "bytes_per_token, host_blocks, overlap",
        ),
        (
            "order: srpt, displace: true, preemption: reject",
            "preemption: reject would end whoever an urgent request displaces; say preemption: "
            "recompute, or displace: false",
        ),
        (
            "order: srpt, displace: true, preemption: retain, kv: reserve",
            "preemption: retain needs kv: paged, not reserve; say that, or preemption: recompute",
        ),
        (
            "target_step_s: 0.1",
            "target_step_s: needs pass_order: decode_first, so that what decodes take is known; "
            "say that",
        ),
        (
            "max_partial_prefills: 0",
            "max_partial_prefills: must be a whole number >= 1, not 0",
        ),
        (
            "kv_blocks: many",
            "kv_blocks: must be a number of blocks, or a mapping with "
            "device_memory_bytes, weight_bytes, layers, kv_heads, head_size, not 'many'",
        ),
        (
            "kv_blocks: {device_memory_bytes: 80 gb, weight_bytes: 1 GB, layers: 32, kv_heads: 8, "
            "head_size: 128}",
            "kv_blocks.device_memory_bytes: must be bytes: a number >= 1, or a text such as 80 GB "
            "or 80 GiB, not '80 gb'",
        ),
        (
            "kv_blocks: {device_memory_bytes: 80 GB, weight_bytes: 1 GB, layers: 32, kv_head: 8, "
            "head_size: 128}",
            "kv_blocks.kv_head: unknown key; did you mean 'kv_heads'? known: "
            "device_memory_bytes, weight_bytes, layers, kv_heads, head_size, bytes_per_value, "
            "devices, utilization, activation_bytes",
        ),
        (
            "kv_blocks: {device_memory_bytes: 16 GB, weight_bytes: 16 GB, layers: 32, kv_heads: 8, "
            "head_size: 128}",
            "kv_blocks: leaves no room for a block of 16 tokens: 0.9 of 1 × 16000000000 bytes, "
            "less 16000000000 of weights and activations, is 1602097152 bytes short; raise "
            "devices, device_memory_bytes or utilization",
        ),
        (
            "kv_blocks: {device_memory_bytes: 900 TiB, weight_bytes: 0, layers: 1, kv_heads: 1, "
            "head_size: 1}",
            "kv_blocks: makes 13915694039040 blocks, which must be at most 2147483647, not "
            "13915694039040",
        ),
    ],
)
def test_what_does_not_go_together_is_one_fault(faults, said, fault):
    own = GOOD.replace("{kind: chunked}", "{kind: chunked, " + said + "}")
    assert faults(own) == [OWN + fault]


@pytest.mark.parametrize("key", [key for key in NOT_FOR_STATIC if key != "max_batched_tokens"])
def test_static_refuses_what_means_nothing_to_it(faults, key):
    values = {
        "watermark": 0.1,
        "prefix_caching": "true",
        "order": "srpt",
        "displace": "true",
        "skip_age": 3,
        "decode_reserve": 1,
        "victim": "largest_kv",
        "preemption": "reject",
        "swap": "{block_s: 1}",
        "scheduling": "asynchronous",
        "stop": "eos",
    }
    text = GOOD.replace("{kind: chunked}", f"{{kind: static, {key}: {values[key]}}}")
    assert faults(text) == [f"{OWN}{key}: {NOT_FOR_STATIC[key]}; remove it here"]


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            "first_pass: shortest",
            "first_pass: starts with the shortest prompt, not the longest: say padding: false "
            "beside it",
        ),
        (
            "first_pass: shortest, padding: false, compact: true",
            "first_pass: takes tokens in rows that all advance together; remove compact: true",
        ),
        (
            "generate_tokens: 9, compact: true",
            "generate_tokens: goes on computing finished rows, compact: true does not; remove one "
            "of them",
        ),
    ],
)
def test_rows_of_a_static_batch_that_cannot_be(faults, said, fault):
    assert faults(GOOD.replace("{kind: chunked}", f"{{kind: static, {said}}}")) == [OWN + fault]


def test_a_key_of_another_kind_is_told(faults):
    text = GOOD.replace("{kind: chunked}", "{kind: prefill_first, prefill_every: 2}")
    assert faults(text) == [
        f"{OWN}prefill_every: belongs to kind mixed, chunked, not prefill_first; remove it or "
        "change the kind"
    ]


def test_an_endless_backlog_cannot_be_sorted_and_nobody_waits_in_it(faults):
    text = GOOD.replace("kind: poisson, rate_per_s: 2, requests: 9", "kind: backlog")
    text += "horizon_s: 9\nclients: {timeout_s: 3}\n"
    text = text.replace("{kind: chunked}", "{kind: chunked, order: srpt}\n  t: {kind: mixed}")
    assert faults(text) == [
        f"{OWN}order: srpt needs an end to the queue, which an endless backlog lacks; say "
        "requests: N under workload.arrivals, or order: fcfs",
        "f.yaml:14: clients: wait since arrival, which is 0 for all requests of an endless "
        "backlog; say requests: N under workload.arrivals",
    ]


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            "{retries: {attempts: 2}}",
            "clients.retries: follow a time-out, and there is none; give ttft_timeout_s or "
            "timeout_s",
        ),
        (
            "{timeout_s: 3, retries: {}}",
            "clients.retries.attempts: is missing; give it a value",
        ),
        (
            "{timeout_s: 3, ttft_timeout_s: 4}",
            "clients.ttft_timeout_s: 4 comes after timeout_s (3), so it never applies; lower it",
        ),
        ("{timeout: 3}", "clients.timeout: unknown key; it is called 'timeout_s' here"),
        (
            "{timeout_s: 3, retries: {attempts: 1000, backoff_s: 1, factor: 2}}",
            "clients.retries: attempts: the pause before one of them lies beyond 292 years, the "
            "range of the nanosecond clock",
        ),
        ("{timeout_s: 0}", "clients.timeout_s: must be a number > 0, not 0"),
        ("3", "clients: must be a mapping, not 3"),
    ],
)
def test_clients_are_described_wrongly(faults, said, fault):
    assert faults(f"{GOOD}clients: {said}\n") == [f"f.yaml:12: {fault}"]


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            "predictor: {kind: lognormal}",
            "predictor.sigma: is missing; give it a value",
        ),
        (
            "predictor: {kind: classes, edges: [9, 3], accuracy: 1}",
            "predictor.edges: must increase; 3 comes after 9",
        ),
        (
            "predictor: {kind: classes, edges: [9], accuracy: 0.5}",
            "predictor.accuracy: is below 1 with one class, which cannot be confused; give 1, or "
            "more edges",
        ),
        (
            "predictor: exact",
            "predictor: must be a mapping with a kind, not 'exact'; kinds: exact, lognormal, "
            "classes",
        ),
        ("tenants: {}", "tenants: is empty; give at least 1"),
        ("tenants: {a: -1}", "tenants.a: must be a number > 0, not -1"),
        ("priorities: {a: 1}", "priorities.a: 'a' is no priority; give a whole number"),
        ("deadline_after_s: 0", "deadline_after_s: must be a number > 0, not 0"),
        ("prefix: {groups: 0, tokens: 1}", "prefix.groups: must be a whole number >= 1, not 0"),
    ],
)
def test_labels_are_described_wrongly(faults, said, fault):
    text = GOOD.replace("step_time", f"  {said}\nstep_time", 1)
    assert faults(text) == [f"f.yaml:6: workload.{fault}"]


def test_labels_alone_make_no_workload(faults):
    start, end = GOOD.index("  arrivals"), GOOD.index("step_time")
    (fault,) = faults(GOOD[:start] + "  tenants: {a: 1}\n" + GOOD[end:])
    assert fault == (
        "f.yaml:2: workload: is incomplete; give requests, or trace, or arrivals with "
        "prompt_tokens and output_tokens"
    )


# --- everything together ------------------------------------------------------------------------

some = st.none() | st.integers(1, 40)
order_said = st.one_of(
    st.sampled_from(["fcfs", "priority", "srpt", "longest_first", "edf", "fair", "mlfq", "random"]),
    st.builds(dict, kind=st.just("priority"), aging_s=st.floats(0.1, 9)),
    st.builds(dict, kind=st.just("priority"), quota=st.just({"1": 0.5})),
    st.builds(
        dict,
        kind=st.just("priority"),
        reserved=st.builds(dict, **{"0": st.builds(dict, slots=st.integers(0, 20))}),
    ),
    st.builds(dict, kind=st.just("edf"), shed=st.booleans(), token_s=st.floats(0, 1)),
)
server_said = st.fixed_dictionaries(
    {"slots": st.integers(1, 20)},
    optional={
        "max_batched_tokens": some,
        "kv": st.sampled_from(["paged", "reserve", "contiguous"]),
        "kv_blocks": some,
        "reservation": st.sampled_from(["exact", "pow2", "max"]),
        "watermark": st.floats(0, 0.99),
        "prefix_caching": st.booleans(),
        "max_context_tokens": some,
        "order": order_said,
        "displace": st.booleans(),
        "head_of_line": st.sampled_from(["strict", "skip"]),
        "skip_age": st.none() | st.integers(0, 3),
        "decode_reserve": st.integers(0, 50),
        "victim": st.sampled_from([None, "last_admitted", "least_urgent", "largest_kv"]),
        "preemption": st.sampled_from(["recompute", "swap", "retain", "reject"]),
        "swap": st.none() | st.just({"block_s": 0.5}),
        "host": st.none() | st.just({"constant_s": 1}),
        "scheduling": st.sampled_from(["synchronous", "asynchronous"]),
        "stop": st.sampled_from(["length", "eos"]),
    },
)
scheduler_said = st.one_of(
    st.just({"kind": "static"}),
    st.builds(dict, kind=st.just("mixed"), prefill_every=st.integers(1, 3)),
    st.just({"kind": "prefill_first"}),
    st.builds(
        dict,
        kind=st.just("chunked"),
        pass_order=st.sampled_from(["admission", "decode_first"]),
        target_step_s=st.none() | st.floats(0.1, 1),
    ),
)


@settings(max_examples=250, deadline=None)
@given(server_said, scheduler_said)
def test_what_the_spec_takes_the_simulation_takes_and_the_file_reads_back(server, own):
    """A fault at the scheduler itself is one that only the simulation's own checks found."""
    data = document_of(HEAD, "f.yaml").data()
    data |= {"server": server, "schedulers": {"s": own}}
    try:
        spec = spec_of(data)
    except SpecError as error:
        assert all(fault.path != "schedulers.s" for fault in error.faults), str(error)
        return
    server_of(spec.schedulers["s"], 1)
    policy_of(spec.schedulers["s"])
    again = spec_of(document_of(dump_yaml(resolve(spec)), "again.yaml").data())
    assert again == spec
    assert content_hash(again) == content_hash(spec)


def test_a_spec_of_before_has_the_hash_and_the_meaning_that_it_had():
    """Keys that came later are not hashed at their defaults, and need not be said."""
    spec = loaded(GOOD)
    data = resolve(spec)
    old = data["schedulers"]["s"]
    for key in type(spec.schedulers["s"]).later:
        del old[key]
    assert old["order"] == "fcfs"
    for key in spec.workload.later:
        del data["workload"][key]
    for key in spec.slo.later:
        del data["slo"][key]
    again = spec_of(data)
    assert again == spec
    assert content_hash(again) == content_hash(spec)
    changed = loaded(GOOD.replace("{kind: chunked}", "{kind: chunked, watermark: 0.01}"))
    assert content_hash(changed) != content_hash(spec)


def test_the_json_schema_has_one_order_for_all_and_every_kind_in_it():
    parts_ = json_schema()["$defs"]
    for name in ("Server", "ChunkedScheduler", "StaticScheduler"):
        assert parts_[name]["properties"]["order"]["$ref"] == "#/$defs/Order"
    words, own, *mappings = parts_["Order"]["anyOf"]
    assert len(words["enum"]) == len(ORDERS) == len(mappings) - 1
    assert "pattern" in own
    assert mappings[1]["properties"]["kind"]["const"] == "priority"
    assert mappings[-1]["additionalProperties"] is True
    names = [
        part["$ref"].rpartition("/")[2]
        for part in parts_["Server"]["properties"]["kv_blocks"]["anyOf"]
        if "$ref" in part
    ]
    assert names == ["KvMemory"]
    for name in ("Clients", "SwapSpace", "HostTime", "PrefixGroups", "ClassesPredictor"):
        assert parts_[name]["additionalProperties"] is False
