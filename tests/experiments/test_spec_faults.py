"""Every mistake in a spec: the line, the path, what is wrong and what to do, all at once."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.faults import SpecError
from experiments.load import check_spec, load_spec, spec_of
from experiments.yaml_write import dump_yaml

GOOD = """\
name: lab
workload:
  arrivals: {kind: backlog}
  prompt_tokens: {kind: constant, value: 64}
  output_tokens:
    kind: choice
    values: [8, 16]
    weights: [1, 2]
step_time: {kind: affine, base_s: 1e-2, per_decode_s: 1e-3}
server:
  slots: 16
  kv: paged
  kv_blocks: 20000
schedulers:
  static: {kind: static}
  chunked:
    kind: chunked
    pass_order: admission
horizon_s: 3600
seeds: 5
"""


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """The faults of a text, as lines; the file is called f.yaml."""
    monkeypatch.chdir(tmp_path)

    def of(text, *overrides):
        (tmp_path / "f.yaml").write_text(text)
        try:
            check_spec("f.yaml", overrides)
        except SpecError as error:
            return list(map(str, error.faults))
        return []

    return of


@pytest.fixture
def edited(faults):
    """The faults of the good spec with one text replaced."""

    def of(old, new, *overrides):
        assert GOOD.count(old) == 1
        return faults(GOOD.replace(old, new), *overrides)

    return of


def test_the_good_spec_has_no_fault(faults):
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        # keys
        (
            "  slots: 16\n",
            "  slots: 16\n  slotz: 8\n",
            "f.yaml:12: server.slotz: unknown key; did you mean 'slots'?",
        ),
        (
            "  slots: 16\n",
            "  slots: 16\n  slots: 8\n",
            "f.yaml:12: server.slots: duplicate key, first on line 11; keep one",
        ),
        (
            "  slots: 16\n",
            "  slts: 16\n",
            "f.yaml:11: server.slts: unknown key; did you mean 'slots'?",
        ),
        (
            "  slots: 16\n",
            "",
            "f.yaml:10: server.slots: is missing; say how many requests the server runs at once",
        ),
        (
            "base_s: 1e-2",
            "bas_s: 1e-2",
            "f.yaml:9: step_time.bas_s: unknown key; did you mean 'base_s'?",
        ),
        (
            "name: lab\n",
            "",
            "f.yaml:1: name: is missing; give it a value",
        ),
        (
            "name: lab",
            "Name: lab",
            "f.yaml:1: Name: unknown key; did you mean 'name'?",
        ),
        (
            "seeds: 5",
            "slots: 5",
            "f.yaml:20: slots: belongs under server; move it there",
        ),
        (
            "seeds: 5",
            "pass_order: admission",
            "f.yaml:20: pass_order: belongs to a scheduler; move it under schedulers.<name>",
        ),
        (
            "seeds: 5",
            "arrivals: {kind: backlog}",
            "f.yaml:20: arrivals: belongs under workload; move it there",
        ),
        (
            "  kv: paged\n",
            "  pass_order: admission\n",
            "f.yaml:12: server.pass_order: belongs to a scheduler of kind chunked; move it under "
            "schedulers.<name>",
        ),
        (
            "  kv: paged\n",
            "  step_time: {kind: constant, step_s: 1}\n",
            "f.yaml:12: server.step_time: belongs to a scheduler; move it under schedulers.<name>",
        ),
        (
            "{kind: static}",
            "{kind: static, pass_order: admission}",
            "f.yaml:15: schedulers.static.pass_order: belongs to kind chunked, not static; "
            "remove it or change the kind",
        ),
        (
            "{kind: backlog}",
            "{kind: backlog, rate_per_s: 3}",
            "f.yaml:3: workload.arrivals.rate_per_s: belongs to kind constant, poisson, gamma, "
            "not backlog; remove it or change the kind",
        ),
        (
            "kind: constant, value: 64",
            "kind:constant, value: 64",
            "f.yaml:4: workload.prompt_tokens.kind: is missing: write a blank after the colon of "
            "'kind:constant'",
        ),
        # types
        (
            "slots: 16",
            "slots: true",
            "f.yaml:11: server.slots: must be a whole number >= 1, not true",
        ),
        (
            "slots: 16",
            "slots: 4.5",
            "f.yaml:11: server.slots: must be a whole number >= 1, not 4.5",
        ),
        (
            "slots: 16",
            "slots: 4.0",
            "f.yaml:11: server.slots: must be a whole number >= 1, not 4.0",
        ),
        (
            "slots: 16",
            "slots: '4'",
            "f.yaml:11: server.slots: must be a whole number >= 1, not '4'",
        ),
        (
            "slots: 16",
            "slots:",
            "f.yaml:11: server.slots: must be a whole number >= 1, not nothing",
        ),
        (
            "slots: 16",
            "slots: [4]",
            "f.yaml:11: server.slots: must be a whole number >= 1, not a list",
        ),
        (
            "slots: 16",
            "slots: 1_000",
            "f.yaml:11: server.slots: must be a whole number >= 1, not '1_000'",
        ),
        (
            "seeds: 5",
            "fast_forward: yes",
            "f.yaml:20: fast_forward: must be true or false, not 'yes'",
        ),
        (
            "name: lab",
            "name: 2024",
            "f.yaml:1: name: must be a text, not 2024: put it in quotes ('2024')",
        ),
        (
            "seeds: 5",
            "description: true",
            "f.yaml:20: description: must be a text, not true: put it in quotes ('true')",
        ),
        (
            "seeds: 5",
            "slo: 3",
            "f.yaml:20: slo: must be a mapping, not 3",
        ),
        (
            "    values: [8, 16]\n",
            "    values: 8\n",
            "f.yaml:7: workload.output_tokens.values: must be a list, not 8",
        ),
        (
            "{kind: backlog}",
            "backlog",
            "f.yaml:3: workload.arrivals: must be a mapping with a kind, not 'backlog'; kinds: "
            "backlog, constant, poisson, gamma, stages, closed_loop, trace",
        ),
        (
            "{kind: static}",
            "static",
            "f.yaml:15: schedulers.static: must be a mapping with a kind, not 'static'",
        ),
        # ranges
        ("slots: 16", "slots: 0", "f.yaml:11: server.slots: must be a whole number >= 1, not 0"),
        ("slots: 16", "slots: 70000", "f.yaml:11: server.slots: must be at most 65535, not 70000"),
        (
            "kv_blocks: 20000",
            "kv_blocks: 0",
            "f.yaml:13: server.kv_blocks: must be a whole number >= 1, not 0",
        ),
        (
            "kv_blocks: 20000",
            "block_size: -16",
            "f.yaml:13: server.block_size: must be a whole number >= 1, not -16",
        ),
        (
            "pass_order: admission",
            "long_prefill_tokens: 0",
            "f.yaml:18: schedulers.chunked.long_prefill_tokens: must be a whole number >= 1, not 0",
        ),
        (
            "base_s: 1e-2",
            "base_s: -1e-2",
            "f.yaml:9: step_time.base_s: must be a number >= 0, not -1e-2",
        ),
        ("horizon_s: 3600", "horizon_s: 0", "f.yaml:19: horizon_s: must be a number > 0, not 0"),
        (
            "horizon_s: 3600",
            "horizon_s: 1e10",
            "f.yaml:19: horizon_s: must be at most 9000000000, not 1e10",
        ),
        ("horizon_s: 3600", "horizon_s: .inf", "f.yaml:19: horizon_s: must be finite, not .inf"),
        (
            "horizon_s: 3600",
            "horizon_s: .nan",
            "f.yaml:19: horizon_s: .nan is not a number that anything can be set to; give a "
            "finite one",
        ),
        (
            "values: [8, 16]",
            "values: [8, 99999999999]",
            "f.yaml:7: workload.output_tokens.values.1: must be at most 2147483647, not "
            "99999999999",
        ),
        # choices
        (
            "{kind: static}",
            "{kind: static, order: no}",
            "f.yaml:15: schedulers.static.order: unknown order 'no'; known: fcfs, priority, "
            "shortest_prompt, shortest_predicted, srpt, longest_first, edf, fair, mlfq, random; or "
            "module:Class, a class of your own",
        ),
        (
            "{kind: static}",
            "{kind: static, order: priority}",
            "f.yaml:15: schedulers.static.order: static takes its batches in order of arrival; "
            "remove it here",
        ),
        (
            "kv: paged",
            "kv: pagged",
            "f.yaml:12: server.kv: unknown choice 'pagged'; did you mean 'paged'? known: paged, "
            "reserve, contiguous",
        ),
        (
            "kind: chunked",
            "kind: chunkd",
            "f.yaml:17: schedulers.chunked.kind: unknown kind 'chunkd'; did you mean 'chunked'? "
            "known: static, mixed, prefill_first, chunked",
        ),
        (
            "{kind: static}",
            "{launch: when_idle}",
            "f.yaml:15: schedulers.static.kind: is missing; kinds: static, mixed, prefill_first, "
            "chunked",
        ),
        (
            "kind: affine",
            "kind: roofline",
            "f.yaml:9: step_time.kind: unknown kind 'roofline'; known: constant, affine, knee, "
            "table",
        ),
        # names
        (
            "name: lab",
            "name: ../../evil",
            "f.yaml:1: name: '../../evil' cannot name a folder: use letters, digits, '.', '_' and "
            "'-', with a letter or digit first and no '.' last",
        ),
        (
            "name: lab",
            "name: .hidden",
            "f.yaml:1: name: '.hidden' cannot name a folder: use letters, digits, '.', '_' and "
            "'-', with a letter or digit first and no '.' last",
        ),
        (
            "name: lab",
            "name: lab.",
            "f.yaml:1: name: 'lab.' cannot name a folder: use letters, digits, '.', '_' and "
            "'-', with a letter or digit first and no '.' last",
        ),
        (
            "name: lab",
            "name: nul.txt",
            "f.yaml:1: name: 'nul.txt' is a device's name on Windows; choose another",
        ),
        (
            "name: lab",
            f"name: {'x' * 101}",
            "f.yaml:1: name: has 101 characters; use at most 100",
        ),
        (
            "  static: {",
            "  a/b: {",
            "f.yaml:15: schedulers.a/b: 'a/b' cannot name a folder: use letters, digits, '.', '_' "
            "and '-', with a letter or digit first and no '.' last",
        ),
        (
            "  static: {",
            "  Chunked: {",
            "f.yaml:16: schedulers.chunked: differs from Chunked in case only, one folder on some "
            "systems; rename it",
        ),
        # seeds
        (
            "seeds: 5",
            "seeds: 0",
            "f.yaml:20: seeds: must be a whole number >= 1, not 0, or a list of seeds",
        ),
        (
            "seeds: 5",
            "seeds: []",
            "f.yaml:20: seeds: is empty; give at least one seed, or how many",
        ),
        (
            "seeds: 5",
            "seeds: [1, 2, 1]",
            "f.yaml:20: seeds.2: 1 is given twice; remove one",
        ),
        (
            "seeds: 5",
            "seeds: [1, -2]",
            "f.yaml:20: seeds.1: must be a whole number >= 0, not -2",
        ),
        (
            "seeds: 5",
            "seeds: 1000000",
            "f.yaml:20: seeds: must be at most 10000, not 1000000, or a list of seeds",
        ),
        # tags
        (
            "seeds: 5",
            "seeds: !!python/object/apply:os.getcwd []",
            "f.yaml:20: seeds: the tag !!python/object/apply:os.getcwd is not allowed; write the "
            "plain value",
        ),
    ],
)
def test_one_mistake_is_one_fault(edited, old, new, fault):
    assert edited(old, new) == [fault]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "  slots: 16\n",
            "  slots: 4096\n",
            "f.yaml:11: server.slots: slots (4096) exceed max_batched_tokens (2048), so not every "
            "running request could decode in one iteration of kind chunked; lower slots or raise "
            "max_batched_tokens",
        ),
        (
            "    pass_order: admission\n",
            "    max_batched_tokens: 8\n",
            "f.yaml:18: schedulers.chunked.max_batched_tokens: slots (16) exceed "
            "max_batched_tokens (8), so not every running request could decode in one iteration "
            "of kind chunked; lower slots or raise max_batched_tokens",
        ),
        (
            "{kind: static}",
            "{kind: static, launch: full_or_timeout, drain: false}",
            "f.yaml:15: schedulers.static.drain: is false without a finite timeout_s: a batch that "
            "never fills would never launch; give timeout_s, or drain: true",
        ),
        (
            "{kind: static}",
            "{kind: static, launch: full_or_timeout, drain: false, timeout_s: .inf}",
            "f.yaml:15: schedulers.static.drain: is false without a finite timeout_s: a batch that "
            "never fills would never launch; give timeout_s, or drain: true",
        ),
        (
            "{kind: static}",
            "{kind: static, timeout_s: 2}",
            "f.yaml:15: schedulers.static.timeout_s: has no effect with launch: when_idle; say "
            "launch: full_or_timeout, or remove it",
        ),
        (
            "{kind: static}",
            "{kind: static, max_batched_tokens: 512}",
            "f.yaml:15: schedulers.static.max_batched_tokens: static has no token budget; remove "
            "it here",
        ),
        (
            "  kv: paged\n  kv_blocks: 20000\n",
            "  kv: reserve\n",
            "f.yaml:12: server.kv: reserve needs kv_blocks: say how many blocks of 16 tokens there "
            "are, or kv: paged",
        ),
        (
            "  kv_blocks: 20000\nschedulers:\n  static: {kind: static}",
            "schedulers:\n  static: {kind: static, kv: contiguous}",
            "f.yaml:14: schedulers.static.kv: contiguous needs kv_blocks: say how many blocks of "
            "16 tokens there are, or kv: paged",
        ),
        (
            "horizon_s: 3600\n",
            "",
            "f.yaml:3: workload.arrivals: backlog arrivals without requests never end; say "
            "requests: N here, or horizon_s for the experiment",
        ),
        (
            "{kind: backlog}",
            "{kind: poisson, rate_per_s: .inf}",
            "f.yaml:3: workload.arrivals.rate_per_s: is .inf without requests; say how many "
            "requests, or kind: backlog",
        ),
        (
            "{kind: backlog}",
            "{kind: stages, stages: [{rate_per_s: 0, duration_s: 1}]}",
            "f.yaml:3: workload.arrivals.stages: have no rate above 0, so nothing would ever "
            "arrive; raise one",
        ),
        (
            "weights: [1, 2]",
            "weights: [1, 2, 3]",
            "f.yaml:8: workload.output_tokens.weights: has 3 weights for 2 values; give one for "
            "each",
        ),
        (
            "weights: [1, 2]",
            "weights: [0, 0]",
            "f.yaml:8: workload.output_tokens.weights: are all 0; at least one must be above",
        ),
        (
            "{kind: constant, value: 64}",
            "{kind: uniform, low: 9, high: 3}",
            "f.yaml:4: workload.prompt_tokens.high: 3 is below low (9)",
        ),
        (
            "{kind: constant, value: 64}",
            "{kind: lognormal, mean: 9, median: 3, cv: 1}",
            "f.yaml:4: workload.prompt_tokens.mean: mean and median say the same thing twice; give "
            "one of them",
        ),
        (
            "{kind: constant, value: 64}",
            "{kind: lognormal, mean: 9}",
            "f.yaml:4: workload.prompt_tokens.cv: is missing; give cv or sigma",
        ),
        (
            "{kind: constant, value: 64}",
            "{kind: quantiles, table: {p: [0, 1], value: [8, 4]}}",
            "f.yaml:4: workload.prompt_tokens.table.value: falls at place 1: 4 after 8; quantiles "
            "never fall",
        ),
        (
            "{kind: constant, value: 64}",
            "{kind: quantiles, table: {p: [0, 0.5], value: [4, 8]}}",
            "f.yaml:4: workload.prompt_tokens.table.p: must rise from 0 to 1; the first point is "
            "the least value, the last the largest",
        ),
        (
            "{kind: constant, value: 64}",
            "{kind: quantiles, table: 3}",
            "f.yaml:4: workload.prompt_tokens.table: must be a table's name, or points {p: [...], "
            "value: [...]}, not 3",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: affine}",
            "f.yaml:9: step_time.base_s: is 0 like every other term, so steps would take no time; "
            "raise one",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {batch: [1, 8], step_s: [0.02, 0.01]}}",
            "f.yaml:9: step_time.decode.step_s: falls to 0.01 at batch 8; more work never takes "
            "less time: smooth the measurements first",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {batch: [1, 8], context: [1, 2], step_s: [[1, 2], [3]]}}",
            "f.yaml:9: step_time.decode.step_s: row 1 has 1 entries for 2 of context",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {batch: [8, 1], step_s: [1, 2]}}",
            "f.yaml:9: step_time.decode.batch: must increase; 1 comes after 8",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {x: [8, 1], step_s: [1, 2]}}",
            "f.yaml:9: step_time.decode.x: unknown key; it is called 'batch' here",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table}",
            "f.yaml:9: step_time.decode: is missing; a table needs at least one of dense, decode, "
            "prefill",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {batch: [1, 8], step_s: [1, 2]}, "
            "mixed_decode: {batch: [1, 9], step_s: [1, 2]}}",
            "f.yaml:9: step_time.mixed_decode: needs the table decode, and its batch and context; "
            "give both the same axes",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {batch: [1, 8], step_s: [1, 2]}, "
            "mixed_decode: {batch: [1, 8], step_s: [1, 1.5]}}",
            "f.yaml:9: step_time.mixed_decode: is below decode somewhere; more work never takes "
            "less time: raise it there",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}",
            "{kind: table, decode: {batch: [1, 8], step_s: [1, 2]}, mixed: max, "
            "mixed_decode: {batch: [1, 8], step_s: [1, 2]}}",
            "f.yaml:9: step_time.mixed_decode: goes with mixed: sum, not max; remove one of them",
        ),
        (
            "  slots: 16\n",
            "  slots: 16\n  front_end: {constant_s: 0.01}\n",
            "f.yaml:12: server.front_end: needs arrivals that are known beforehand, not backlog; "
            "remove it",
        ),
        (
            "per_decode_s: 1e-3}",
            "per_decode_s: 1e-3, graph_batches: {sizes: [1, 4, 4]}}",
            "f.yaml:9: step_time.graph_batches.sizes: must increase; 4 comes after 4",
        ),
        (
            "per_decode_s: 1e-3}",
            "per_decode_s: 1e-3, range: {decodes: [8, 1]}}",
            "f.yaml:9: step_time.range.decodes: must be [from, to], but 1 is below 8",
        ),
        (
            "per_decode_s: 1e-3}",
            "per_decode_s: 1e-3, range: {decodes: [8]}}",
            "f.yaml:9: step_time.range.decodes: must be [from, to], not a list",
        ),
        (
            "{kind: affine, base_s: 1e-2, per_decode_s: 1e-3}\n",
            "{}\n",
            "f.yaml:9: step_time.kind: is missing; kinds: constant, affine, knee, table, or "
            "profile: NAME",
        ),
        (
            "step_time: {kind: affine, base_s: 1e-2, per_decode_s: 1e-3}\n",
            "",
            "f.yaml:1: step_time: is missing; give a profile, or a curve such as {kind: constant, "
            "step_s: 1}",
        ),
    ],
)
def test_values_that_do_not_go_together_are_a_fault(edited, old, new, fault):
    assert edited(old, new) == [fault]


REQUESTS = """\
name: declared
workload:
  requests:
    - {arrival_s: 0, prompt_tokens: 1, output_tokens: 6, label: R1}
    - {arrival_s: 0.1, prompt_tokens: 1, output_tokens: 2}
