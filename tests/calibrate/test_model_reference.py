"""The decoder against a plain one, written from the papers: one sequence, no cache, loops."""

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'itersim[calibrate]'")

from small_model import OPTIONS, SMALL  # noqa: E402

from calibrate.model import Llama  # noqa: E402
from calibrate.rows import Row  # noqa: E402
from calibrate.weights import named  # noqa: E402


def norm(x, weight, eps):
    return weight * x / torch.sqrt((x * x).mean() + eps)


def angle(a, position, i):
    """The angle by which pair i of a head turns at *position* (Su et al. 2021; Llama 3.1)."""
    frequency = a.rope_theta ** (-2.0 * i / a.head_dim)
    s = a.rope_scaling
    if s is not None:
        wave = 2.0 * math.pi / frequency
        if wave > s.original_context / s.low_freq_factor:
            frequency /= s.factor
        elif wave >= s.original_context / s.high_freq_factor:
            smooth = (s.original_context / wave - s.low_freq_factor) / (
                s.high_freq_factor - s.low_freq_factor
            )
            frequency = (1.0 - smooth) * frequency / s.factor + smooth * frequency
    return position * frequency


def turned(a, x, position):
    half, result = a.head_dim // 2, x.clone()
    for i in range(half):
        c, s = math.cos(angle(a, position, i)), math.sin(angle(a, position, i))
        result[i] = x[i] * c - x[i + half] * s
        result[i + half] = x[i + half] * c + x[i] * s
    return result


def plain(a, w, ids):
    """The logits after the last of *ids*, token by token and head by head, in float64."""
    w = {name: tensor.double() for name, tensor in w.items()}
    hidden = [w["model.embed_tokens.weight"][i] for i in ids]
    for layer in range(a.layers):
        at = f"model.layers.{layer}."

        def project(x, name, at=at):
            return w[f"{at}{name}.weight"] @ x + w.get(f"{at}{name}.bias", 0.0)

        queries, keys, values = [], [], []
        for t, x in enumerate(hidden):
            x = norm(x, w[at + "input_layernorm.weight"], a.norm_eps)
            q = project(x, "self_attn.q_proj").view(a.heads, a.head_dim)
            k = project(x, "self_attn.k_proj").view(a.kv_heads, a.head_dim)
            if a.qk_norm:
                q_norm, k_norm = (
                    w[at + "self_attn.q_norm.weight"],
                    w[at + "self_attn.k_norm.weight"],
                )
                q = torch.stack([norm(h, q_norm, a.norm_eps) for h in q])
                k = torch.stack([norm(h, k_norm, a.norm_eps) for h in k])
            queries.append([turned(a, h, t) for h in q])
            keys.append([turned(a, h, t) for h in k])
            values.append(project(x, "self_attn.v_proj").view(a.kv_heads, a.head_dim))
        for t in range(len(ids)):
            found = []
            for h in range(a.heads):
                shared = h // (a.heads // a.kv_heads)
                scores = torch.stack(
                    [queries[t][h] @ keys[s][shared] / a.head_dim**0.5 for s in range(t + 1)]
                )
                share = torch.softmax(scores, dim=0)
                found.append(sum(share[s] * values[s][shared] for s in range(t + 1)))
            hidden[t] = hidden[t] + project(torch.cat(found), "self_attn.o_proj")
            x = norm(hidden[t], w[at + "post_attention_layernorm.weight"], a.norm_eps)
            gate, up = project(x, "mlp.gate_proj"), project(x, "mlp.up_proj")
            hidden[t] = hidden[t] + project(gate * torch.sigmoid(gate) * up, "mlp.down_proj")
    last = norm(hidden[-1], w["model.norm.weight"], a.norm_eps)
    return w.get("lm_head.weight", w["model.embed_tokens.weight"]) @ last


def with_random_norms(model):
    """Norms that are not 1, so that leaving one out shows; one vector for all heads of a kind."""
    for name, values in named(model.weights, model.architecture):
        if "norm" in name:
            values.copy_(torch.rand(values.shape[-1]) + 0.5)
    return {
        name: values[0] if "q_norm" in name or "k_norm" in name else values
        for name, values in named(model.weights, model.architecture)
    }


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_logits_are_those_of_a_plain_decoder(options):
    torch.manual_seed(1)
    model = Llama(replace(SMALL, **options), seed=3)
    weights = with_random_norms(model)
    ids = torch.randint(model.architecture.vocab, (13,)).tolist()
    cache = model.cache(blocks=9, block_size=4)
    blocks = [7, 2, 5, 0]
    expected = plain(model.architecture, weights, ids)
    whole = model.forward(model.prepare([Row(ids, 0, blocks)], cache), cache)
    torch.testing.assert_close(whole[0].double(), expected, rtol=1e-4, atol=1e-5)
    cache = model.cache(blocks=9, block_size=4)
    for i, token in enumerate(ids):
        step = model.forward(model.prepare([Row([token], i, blocks)], cache), cache)
    torch.testing.assert_close(step[0].double(), expected, rtol=1e-4, atol=1e-5)
