"""What a deployed server has, by the names of its GPU and model: KV memory, and its profile.

What an engine keeps for itself on each GPU: AIConfigurator 0.12, ``systems/*.yaml`` (other_mem and
nccl_mem).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from calibrate.architecture import PRESETS, Architecture
from calibrate.deployments import Deployment
from calibrate.faults import CalibrationError
from calibrate.gpus import GPUS
from calibrate.profile import Profile

RESERVED_BYTES = (3584 + 392) << 20
"""Of each GPU: activations, workspaces, graphs, and the buffers of collective operations."""

SHARE = 0.9
"""Of the memory: vLLM's gpu_memory_utilization, TensorRT-LLM's free_gpu_memory_fraction (the
defaults of both, and of InferenceMAX's scripts)."""

OF_WHAT_IS_LEFT = ("trtllm",)
"""Engines whose share is one of what the weights leave; of the others it is one of all memory."""

SHAPES: dict[str, Architecture] = {
    **PRESETS,
    "llama-3.1-70b": Architecture(
        name="llama-3.1-70b",
        vocab=128_256,
        hidden=8192,
        layers=80,
        heads=64,
        kv_heads=8,
        head_dim=128,
        intermediate=28_672,
        max_context=131_072,
    ),
    "llama-3.1-405b": Architecture(
        name="llama-3.1-405b",
        vocab=128_256,
        hidden=16_384,
        layers=126,
        heads=128,
        kv_heads=8,
        head_dim=128,
        intermediate=53_248,
        max_context=131_072,
    ),
    "qwen3-32b": Architecture(
        name="qwen3-32b",
        vocab=151_936,
        hidden=5120,
        layers=64,
        heads=64,
        kv_heads=8,
        head_dim=128,
        intermediate=25_600,
        max_context=40_960,
        qk_norm=True,
    ),
}
"""Sizes of published models (their config.json), by `short_name`."""

BITS = {"bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0, "fp4": 4.5, "int4": 4.5}
"""Of a value; in those of four bits a group of 16 shares a scale of eight."""
OTHER_WORDS = {
    "bfloat16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}

VARIANTS = {"meta", "instruct", "it", "chat", "hf", *BITS, *OTHER_WORDS}
"""Words of a model's name that say nothing about its shape."""


def short_name(model: str) -> str:
    """What variants of a model share: ``nvidia/Llama-3.1-70B-Instruct-FP8`` is llama-3.1-70b."""
    words = model.rpartition("/")[2].lower().split("-")
    return "-".join(word for word in words if word not in VARIANTS)


def precision_of(word: str | None) -> str | None:
    """fp8 for ``fp8_static`` and the like; None where it says nothing known."""
    for part in re.split(r"[^a-z0-9]+", (word or "").lower()):
        part = OTHER_WORDS.get(part, part)
        if part in BITS:
            return part
    return None


@dataclass(frozen=True, slots=True)
class Precision:
    """Of weights, and of the KV cache (bf16 where a profile does not say)."""

    weights: str | None
    kv: str


def precision_of_profile(profile: Profile) -> Precision:
    """A profile says it as in ``fp8, KV bf16``."""
    weights, _, rest = (profile.precision or "").partition(",")
    return Precision(precision_of(weights), precision_of(rest) or "bf16")


def kv_blocks(
    deployment: Deployment, shape: Architecture, precision: Precision, block_size: int
) -> int | None:
    """The KV blocks of such a server; None for a GPU whose memory is not known here.

    Weights are as the deployment has them, the KV cache as the step times were measured with it
    (*precision*). Tables of tokens stay in bf16; KV heads are repeated where there are fewer than
    devices.
    """
    gpu = GPUS.get(deployment.system)
    if gpu is None:
        return None
    devices = deployment.tensor_parallel
    bits = BITS[precision_of(deployment.precision) or precision.weights or "bf16"]
    layers = shape.layers * shape.layer_parameters
    weights = layers * bits / 8 + (shape.parameters - layers) * 2
    kept = weights + RESERVED_BYTES * devices
    if deployment.engine in OF_WHAT_IS_LEFT:
        room = SHARE * (gpu.memory_bytes * devices - kept)
    else:
        room = SHARE * gpu.memory_bytes * devices - kept
    heads = max(shape.kv_heads, devices)
    token = 2 * shape.layers * heads * shape.head_dim * BITS[precision.kv] / 8
    blocks = int(room // (token * block_size))
    if blocks < 1:
        raise CalibrationError(
            f"{deployment.id}: {shape.name} in {bits:g} bits does not fit {devices} x "
            f"{deployment.system}; say in the spec how many kv_blocks there are"
        )
    return blocks


# --- whose step times ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chosen:
    """The profile of a deployment; ``differs`` says in what it is not the deployment's."""

    profile: Profile
    differs: tuple[str, ...]


def choose(deployment: Deployment, profiles: Sequence[Profile], *, named: bool) -> Chosen | None:
    """The profile of this GPU, engine, parallelism and model, of its precision if there is one.

    Where profiles were *named*, one of another model is taken if none is of this. Raises
    CalibrationError when several fit alike.
    """
    fits = [
        one
        for one in profiles
        if _word(one.device) == _word(deployment.system)
        and one.engine == deployment.engine
        and one.tensor_parallel == deployment.tensor_parallel
    ]
    model = short_name(deployment.model)
    own = [one for one in fits if short_name(one.model) == model]
    if not own and not named:
        return None
    fits = own or fits
    weights = precision_of(deployment.precision)
    alike = [one for one in fits if precision_of_profile(one).weights == weights]
    fits = alike or fits
    if not fits:
        return None
    if len(fits) > 1:
        raise CalibrationError(
            f"{deployment.id}: several profiles fit: {', '.join(one.name for one in fits)}; "
            "give one of them with --profile"
        )
    profile = fits[0]
    differs = []
    if not own:
        differs.append(f"model ({profile.model})")
    if not alike and weights is not None:
        differs.append(f"precision ({profile.precision or 'not recorded'})")
    return Chosen(profile, tuple(differs))


def _word(text: str) -> str:
    return text.lower().replace("_", "-")