step_time: {kind: constant, step_s: 1}
server: {slots: 4}
schedulers:
  static: {kind: static}
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "output_tokens: 2}",
            "output_tokens: 0}",
            "f.yaml:5: workload.requests.1.output_tokens: must be a whole number >= 1, not 0",
        ),
        (
            "output_tokens: 2}",
            "output_tokens: 2, max_tokens: 1}",
            "f.yaml:5: workload.requests.1.max_tokens: 1 is below the 2 output tokens; raise it",
        ),
        (
            "output_tokens: 2}",
            "output_tokens: 2, prefix_tokens: 3}",
            "f.yaml:5: workload.requests.1.prefix_tokens: 3 is more than the 1 prompt tokens; "
            "lower it",
        ),
        (
            "output_tokens: 2}",
            "output_tokens: 2, cancel_s: 0.05}",
            "f.yaml:5: workload.requests.1.cancel_s: 0.05 is before the arrival (0.1); it is a "
            "moment on the clock, not a time since the arrival",
        ),
        (
            "output_tokens: 2}",
            "output_tokens: 2, timeout_s: 0}",
            "f.yaml:5: workload.requests.1.timeout_s: must be a number > 0, not 0",
        ),
        (
            "arrival_s: 0.1, ",
            "",
            "f.yaml:5: workload.requests.1.arrival_s: is missing; give it a value",
        ),
        (
            "arrival_s: 0.1",
            "arival_s: 0.1",
            "f.yaml:5: workload.requests.1.arival_s: unknown key; did you mean 'arrival_s'?",
        ),
        (
            "arrival_s: 0.1",
            "arrival_s: -0.1",
            "f.yaml:5: workload.requests.1.arrival_s: must be a number >= 0, not -0.1",
        ),
        (
            "workload:\n",
            "workload:\n  arrivals: {kind: backlog, requests: 3}\n",
            "f.yaml:2: workload: has arrivals, requests; give exactly one of requests, or trace, "
            "or arrivals with prompt_tokens and output_tokens",
        ),
        (
            "  requests:",
            "  reqests:",
            "f.yaml:3: workload.reqests: unknown key; did you mean 'requests'? known: requests, "
            "predictor, tenants, priorities, deadline_after_s, prefix",
        ),
    ],
)
def test_declared_requests_are_checked_row_by_row(faults, old, new, fault):
    assert REQUESTS.count(old) == 1
    assert faults(REQUESTS.replace(old, new)) == [fault]


