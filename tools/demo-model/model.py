"""Gemma 3's text model in PyTorch, and its files: BF16 and native INT8 safetensors, config.json.

The weights of all layers are stacked along a first axis, one parameter per kind, so that one compiled layer serves all 62
and the optimizer sees a dozen tensors. Shapes below: L layers, H hidden, D head, F feed-forward, V vocabulary.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn


@dataclass(frozen=True)
class Shape:
    vocab: int = 1536
    layers: int = 62
    hidden: int = 128
    ffn: int = 320
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    query_scalar: int = 32  # scores are scaled by its inverse root
    window: int = 64
    pattern: int = 6  # every sixth layer sees the whole context
    positions: int = 2048
    theta: float = 1e6
    local_theta: float = 1e4
    factor: float = 8.0  # linear scaling of the global layers' positions
    eps: float = 1e-6

    def is_full(self, layer):
        return (layer + 1) % self.pattern == 0


# The draft model: of the same tokens and positions, and of few layers, half of which see the whole context.
DRAFT = Shape(layers=4, pattern=2)

MATRICES = {  # our name: (tensor's name in a layer, shape)
    "q": ("self_attn.q_proj", lambda s: (s.heads * s.head_dim, s.hidden)),
    "k": ("self_attn.k_proj", lambda s: (s.kv_heads * s.head_dim, s.hidden)),
    "v": ("self_attn.v_proj", lambda s: (s.kv_heads * s.head_dim, s.hidden)),
    "o": ("self_attn.o_proj", lambda s: (s.hidden, s.heads * s.head_dim)),
    "gate": ("mlp.gate_proj", lambda s: (s.ffn, s.hidden)),
    "up": ("mlp.up_proj", lambda s: (s.ffn, s.hidden)),
    "down": ("mlp.down_proj", lambda s: (s.hidden, s.ffn)),
}
NORMS = {
    "attn_in": ("input_layernorm", lambda s: s.hidden),
    "attn_out": ("post_attention_layernorm", lambda s: s.hidden),
    "ffn_in": ("pre_feedforward_layernorm", lambda s: s.hidden),
    "ffn_out": ("post_feedforward_layernorm", lambda s: s.hidden),
    "q_norm": ("self_attn.q_norm", lambda s: s.head_dim),
    "k_norm": ("self_attn.k_norm", lambda s: s.head_dim),
}


def rms_norm(x, weight, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1.0 + weight)


def rotate(x, cos, sin):
    """Rotate-half; x [B, heads, T, D], cos and sin [T, D/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def layer(h, w, cos, sin, mask, shape):
    """One layer on h [B, T, H], kept in float32; mask is additive, [B or 1, 1, T, T]."""
    batch, length, _ = h.shape

    def split(x):
        return x.view(batch, length, -1, shape.head_dim).transpose(1, 2)

    a = rms_norm(h, w["attn_in"], shape.eps).to(mask.dtype)
    q, k, v = split(a @ w["q"].T), split(a @ w["k"].T), split(a @ w["v"].T)
    q = rotate(rms_norm(q, w["q_norm"], shape.eps), cos, sin).to(mask.dtype)
    k = rotate(rms_norm(k, w["k_norm"], shape.eps), cos, sin).to(mask.dtype)
    group = shape.heads // shape.kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = shape.query_scalar**-0.5
    o = F.scaled_dot_product_attention(q, k, v, mask.expand(batch, shape.heads, length, length), scale=scale)
    o = o.transpose(1, 2).reshape(batch, length, -1)
    h = h + rms_norm(o @ w["o"].T, w["attn_out"], shape.eps)
    m = rms_norm(h, w["ffn_in"], shape.eps).to(mask.dtype)
    m = F.gelu(m @ w["gate"].T, approximate="tanh") * (m @ w["up"].T)
    return h + rms_norm(m @ w["down"].T, w["ffn_out"], shape.eps)


class Gemma3(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocab, shape.hidden) * shape.hidden**-0.5)
        self.norm = nn.Parameter(torch.zeros(shape.hidden))
        for name, (_, size) in MATRICES.items():
            rows, columns = size(shape)
            self.register_parameter(name, nn.Parameter(torch.randn(shape.layers, rows, columns) * columns**-0.5))
        for name, (_, size) in NORMS.items():
            # Each sublayer starts as a small step, so that the sum over all of them stays near the embedding's size.
            start = math.sqrt(1 / (2 * shape.layers)) - 1 if name in ("attn_out", "ffn_out") else 0.0
            self.register_parameter(name, nn.Parameter(torch.full((shape.layers, size(shape)), start)))
        self.layer = layer

    def rope(self, length, full, device):
        """cos and sin [T, D/2] in float32."""
        shape = self.shape
        theta, factor = (shape.theta, shape.factor) if full else (shape.local_theta, 1.0)
        inverse = theta ** (-torch.arange(0, shape.head_dim, 2, device=device).float() / shape.head_dim) / factor
        angle = torch.arange(length, device=device).float()[:, None] * inverse
        return angle.cos(), angle.sin()

    def masks(self, documents, dtype):
        """Additive masks [B, 1, T, T] (window, whole): causal, within one document; documents is [B, T]."""
        at = torch.arange(documents.shape[1], device=documents.device)
        causal = (at[:, None] >= at) & (documents[:, :, None] == documents[:, None, :])
        near = causal & (at[:, None] - at < self.shape.window)
        return [
            torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, float("-inf"))[:, None]
            for seen in (near, causal)
        ]

    def forward(self, ids, documents, dtype=torch.float32, transform=None):
        """Logits [B, T, V]. `transform` stands between the stored matrices and their use (quantisation)."""
        transform = transform or (lambda matrix: matrix)
        embed = transform(self.embed)
        h = F.embedding(ids, embed) * math.sqrt(self.shape.hidden)
        masks = self.masks(documents, dtype)
        ropes = [self.rope(ids.shape[1], full, ids.device) for full in (False, True)]
        stacks = {name: transform(getattr(self, name)).to(dtype).unbind(0) for name in MATRICES}
        stacks |= {name: getattr(self, name).unbind(0) for name in NORMS}
        for at in range(self.shape.layers):
            full = self.shape.is_full(at)
            weights = {name: stack[at] for name, stack in stacks.items()}
            h = self.layer(h, weights, *ropes[full], masks[full], self.shape)
        return rms_norm(h, self.norm, self.shape.eps).to(dtype) @ embed.to(dtype).T


