"""Weights: Hugging Face's names, whole or in shards, and random ones of a stated spread."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")
files = pytest.importorskip(
    "safetensors.torch", reason="needs safetensors: pip install 'itersim[calibrate]'"
)

from small_model import OPTIONS, SMALL, alone  # noqa: E402

from calibrate import weights  # noqa: E402
from calibrate.model import Llama  # noqa: E402
from calibrate.weights import WeightsError, named, save  # noqa: E402


def saved(tmp_path, model):
    save(model.weights, model.architecture, tmp_path)
    return files.load_file(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["plain", "everything"])
def test_weights_come_back_from_safetensors(tmp_path, name):
    architecture = replace(SMALL, **OPTIONS[name])
    model = Llama(architecture, seed=4)
    saved(tmp_path, model)
    again = Llama(architecture, seed=5, files=tmp_path)
    assert torch.equal(alone(again, [1, 2, 3]), alone(model, [1, 2, 3]))


def test_files_hold_the_names_and_shapes_of_hugging_face(tmp_path):
    model = Llama(replace(SMALL, **OPTIONS["qk_norm"], **OPTIONS["all biases"]))
    shapes = {name: tuple(t.shape) for name, t in saved(tmp_path, model).items()}
    layer = {
        "input_layernorm.weight": (24,),
        "self_attn.q_proj.weight": (48, 24),
        "self_attn.k_proj.weight": (16, 24),
        "self_attn.v_proj.weight": (16, 24),
        "self_attn.o_proj.weight": (24, 48),
        "self_attn.q_proj.bias": (48,),
        "self_attn.k_proj.bias": (16,),
        "self_attn.v_proj.bias": (16,),
        "self_attn.o_proj.bias": (24,),
        "self_attn.q_norm.weight": (8,),
        "self_attn.k_norm.weight": (8,),
        "post_attention_layernorm.weight": (24,),
        "mlp.gate_proj.weight": (40, 24),
        "mlp.up_proj.weight": (40, 24),
        "mlp.down_proj.weight": (24, 40),
    }
    assert shapes == {
        "model.embed_tokens.weight": (61, 24),
        "model.norm.weight": (24,),
        "lm_head.weight": (61, 24),
        **{f"model.layers.{i}.{k}": v for i in range(2) for k, v in layer.items()},
    }
    assert sum(t.numel() for t in saved(tmp_path, model).values()) == model.architecture.parameters


def test_shards_are_found_by_their_index_or_by_looking(tmp_path):
    model = Llama(SMALL, seed=4)
    content = saved(tmp_path, model)
    (tmp_path / "model.safetensors").unlink()
    names = sorted(content)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        files.save_file({name: content[name] for name in held}, tmp_path / file)
    assert torch.equal(alone(Llama(SMALL, files=tmp_path), [1, 2]), alone(model, [1, 2]))
    where = {name: file for file, held in shards.items() for name in held}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert torch.equal(alone(Llama(SMALL, files=tmp_path), [1, 2]), alone(model, [1, 2]))


def test_files_that_do_not_fit_are_refused_by_weight(tmp_path):
    with pytest.raises(WeightsError, match=r"holds no \.safetensors file"):
        Llama(SMALL, files=tmp_path)
    content = saved(tmp_path, Llama(SMALL))
    with pytest.raises(WeightsError, match=r"weight .*q_proj\.bias is missing"):
        Llama(replace(SMALL, attention_bias=True), files=tmp_path)
    with pytest.raises(WeightsError, match=r"embed_tokens\.weight is \(61, 24\), must be \(62, 24"):
        Llama(replace(SMALL, vocab=62), files=tmp_path)
    with pytest.raises(
        WeightsError, match=r"9 weights have no place in small, first model\.layers"
    ):
        Llama(replace(SMALL, layers=1), files=tmp_path)
    # A tied model's files may repeat the embedding as lm_head, and old ones hold frequencies.
    content["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    files.save_file(content, tmp_path / "model.safetensors")
    Llama(replace(SMALL, tied=True), files=tmp_path)


def test_random_weights_have_the_stated_spread(monkeypatch):
    monkeypatch.setattr(weights, "CHUNK", 1000)
    wide = replace(SMALL, hidden=200, vocab=500, attention_bias=True)
    content = dict(named(Llama(wide, seed=2).weights, wide))
    narrow = (2 * wide.layers) ** -0.5
    for name, scale in (
        ("model.embed_tokens.weight", 200**-0.5),
        ("lm_head.weight", 200**-0.5),
        ("model.layers.1.self_attn.k_proj.weight", 200**-0.5),
        ("model.layers.0.self_attn.o_proj.weight", 48**-0.5 * narrow),
        ("model.layers.0.mlp.down_proj.weight", 40**-0.5 * narrow),
    ):
        values = content[name].flatten()
        assert values.std() == pytest.approx(scale, rel=0.05)
        assert values.mean().abs() < 4 * scale / len(values) ** 0.5
        neighbours = torch.corrcoef(torch.stack([values[1:], values[:-1]]))[0, 1]
        assert neighbours.abs() < 4 / len(values) ** 0.5
    assert content["model.layers.0.self_attn.q_proj.bias"].abs().min() > 0
    pair = [content[f"model.layers.{i}.mlp.up_proj.weight"].flatten() for i in (0, 1)]
    assert torch.corrcoef(torch.stack(pair))[0, 1].abs() < 0.05


def test_random_weights_do_not_depend_on_how_they_are_cut(monkeypatch):
    whole = alone(Llama(SMALL, seed=2), [1, 2, 3])
    monkeypatch.setattr(weights, "CHUNK", 50)
    assert torch.equal(alone(Llama(SMALL, seed=2), [1, 2, 3]), whole)