def test_a_workload_without_a_shape_says_which_there_are(faults):
    start = "f.yaml:2: workload: must be a mapping with requests, or trace, or arrivals with "
    text = REQUESTS[: REQUESTS.index("  requests")] + REQUESTS[REQUESTS.index("step_time") :]
    assert faults(text) == [start + "prompt_tokens and output_tokens, not nothing"]


def test_all_faults_come_at_once_in_the_order_of_the_file(faults):
    text = """\
nam: lab
workload:
  arrivals: {kind: poison, rate_per_s: 5.5}
  prompt_tokens: {kind: constant, value: 64, valeu: 3}
  output_tokens: {kind: choice, values: [8, 0, 32], weights: [1, .nan]}
step_time: {kind: affine, base_s: -1, per_decod_s: 1e-3}
server:
  slots: true
  kv: reserve
  slotz: 3
schedulers:
  static: {kind: static, launch: full_or_timeout, drain: false, pass_order: admission}
  mixed: {kind: mixed, order: lifo}
  ../evil: {kind: chunkd}
horizon_s: .inf
server: 3
x: !!python/name:os.system
"""
    found = faults(text, "seeds=[1, 1]", "schedulers.mixed.skip_depth=-1")
    assert [fault.split(": ")[:2] for fault in found] == [
        ["f.yaml:1", "nam"],
        ["f.yaml:3", "workload.arrivals.kind"],
        ["f.yaml:4", "workload.prompt_tokens.valeu"],
        ["f.yaml:5", "workload.output_tokens.weights.1"],
        ["f.yaml:5", "workload.output_tokens.values.1"],
        ["f.yaml:6", "step_time.base_s"],
        ["f.yaml:6", "step_time.per_decod_s"],
        ["f.yaml:8", "server.slots"],
        ["f.yaml:9", "server.kv"],
        ["f.yaml:10", "server.slotz"],
        ["f.yaml:12", "schedulers.static.pass_order"],
        ["f.yaml:12", "schedulers.static.drain"],
        ["f.yaml:13", "schedulers.mixed.order"],
        ["f.yaml:14", "schedulers.../evil"],
        ["f.yaml:14", "schedulers.../evil.kind"],
        ["f.yaml:15", "horizon_s"],
        ["f.yaml:16", "server"],
        ["f.yaml:17", "x"],
        ["--set seeds=[1, 1]", "seeds.1"],
        ["--set schedulers.mixed.skip_depth=-1", "schedulers.mixed.skip_depth"],
    ]