# -- weights in files --------------------------------------------------------------------------------------------------


def quantise(matrix):
    """(q int8, scale float32 per row) of [..., rows, columns]: symmetric, half to even, a zero row has scale 1."""
    matrix = matrix.float()
    peak = matrix.abs().amax(-1)
    scale = torch.where(peak > 0, peak / 127.0, torch.ones_like(peak))
    return (matrix / scale[..., None]).round().clamp(-127, 127).to(torch.int8), scale


def through_int8(matrix):
    """The values that the INT8 file of this matrix stands for; gradients pass as if nothing had happened."""
    q, scale = quantise(matrix.detach().to(torch.bfloat16))
    return matrix + (q.float() * scale[..., None] - matrix).detach()


def through_bf16(matrix):
    return matrix.to(torch.bfloat16).float()


def tensors(model):
    """{tensor name: BF16 tensor} under the names of Gemma3ForCausalLM."""
    out = {"model.embed_tokens.weight": model.embed, "model.norm.weight": model.norm}
    for ours, (theirs, _) in (MATRICES | NORMS).items():
        for at, weight in enumerate(getattr(model, ours).unbind(0)):
            out[f"model.layers.{at}.{theirs}.weight"] = weight
    return {name: tensor.detach().to(torch.bfloat16).cpu().contiguous() for name, tensor in out.items()}


def load(model, bf16):
    """Fills the model from `tensors` of an equal one."""
    with torch.no_grad():
        model.embed.copy_(bf16["model.embed_tokens.weight"])
        model.norm.copy_(bf16["model.norm.weight"])
        for ours, (theirs, _) in (MATRICES | NORMS).items():
            names = [f"model.layers.{at}.{theirs}.weight" for at in range(model.shape.layers)]
            getattr(model, ours).copy_(torch.stack([bf16[name] for name in names]))


def save_int8(bf16, path):
    """Writes the native INT8 file: matrices as I8 [R, C] with F32 [R] `<name>_scale`, norms as they are."""
    out = {}
    for name, tensor in bf16.items():
        if tensor.dim() == 2:
            out[name], out[name + "_scale"] = quantise(tensor)
        else:
            out[name] = tensor
    save_file(out, path, metadata={"format": "pt"})


def config(shape):
    """config.json as transformers 5 writes it."""
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": "bfloat16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "query_pre_attn_scalar": shape.query_scalar,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.eps,
        "sliding_window": shape.window,
        "layer_types": ["full_attention" if shape.is_full(at) else "sliding_attention" for at in range(shape.layers)],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": shape.theta, "factor": shape.factor},
            "sliding_attention": {"rope_type": "default", "rope_theta": shape.local_theta},
        },
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "tie_word_embeddings": True,
        "use_bidirectional_attention": False,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "use_cache": True,
    }


def save_config(shape, directory):
    Path(directory, "config.json").write_text(json.dumps(config(shape), indent=1) + "\n")
