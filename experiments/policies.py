"""What there is to choose from, each with its options, its source and the engine it mirrors.

`itersim policies` prints this table; docs/policies.md says exactly what each does. Defaults are not
repeated here: they are those of the spec's models (`experiments.policy_list`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NONE = "none"
V0 = "vLLM 0.6.3 (V0 scheduler)"
V1 = "vLLM 0.33.0 (V1 scheduler)"
RECORDED = "decision for decision"
"""Recorded from the engine itself; `tests/sim/test_vllm_conformance.py` holds us to it."""
VLLM_PAPER = "vLLM (Kwon et al., SOSP '23)"


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy, or options that belong together. *keys*: what each key of the spec means; *also*:
    keys that it takes and other entries explain."""

    name: str
    says: str
    source: str
    mirrors: str = NONE
    keys: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one sort, and where a spec says them."""

    title: str
    where: str
    entries: tuple[Entry, ...]


SCHEDULERS = Group(
    "Schedulers",
    "schedulers.<name>: {kind: …}",
    (
        Entry(
            "static",
            "A batch runs as a unit until its longest answer ends; nobody joins.",
            "request-level scheduling as Orca (Yu et al., OSDI '22, §3) describes it",
            "NVIDIA FasterTransformer (as described there); compact: Vidur's faster_transformer",
            {
                "launch": "when_idle, or full_or_timeout: when full, or after timeout_s",
                "timeout_s": "seconds after the oldest waiting request arrived",
                "drain": "launch too when no arrival is due any more",
                "padding": "compute every row as long as the longest",
                "compact": "finished rows leave the computation, not the slots",
                "delivery": "clients get their answers at batch_end, or streamed",
                "first_pass": "prompts are computed whole, or as the shortest and then one by one",
                "generate_tokens": "tokens generated in every row at least, whatever was asked",
            },
        ),
        Entry(
            "mixed",
            "All decodes and whole prompts share an iteration (selective batching).",
            "Orca (Yu et al., OSDI '22, §4)",
            "Orca (no public code)",
            also=("prefill_every",),
        ),
        Entry(
            "prefill_first",
            "Whole prompts run alone as soon as they fit, while the decodes pause.",
            VLLM_PAPER + ", §4.5",
            f"{V0}, {RECORDED} with append_check: spare_block",
        ),
        Entry(
            "chunked",
            "Prompts are cut into chunks that share iterations with decodes under a token budget.",
            "Sarathi-Serve (Agrawal et al., OSDI '24, §4)",
            f"{V1}, {RECORDED}",
            also=(
                "pass_order",
                "long_prefill_tokens",
                "max_partial_prefills",
                "prefill_every",
                "target_step_s",
                "batch_wait_iterations",
                "batch_wait_tokens",
            ),
        ),
    ),
)

_AGING = "what a second of waiting is worth, in tokens of length; bounds the wait"
_PREDICTED = "a research topic; no engine ships it"

ORDERS = Group(
    "Queue order",
    "order: KIND, or order: {kind: KIND, …}",
    (
        Entry(
            "fcfs",
            "First come, first served; preempted requests go back to the front.",
            "the default of all engines",
            f"{V1}, {RECORDED}",
        ),
        Entry(
            "priority",
            "Lowest priority number first, ties by arrival; three ways against starvation.",
            "aging: Silberschatz et al., Operating System Concepts; quota: after deficit round "
            "robin (Shreedhar and Varghese, SIGCOMM '95)",
            f"{V1}, scheduling policy `priority`, {RECORDED}; the protections: none",
            {
                "aging_s": "a waiting request gains a level per so many seconds",
                "quota": "class → its share of admissions, at least, while it waits",
                "reserved": "class → slots and tokens of a decision's budget kept for it",
            },
        ),
        Entry(
            "shortest_prompt",
            "Shortest prompt first.",
            "shortest job first, by the part that is known",
            NONE,
            {"aging_tokens_per_s": _AGING},
        ),
        Entry(
            "shortest_predicted",
            "Shortest predicted answer first (SJF); without a prediction its limit counts.",
            "Qiu et al., arXiv 2404.08509; Fu et al., NeurIPS '24 (arXiv 2408.15792)",
            _PREDICTED,
            {"aging_tokens_per_s": _AGING},
        ),
        Entry(
            "srpt",
            "Fewest predicted tokens still to come first.",
            "Schrage, Operations Research 16 (1968); TRAIL (Shahout et al., arXiv 2410.01035)",
            _PREDICTED,
            {"aging_tokens_per_s": _AGING},
        ),
        Entry(
            "longest_first",
            "Longest predicted answer first: what not to do, for comparison.",
            "the opposite of shortest job first",
            "SGLang 0.5.3, schedule policy `lof`, which sorts by the limit",
        ),
        Entry(
            "edf",
            "Earliest deadline first; requests without one come last.",
            "Liu and Layland, JACM 20 (1973); shedding: Clockwork (Gujarati et al., OSDI '20)",
            NONE,
            {
                "shed": "reject a waiting request that cannot meet its deadline (hopeless)",
                "token_s": "seconds per predicted token still to come, for that judgement",
            },
        ),
        Entry(
            "fair",
            "The tenant that was served least goes first (virtual token counter).",
            "VTC (Sheng et al., OSDI '24, Algorithm 2)",
            "the paper's artifact, on S-LoRA",
            {
                "prompt_weight": "service per prompt token",
                "output_weight": "service per output token",
                "weights": "tenant → its weight; 1 where none is given",
            },
        ),
        Entry(
            "mlfq",
            "Levels with growing quanta; who was served much drops (skip-join feedback queue).",
            "FastServe (Wu et al., arXiv 2305.05920, §4)",
            "FastServe (research)",
            {
                "levels": "how many",
                "quantum_tokens": "service that level 0 gives; each level doubles it",
                "starve_s": "after so many seconds of waiting a request is at the top again",
            },
        ),
        Entry(
            "random",
            "A lottery: every request draws its place when it joins the queue.",
            "a baseline",
            "SGLang 0.5.3, schedule policy `random`, which draws anew at every decision",
            {"seed": "of the lottery; by default drawn from the run's seed"},
        ),
        Entry(
            "module:Class",
            "A class of your own, derived from sim.orders.Order; other keys go to its constructor.",
            "docs/write-a-policy.md",
            NONE,
            {"import_from": "a folder to look for the module in; by default the spec file's"},
        ),
    ),
)

QUEUE = Group(
    "Admission",
    "server.KEY or schedulers.<name>.KEY",
    (
        Entry(
            "displace",
            "An urgent request takes the place of the least urgent running one.",
            "preemptive priority scheduling",
            f"{V0} with policy `priority`, nearly; {V1} does not",
            {"displace": "true or false; not under fcfs, longest_first, fair, random"},
        ),
        Entry(
            "head_of_line",
            "Whether requests may pass one that does not fit.",
            "skip: backfilling (Lifka, JSSPP '95), without its reservation for the head",
            f"strict: {V1}",
            {
                "head_of_line": "strict: nobody passes; skip: some behind it are looked at",
                "skip_depth": "how many requests behind the first that did not fit",
                "skip_age": "a request that was passed over so often is not passed again",
            },
        ),
        Entry(
            "admit_needs",
            "How much of a prompt's memory must be free to admit it.",
            "an option of vLLM",
            f"{V1}, {RECORDED}: whole_prompt, and next_chunk without scheduler_reserve_full_isl",
            {"admit_needs": "whole_prompt, or next_chunk: the blocks of its first chunk"},
        ),
        Entry(
            "decode_reserve",
            "Tokens of the budget that prefills may not use.",
            "stall-free batching (Sarathi-Serve, §4) made a fixed reserve",
            NONE,
            {"decode_reserve": "tokens, below max_batched_tokens"},
        ),
    ),
)

PASS = Group(
    "The pass over running requests",
    "schedulers.<name>.KEY, kinds chunked and (prefill_every) mixed",
    (
        Entry(
            "pass_order",
            "Who asks for tokens first.",
            "admission: vLLM; decode_first: Sarathi-Serve, §4",
            f"admission: {V1}, {RECORDED}",
            {"pass_order": "admission (in order of admission), decode_first, prefill_first"},
        ),
        Entry(
            "long_prefill_tokens",
            "No chunk is longer, unless its request is alone.",
            "an option of vLLM",
            f"{V1}, long_prefill_token_threshold, {RECORDED}",
            {"long_prefill_tokens": "tokens"},
        ),
        Entry(
            "max_partial_prefills",
            "At most so many prompts are unfinished at once.",
            "an option of vLLM",
            "vLLM, max_num_partial_prefills (1 there by default)",
            {"max_partial_prefills": "requests"},
        ),
        Entry(
            "prefill_every",
            "Prompts run only in every k-th iteration, as long as anybody decodes.",
            "an option of LMDeploy",
            "LMDeploy's PyTorch engine, prefill_interval (16 there by default), nearly",
            {"prefill_every": "iterations"},
        ),
        Entry(
            "batch_wait_iterations",
            "Prompts wait for company: so many iterations, or until they have tokens enough.",
            "an option of TensorRT-LLM",
            "TensorRT-LLM's PyTorch engine, batch_wait_timeout_iters and (as a share of the "
            "budget) batch_wait_max_tokens_ratio, both 0 there by default",
            {
                "batch_wait_iterations": "iterations at most, as long as anybody decodes",
                "batch_wait_tokens": "of the decodes and the prompts that wait; then they run",
            },
        ),
        Entry(
            "target_step_s",
            "Chunks are cut so that an iteration with decodes lasts no longer: a bound on TPOT.",
            "Sarathi-Serve, §4.3 (a fixed budget); Niyama (Goel et al., arXiv 2503.22562): chunks "
            "by predicted time",
            NONE,
            {"target_step_s": "seconds, by the step-time curve; needs pass_order: decode_first"},
        ),
    ),
)

MEMORY = Group(
    "KV memory",
    "server.KEY or schedulers.<name>.KEY",
    (
        Entry(
            "kv",
            "How memory is given out: in blocks as tokens come, or for the whole answer at once.",
            f"paged: {VLLM_PAPER}, §4; reserve: Orca, §4; contiguous: what came before, ibid. §3.1",
            f"paged: {V1}, {RECORDED}",
            {"kv": "paged; reserve (prompt and limit); contiguous (the same in one segment)"},
        ),
        Entry(
            "kv_blocks",
            "How much there is: the engine's own count, or what follows from model and device.",
            "vLLM's gpu_memory_utilization; see experiments/kv_size.py",
            "vLLM, nearly: it measures the activations",
            {
                "kv_blocks": "blocks, or a mapping of what follows",
                "kv_blocks.device_memory_bytes": "of one device, such as 80 GB or 80 GiB",
                "kv_blocks.weight_bytes": "of all devices together",
                "kv_blocks.layers": "of the model",
                "kv_blocks.kv_heads": "of the model, per layer",
                "kv_blocks.head_size": "values per head",
                "kv_blocks.bytes_per_value": "2 for bf16 and fp16, 1 for fp8",
                "kv_blocks.devices": "over which the model is split",
                "kv_blocks.utilization": "the share of the memory that may be used",
                "kv_blocks.activation_bytes": "of a forward pass, of all devices together",
            },
        ),
        Entry(
            "reservation",
            "What reserve and contiguous take the answer's length to be.",
            f"Orca (Oracle, Pow2, Max) in {VLLM_PAPER}, §6.1",
            "the baselines of that paper",
            {"reservation": "exact: the limit; pow2: its next power of two; max: the context"},
        ),
        Entry(
            "watermark",
            "A share of the blocks that admissions leave free.",
            "an option of vLLM",
            f"{V0}: 0.01",
            {"watermark": "a share, at least 0 and below 1"},
        ),
        Entry(
            "prefix_caching",
            "Full blocks of equal prompts are kept, shared and adopted instead of computed.",
            f"{VLLM_PAPER}, §4.4; SGLang (Zheng et al., NeurIPS '24) by a tree",
            f"{V1}, enable_prefix_caching, {RECORDED}",
            {"prefix_caching": "true or false; kv: paged"},
        ),
        Entry(
            "append_check",
            "Whether a decode asks for a free block even when its last one has room.",
            "a habit of vLLM's V0",
            f"spare_block: {V0}, {RECORDED}",
            {"append_check": "exact, or spare_block"},
        ),
        Entry(
            "victim",
            "Who is preempted for lack of blocks.",
            f"{VLLM_PAPER}, §4.5: the latest",
            f"last_admitted, least_urgent: {V1}, {RECORDED}; fewest_generated: SGLang 0.5.3 "
            "(retract_decode), nearly",
            {
                "victim": "last_admitted, least_urgent (the default under priority), "
                "fewest_generated, largest_kv"
            },
        ),
        Entry(
            "preemption",
            "What becomes of a preempted request.",
            f"recompute, swap: {VLLM_PAPER}, §4.5",
            f"recompute: {V1}; swap: {V0}, both {RECORDED}; retain, reject: none",
            {
                "preemption": "recompute; swap its blocks to host memory; retain them (displaced "
                "requests only); reject it"
            },
        ),
        Entry(
            "swap",
            "How fast blocks move to host memory, and how many it holds.",
            f"{VLLM_PAPER}, §4.5, §7.3",
            f"{V0}, preemption_mode `swap`, {RECORDED} (moves took no time there)",
            {
                "swap": "a mapping; with preemption: swap",
                "swap.block_s": "seconds per block, each way",
                "swap.bytes_per_s": "or the link's bandwidth, such as 25 GB/s",
                "swap.bytes_per_token": "with it: KV bytes of a token",
                "swap.host_blocks": "blocks that host memory holds",
                "swap.overlap": "moves run beside the iteration instead of before it",
            },
        ),
    ),
)

HOST = Group(
    "Host time",
    "server.KEY or schedulers.<name>.KEY",
    (
        Entry(
            "host",
            "The host's work for every iteration, which the device waits for.",
            "Srivatsa et al., 'Can scheduling overhead dominate LLM inference performance?' (2024)",
            "any engine, once measured",
            {
                "host": "a mapping of seconds, added in this order",
                "host.constant_s": "per iteration",
                "host.per_sequence_s": "per decode and chunk",
                "host.per_token_s": "per token",
                "host.per_admission_s": "per request that is given a slot",
            },
        ),
        Entry(
            "front_end",
            "What lies between the clients and the queue: HTTP, tokenising, the way back.",
            "an addition of ours; measured runs count latencies from the client",
            "any server, once measured",
            {
                "front_end": "a mapping of seconds",
                "front_end.constant_s": "before a request joins the queue",
                "front_end.per_prompt_token_s": "and for each of its prompt's tokens",
                "front_end.delivery_s": "from a token's making to its delivery",
            },
        ),
        Entry(
            "cluster",
            "How many replicas there are, and which of them gets a request.",
            "docs/clusters.md; power of two choices: Mitzenmacher 2001; prefill and decode apart: "
            "DistServe (OSDI '24), Splitwise (ISCA '24)",
            "routers of vLLM's production stack, SGLang's router, llm-d",
            {
                "cluster": "a number of replicas, or a mapping",
                "cluster.replicas": "how many, or groups that differ",
                "cluster.router": "round_robin, random, session, least_outstanding, least_kv, "
                "power_of_two, shortest_expected_wait, prefix_aware",
                "cluster.max_outstanding": "of one replica; the others wait at the router",
                "cluster.queue_cap": "how many may wait there",
                "cluster.shed_after_s": "for how long",
                "cluster.start_s": "before a replica is ready",
                "cluster.outages": "when replicas fail, and for how long",
                "cluster.on_failure": "retry or fail what a failed replica had",
                "cluster.retries": "how often one request is sent again",
                "cluster.prefill": "replicas that compute prompts",
                "cluster.decode": "replicas that make the tokens after the first",
                "cluster.decode_router": "which of these",
                "cluster.link": "how long KV entries are on their way between them",
            },
        ),
        Entry(
            "scheduling",
            "Whether an iteration is decided after the one before it, or while that runs.",
            "NanoFlow (Zhu et al., arXiv 2408.12757); SGLang's overlap scheduler",
            f"asynchronous: {V1}, async_scheduling, {RECORDED}",
            {"scheduling": "synchronous, or asynchronous: host time hides, arrivals wait longer"},
        ),
        Entry(
            "stop",
            "When an asynchronous scheduler learns that an answer has ended.",
            "docs/policies.md, asynchronous scheduling",
            f"{V1}, async_scheduling: length for max_tokens, eos for a stop token",
            {"stop": "length: beforehand; eos: from the token, after a row computed for nothing"},
        ),
    ),
)

CLIENTS = Group(
    "Clients",
    "clients.KEY for all, workload.requests.N.KEY for one",
    (
        Entry(
            "cancel",
            "A client goes away; slot and blocks are free at the next boundary.",
            "aborted connections",
            "vLLM's and SGLang's abort of a disconnected client",
            {
                "requests.cancel_s": "at this moment of the clock",
                "requests.cancel_after_tokens": "once so many tokens were delivered",
            },
        ),
        Entry(
            "timeouts",
            "A client waits so long and no longer.",
            "HTTP clients",
            "a client's setting, not an engine's",
            {
                "clients.ttft_timeout_s": "seconds from arrival to the first token",
                "clients.timeout_s": "seconds from arrival to the last token",
                "requests.ttft_timeout_s": "the same for one request",
                "requests.timeout_s": "the same for one request",
            },
        ),
        Entry(
            "retries",
            "A timed-out request is sent again, after a growing pause.",
            "Google SRE Book, ch. 22: cascading failures",
            "a client's setting, not an engine's",
            {
                "clients.retries": "a mapping",
                "retries.attempts": "how often at most",
                "retries.backoff_s": "the pause before the first, in seconds",
                "retries.factor": "what each further pause is multiplied by",
            },
        ),
    ),
)

PREDICTORS = Group(
    "Predicted lengths",
    "workload.predictor: {kind: …}",
    (
        Entry("exact", "The true length.", "an oracle"),
        Entry(
            "lognormal",
            "The true length times a lognormal error.",
            "the error of regressions on the logarithm",
            NONE,
            {
                "sigma": "standard deviation of the error's logarithm",
                "bias": "a constant factor; 1: too long as often as too short",
            },
        ),
        Entry(
            "classes",
            "The upper edge of a length class, right with a given probability.",
            "S³ (Jin et al., NeurIPS '23)",
            "S³ (research)",
            {
                "edges": "the classes' upper edges, tokens",
                "accuracy": "how often the right class is predicted",
            },
        ),
    ),
)

GROUPS: tuple[Group, ...] = (SCHEDULERS, ORDERS, QUEUE, PASS, MEMORY, HOST, CLIENTS, PREDICTORS)