def test_a_trace_that_is_not_there_is_a_note_for_check_and_a_fault_for_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = REQUESTS.replace(
        REQUESTS[REQUESTS.index("  requests") : REQUESTS.index("step_time")],
        "  trace: {format: azure}\n",
    )
    (tmp_path / "f.yaml").write_text(text)
    note = (
        "f.yaml:3: workload.trace.path: names no file yet; give it with --set "
        "workload.trace.path=FILE"
    )
    assert [str(n) for n in check_spec("f.yaml")[1]] == [note]
    with pytest.raises(SpecError) as caught:
        load_spec("f.yaml")
    assert str(caught.value) == note
    missing = "--set workload.trace.path=x.csv"
    _, notes = check_spec("f.yaml", ["workload.trace.path=x.csv"])
    assert [str(n) for n in notes] == [
        f"{missing}: workload.trace.path: no such file yet: {tmp_path / 'x.csv'}; "
        "put it there, or say --set workload.trace.path=FILE"
    ]
    (tmp_path / "x.csv").touch()
    assert load_spec("f.yaml", ["workload.trace.path=x.csv"]).workload.trace.path == str(
        tmp_path / "x.csv"
    )


@pytest.mark.parametrize(
    ("trace", "fault"),
    [
        (
            "{format: azur, path: x}",
            "f.yaml:3: workload.trace.format: unknown choice 'azur'; did you mean 'azure'? known: "
            "azure, burstgpt, mooncake, bailian, vidur, llmservingsim, aiperf, guidellm, csv, "
            "jsonl, parquet",
        ),
        (
            "{format: azure, path: x, columns: {prompt_tokens: p}}",
            "f.yaml:3: workload.trace.columns: format azure names its own columns; a map is for "
            "csv, jsonl, parquet",
        ),
        (
            "{format: azure, speed: 0}",
            "f.yaml:3: workload.trace.speed: must be a number > 0, not 0",
        ),
        (
            "{format: azure, path: 3}",
            "f.yaml:3: workload.trace.path: must be a text, not 3: put it in quotes ('3')",
        ),
        ("{format: azure, path: ''}", "f.yaml:3: workload.trace.path: must not be empty"),
    ],
)
def test_a_trace_is_described_wrongly(faults, trace, fault):
    start, end = REQUESTS.index("  requests"), REQUESTS.index("step_time")
    assert faults(REQUESTS[:start] + f"  trace: {trace}\n" + REQUESTS[end:]) == [fault]


