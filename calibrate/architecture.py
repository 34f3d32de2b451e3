"""Shapes of Llama-like decoders: presets, and `config.json` of Hugging Face. Knows no torch.

What a step must compute and read follows from the shape alone: parameters, bytes, operations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.faults import CalibrationError


class ArchitectureError(CalibrationError):
    """A model that this decoder cannot be; the message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3.1's stretching of the rotary wavelengths (``rope_type: llama3``)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder's sizes. ``attention_bias`` is on q, k and v, ``output_bias`` on what follows
    attention; ``tied``: the embedding is the output projection too."""

    name: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    max_context: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    qk_norm: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    tied: bool = False

    def __post_init__(self) -> None:
        for field in (
            "vocab",
            "hidden",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "intermediate",
            "max_context",
        ):
            if getattr(self, field) < 1:
                raise ArchitectureError(
                    f"{self.name}: {field} is {getattr(self, field)}, must be at least 1"
                )
        if self.heads % self.kv_heads:
            raise ArchitectureError(
                f"{self.name}: {self.heads} heads cannot share {self.kv_heads} key-value heads "
                "evenly; kv_heads must divide heads"
            )
        if self.head_dim % 2:
            raise ArchitectureError(
                f"{self.name}: head_dim is {self.head_dim}; rotary positions need an even one"
            )

    @property
    def qkv_width(self) -> int:
        """Columns of the query, key and value projections together."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        projections = self.hidden * (self.qkv_width + self.heads * self.head_dim)
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        biases = self.attention_bias * self.qkv_width + self.output_bias * self.hidden
        return projections + 3 * self.hidden * self.intermediate + norms + biases

    @property
    def parameters(self) -> int:
        """All weights; a tied embedding counts once."""
        tables = 1 if self.tied else 2
        return self.layers * self.layer_parameters + tables * self.vocab * self.hidden + self.hidden

    def weight_bytes(self, bytes_per_value: int) -> int:
        """Memory of all weights."""
        return self.parameters * bytes_per_value

    def streamed_bytes(self, bytes_per_value: int) -> int:
        """Weights that every step reads whole: all but an untied input embedding."""
        looked_up = 0 if self.tied else self.vocab * self.hidden
        return (self.parameters - looked_up) * bytes_per_value

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value

    def flops(self, tokens: int, pairs: int, rows: int) -> int:
        """Multiplications and additions of a step, matrices and attention only.

        *tokens* are computed, *rows* of them to logits; *pairs* counts each new token times the
        entries it attends to, itself included.
        """
        width = self.heads * self.head_dim
        matrices = self.hidden * (self.qkv_width + width + 3 * self.intermediate)
        return 2 * (
            self.layers * (tokens * matrices + 2 * pairs * width) + rows * self.hidden * self.vocab
        )

    def kv_blocks_in(self, free_bytes: int, block_size: int, bytes_per_value: int) -> int:
        """How many whole KV blocks of *block_size* tokens *free_bytes* hold."""
        return max(free_bytes, 0) // (block_size * self.kv_bytes_per_token(bytes_per_value))


def _llama3(factor: float) -> RopeScaling:
    return RopeScaling(
        factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )


PRESETS: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture(
            name="tiny",
            vocab=4096,
            hidden=384,
            layers=4,
            heads=6,
            kv_heads=2,
            head_dim=64,
            intermediate=1152,
            max_context=8192,
        ),
        Architecture(
            name="llama-3.2-1b",
            vocab=128_256,
            hidden=2048,
            layers=16,
            heads=32,
            kv_heads=8,
            head_dim=64,
            intermediate=8192,
            max_context=131_072,
            rope_theta=500_000.0,
            rope_scaling=_llama3(32.0),
            tied=True,
        ),
        Architecture(
            name="llama-3.1-8b",
            vocab=128_256,
            hidden=4096,
            layers=32,
            heads=32,
            kv_heads=8,
            head_dim=128,
            intermediate=14_336,
            max_context=131_072,
            rope_theta=500_000.0,
            rope_scaling=_llama3(8.0),
        ),
        Architecture(
            name="qwen3-14b",
            vocab=151_936,
            hidden=5120,
            layers=40,
            heads=40,
            kv_heads=8,
            head_dim=128,
            intermediate=17_408,
            max_context=40_960,
            rope_theta=1_000_000.0,
            norm_eps=1e-6,
            qk_norm=True,
        ),
        Architecture(
            name="llama-2-13b",
            vocab=32_000,
            hidden=5120,
            layers=40,
            heads=40,
            kv_heads=40,
            head_dim=128,
            intermediate=13_824,
            max_context=4096,
        ),
        # GPT-3 175B (Brown et al. 2020, table 2.1) in 4 of its 96 layers. Its two matrices of
        # 4 x 12,288 become three of 8/3 x 12,288 (as many weights and operations), LayerNorm
        # becomes RMSNorm, learned positions become rotary ones, and biases are left out.
        Architecture(
            name="gpt-3-175b-slice",
            vocab=50_257,
            hidden=12_288,
            layers=4,
            heads=96,
            kv_heads=96,
            head_dim=128,
            intermediate=32_768,
            max_context=2048,
            tied=True,
        ),
    )
}
"""Published shapes by name; ``tiny`` is our own, for tests and for calibration on a CPU."""

