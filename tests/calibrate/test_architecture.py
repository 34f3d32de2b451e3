"""Shapes of models: published counts, config.json, refusals. No torch."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from calibrate.architecture import PRESETS, ArchitectureError, RopeScaling, load_architecture

LLAMA_31_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
QWEN2 = {
    **{k: v for k, v in LLAMA_31_8B.items() if k not in ("rope_scaling", "attention_bias")},
    "architectures": ["Qwen2ForCausalLM"],
    "sliding_window": 4096,
    "use_sliding_window": False,
}


def read(tmp_path, config):
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return load_architecture(folder)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.2-1b", 1_235_814_400),
        ("qwen3-14b", 14_768_307_200),
        ("llama-2-13b", 13_015_864_320),
    ],
)
def test_a_preset_has_the_published_number_of_parameters(name, parameters):
    assert load_architecture(name).parameters == parameters


def test_tiny_has_about_ten_million_parameters():
    assert 9e6 < PRESETS["tiny"].parameters < 11e6


def test_the_slice_of_gpt3_scales_to_its_parameters():
    """96 layers and the embedding, of 175 billion with positions and biases (paper, table 2.1)."""
    whole = replace(PRESETS["gpt-3-175b-slice"], layers=96)
    assert whole.parameters == pytest.approx(174.6e9, rel=0.002)


def test_a_config_json_is_its_preset(tmp_path):
    found = read(tmp_path, LLAMA_31_8B)
    assert found == replace(PRESETS["llama-3.1-8b"], name="model")
    assert load_architecture(tmp_path / "model" / "config.json") == found


def test_newer_files_keep_theta_beside_the_scaling(tmp_path):
    newer = {k: v for k, v in LLAMA_31_8B.items() if not k.startswith("rope")}
    newer["rope_parameters"] = {**LLAMA_31_8B["rope_scaling"], "rope_theta": 500000.0}
    assert read(tmp_path, newer) == read(tmp_path, LLAMA_31_8B)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN2, {"attention_bias": True, "output_bias": False, "max_context": 131072}),
        ({**QWEN2, "use_sliding_window": True}, {"max_context": 4096}),
        ({**LLAMA_31_8B, "attention_bias": True}, {"attention_bias": True, "output_bias": True}),
        ({**LLAMA_31_8B, "architectures": ["Qwen3ForCausalLM"]}, {"qk_norm": True}),
        (
            {**LLAMA_31_8B, "architectures": ["MistralForCausalLM"], "sliding_window": 4096},
            {"max_context": 4096, "qk_norm": False, "attention_bias": False},
        ),
        ({**LLAMA_31_8B, "architectures": None}, {"heads": 32}),
        ({**LLAMA_31_8B, "head_dim": 64}, {"head_dim": 64}),
        ({**LLAMA_31_8B, "num_key_value_heads": None}, {"kv_heads": 32}),
        ({**LLAMA_31_8B, "rope_scaling": None}, {"rope_scaling": None, "rope_theta": 500000.0}),
        ({**LLAMA_31_8B, "tie_word_embeddings": True}, {"tied": True}),
    ],
)
def test_what_a_configuration_says_is_heeded(tmp_path, config, expected):
    found = read(tmp_path, config)
    assert {field: getattr(found, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM is no architecture.*Llama"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2 is no architecture"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', and only 'silu'"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "type 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "lacks 'low_freq_factor'"),
        ({"hidden_size": None}, "hidden_size is missing, must be a whole number"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_key_value_heads": 5}, "32 heads cannot share 5 key-value heads"),
        ({"head_dim": 65}, "head_dim is 65; rotary positions need an even one"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(tmp_path, change, told):
    with pytest.raises(ArchitectureError, match=told):
        read(tmp_path, {**LLAMA_31_8B, **change})


def test_neither_a_preset_nor_a_file_is_told_with_the_presets(tmp_path):
    with pytest.raises(ArchitectureError, match=r"llama-9 is neither a preset \(tiny, llama"):
        load_architecture("llama-9")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ArchitectureError, match=r"config\.json: not JSON"):
        load_architecture(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ArchitectureError, match="one JSON object"):
        load_architecture(tmp_path)


def test_a_shape_says_what_a_step_reads_and_computes():
    a = PRESETS["llama-3.1-8b"]
    assert a.kv_bytes_per_token(2) == 131_072
    assert a.weight_bytes(2) == 2 * a.parameters
    assert a.streamed_bytes(2) == 2 * (a.parameters - 128_256 * 4096)
    assert PRESETS["llama-3.2-1b"].streamed_bytes(2) == PRESETS["llama-3.2-1b"].weight_bytes(2)
    # Two operations a weight and token, and per entry attended to two products of a head's width.
    matrices = a.parameters - 2 * 128_256 * 4096 - 65 * 4096
    assert a.flops(tokens=1, pairs=0, rows=0) == 2 * matrices
    assert a.flops(tokens=0, pairs=0, rows=3) == 3 * 2 * 4096 * 128_256
    assert a.flops(tokens=0, pairs=7, rows=0) == 7 * 32 * 4 * 32 * 128
    assert a.kv_blocks_in(131_072 * 16 * 5 + 1, 16, 2) == 5
    assert a.kv_blocks_in(-3, 16, 2) == 0


def test_rope_scaling_is_a_value():
    s = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)
    assert PRESETS["llama-3.1-8b"].rope_scaling == s


def test_reading_shapes_imports_no_torch():
    code = "import sys, calibrate.architecture; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