words = st.sampled_from(
    [
        "kind",
        "slots",
        "static",
        "poisson",
        "trace",
        "path",
        "requests",
        "table",
        "profile",
        "x",
        "no",
        "server",
        "batch",
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
BASE = {
    "name": "lab",
    "workload": {
        "arrivals": {
            "kind": "closed_loop",
            "clients": 3,
            "think_time_s": {"kind": "exponential", "mean": 2},
        },
        "prompt_tokens": {"kind": "quantiles", "table": {"p": [0, 1], "value": [1, 5]}},
        "output_tokens": {"kind": "lognormal", "mean": 5, "cv": 1},
        "predictor": {"kind": "classes", "edges": [3, 9], "accuracy": 0.5},
        "tenants": {"a": 1},
        "priorities": {"0": 1, "5": 2},
        "prefix": {"groups": 3, "tokens": 2},
    },
    "step_time": {
        "kind": "table",
        "decode": {"batch": [1, 8], "context": [1, 9], "step_s": [[1, 2], [3, 4]]},
        "graph_batches": {"sizes": [1, 2]},
        "range": {"tokens": [1, 5]},
    },
    "server": {
        "slots": 3,
        "kv": "paged",
        "order": {"kind": "priority", "reserved": {"0": {"slots": 1}}, "quota": {"5": 0.5}},
        "host": {"constant_s": 1},
    },
    "schedulers": {
        "a": {"kind": "static", "launch": "full_or_timeout", "timeout_s": 3},
        "b": {"kind": "chunked", "step_time": {"kind": "constant", "step_s": 1}},
        "c": {
            "kind": "mixed",
            "kv_blocks": {
                "device_memory_bytes": "80 GB",
                "weight_bytes": 0,
                "layers": 32,
                "kv_heads": 8,
                "head_size": 128,
            },
            "preemption": "swap",
            "swap": {"bytes_per_s": "25 GB/s", "bytes_per_token": 131072},
            "order": {"kind": "fair", "weights": {"a": 2}},
        },
        "d": {"kind": "mixed", "order": {"kind": "sim.orders:Srpt", "aging_tokens_per_s": 3}},
    },
    "horizon_s": 5,
    "seeds": [3, 4],
    "slo": {"ttft_s": 1, "by_priority": {"0": {"e2e_s": 3}}, "by_tenant": {"a": {"tpot_s": 1}}},
    "clients": {"timeout_s": 5, "retries": {"attempts": 2}},
}


def places(data, path=()):
    yield path
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from places(data[key], (*path, key))


PLACES = [path for path in places(BASE) if path]


def test_the_base_of_the_mutations_is_good():
    assert spec_of(BASE).name == "lab"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), anything, words | st.none()), min_size=1, max_size=3
    )
)
def test_whatever_is_changed_only_a_spec_error_comes_out(changes):
    data = copy.deepcopy(BASE)
    for path, new, key in changes:
        node = data
        try:
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = new
            if key is not None:
                node[key] = new
        except (KeyError, IndexError, TypeError):
            continue
    try:
        spec_of(data)
    except SpecError as error:
        for fault in error.faults:
            assert str(fault) == " ".join(str(fault).split(" "))
            assert "\n" not in str(fault)
            assert "refused" not in str(fault)
            assert fault.message


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(PLACES), anything.filter(lambda value: value == value))
def test_a_fault_stands_on_a_line_of_the_file(tmp_path_factory, path, new):
    data = copy.deepcopy(BASE)
    node = data
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = new
    file = tmp_path_factory.mktemp("spec") / "f.yaml"
    file.write_text(dump_yaml(data), encoding="utf-8")
    try:
        check_spec(file)
    except SpecError as error:
        for fault in error.faults:
            assert fault.line is not None
            assert 1 <= fault.line <= len(file.read_text().splitlines())