BIASES: dict[str, tuple[bool, bool]] = {
    "LlamaForCausalLM": (False, False),
    "MistralForCausalLM": (False, False),
    "Qwen2ForCausalLM": (True, False),
    "Qwen3ForCausalLM": (False, False),
}
"""The classes of Hugging Face's transformers whose models this decoder is, and which biases
(q, k and v; output of attention) they have unless ``attention_bias`` says otherwise."""

MODEL_TYPES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def load_architecture(name_or_path: str | Path) -> Architecture:
    """A preset by name, or the `config.json` at a path (the file, or the folder that holds it).

    Raises ArchitectureError for neither, and for a model that this decoder cannot be.
    """
    if str(name_or_path) in PRESETS:
        return PRESETS[str(name_or_path)]
    path = Path(name_or_path)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise ArchitectureError(
            f"{name_or_path} is neither a preset ({', '.join(PRESETS)}) nor a config.json"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArchitectureError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ArchitectureError(f"{path}: must hold one JSON object, a model's configuration")
    return from_config(config, str(path), name=path.resolve().parent.name)


def from_config(config: Mapping[str, Any], where: str, name: str) -> Architecture:
    """The architecture that a Hugging Face configuration describes; errors begin with *where*."""
    kind = _kind(config, where)
    _refuse(config, where)
    heads = _whole(config, "num_attention_heads", where)
    hidden = _whole(config, "hidden_size", where)
    scaling, theta = _rope(config, where)
    qkv_bias, output_bias = BIASES[kind]
    if kind in ("LlamaForCausalLM", "Qwen3ForCausalLM") and config.get("attention_bias"):
        qkv_bias = output_bias = True
    context = _whole(config, "max_position_embeddings", where)
    window = config.get("sliding_window")
    # Within the window, attention over a sliding window is attention over everything.
    if window and (kind == "MistralForCausalLM" or config.get("use_sliding_window")):
        context = min(context, int(window))
    return Architecture(
        name=name,
        vocab=_whole(config, "vocab_size", where),
        hidden=hidden,
        layers=_whole(config, "num_hidden_layers", where),
        heads=heads,
        kv_heads=_whole(config, "num_key_value_heads", where, heads),
        head_dim=_whole(config, "head_dim", where, max(hidden // heads, 1)),
        intermediate=_whole(config, "intermediate_size", where),
        max_context=context,
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        qk_norm=kind == "Qwen3ForCausalLM",
        attention_bias=qkv_bias,
        output_bias=output_bias,
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _kind(config: Mapping[str, Any], where: str) -> str:
    named = config.get("architectures") or [MODEL_TYPES.get(str(config.get("model_type")), "")]
    kind = str(named[0]) or str(config.get("model_type"))
    if kind not in BIASES:
        raise ArchitectureError(
            f"{where}: {kind} is no architecture that this decoder can be; it can be "
            f"{', '.join(BIASES)}"
        )
    return kind


def _refuse(config: Mapping[str, Any], where: str) -> None:
    """Raises for what would be computed wrongly in silence."""
    for key, fits in (("hidden_act", "silu"), ("mlp_bias", False), ("quantization_config", None)):
        value = config.get(key, fits)
        if value != fits:
            raise ArchitectureError(
                f"{where}: {key} is {value!r}, and only {fits!r} is supported; take another model"
            )


def _whole(config: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        told = "is missing" if value is None else f"is {value!r}"
        raise ArchitectureError(f"{where}: {key} {told}, must be a whole number of at least 1")
    return value


def _rope(config: Mapping[str, Any], where: str) -> tuple[RopeScaling | None, float]:
    """The scaling and the base, from ``rope_scaling`` or the newer ``rope_parameters``."""
    values = config.get("rope_scaling") or config.get("rope_parameters") or {}
    theta = float(values.get("rope_theta", config.get("rope_theta", 10_000.0)))
    kind = values.get("rope_type", values.get("type", "default"))
    if kind == "default":
        return None, theta
    if kind != "llama3":
        raise ArchitectureError(
            f"{where}: rope_scaling of type {kind!r} is not supported, only 'default' and 'llama3'"
        )
    try:
        return RopeScaling(
            factor=float(values["factor"]),
            low_freq_factor=float(values["low_freq_factor"]),
            high_freq_factor=float(values["high_freq_factor"]),
            original_context=int(values["original_max_position_embeddings"]),
        ), theta
    except KeyError as error:
        raise ArchitectureError(f"{where}: rope_scaling of type 'llama3' lacks {error}") from error
