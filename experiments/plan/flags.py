"""The recommended server as flags of `vllm serve`, each with what it was derived from.

Names as of vLLM 0.11 to 0.33's V1 engine (docs.vllm.ai, Engine Arguments).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.plan.answer import Answer
from experiments.spec import Spec
from experiments.spec_order import order_kind
from experiments.spec_server import ChunkedScheduler


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, and where its value comes from; ``text`` empty: no flag says this."""

    text: str
    derived_from: str


def flags_of(spec: Spec, answer: Answer) -> list[Flag]:
    """How to start one replica like that; what vLLM has no flag for is said, too."""
    said = spec.schedulers[answer.scheduler]
    if not isinstance(said, ChunkedScheduler):
        what = f"kind: {said.kind}; vLLM's V1 engine schedules as kind: chunked does"
        return [Flag("", f"no flags: the scheduler is {what}")]
    found = [Flag(f"--max-num-seqs {said.slots}", f"slots: {said.slots}")]
    if answer.gpus > 1:
        found.append(Flag(f"--tensor-parallel-size {answer.gpus}", "GPUs per replica"))
    if said.max_batched_tokens is not None:
        budget = said.max_batched_tokens
        found.append(Flag(f"--max-num-batched-tokens {budget}", f"max_batched_tokens: {budget}"))
    found.append(Flag("--enable-chunked-prefill", "kind: chunked"))
    if isinstance(said.kv_blocks, int):
        blocks = f"kv_blocks: {said.kv_blocks} of {said.block_size} tokens"
        found.append(Flag(f"--block-size {said.block_size}", f"block_size: {said.block_size}"))
        found.append(Flag(f"--num-gpu-blocks-override {said.kv_blocks}", blocks))
    else:
        found.append(Flag("", "kv_blocks: unlimited; a GPU's memory is not, so check that it fits"))
    if said.max_context_tokens is not None:
        most = said.max_context_tokens
        found.append(Flag(f"--max-model-len {most}", f"max_context_tokens: {most}"))
    caching = "--enable-prefix-caching" if said.prefix_caching else "--no-enable-prefix-caching"
    found.append(Flag(caching, f"prefix_caching: {str(said.prefix_caching).lower()}"))
    apart = "--async-scheduling" if said.scheduling == "asynchronous" else "--no-async-scheduling"
    found.append(Flag(apart, f"scheduling: {said.scheduling}"))
    order = order_kind(said.order)
    if order in ("fcfs", "priority"):
        found.append(Flag(f"--scheduling-policy {order}", f"order: {order}"))
    else:
        found.append(Flag("", f"order: {order}: vLLM has fcfs and priority only"))
    if said.long_prefill_tokens is not None:
        tokens = said.long_prefill_tokens
        long = Flag(f"--long-prefill-token-threshold {tokens}", f"long_prefill_tokens: {tokens}")
        found.append(long)
    if said.max_partial_prefills is not None:
        most = said.max_partial_prefills
        found.append(Flag(f"--max-num-partial-prefills {most}", f"max_partial_prefills: {most}"))
    if said.preemption != "recompute":
        found.append(Flag("", f"preemption: {said.preemption}: V1 recomputes"))
    return found


def command_of(flags: list[Flag], answer: Answer) -> str:
    """The command that they make; empty where there are none."""
    texts = [flag.text for flag in flags if flag.text]
    return " ".join(["vllm serve", (answer.model or "MODEL"), *texts]) if texts else ""
