"""Writes model.gguf and golden.json: a small Gemma 3 with every type of matrix that Kiln reads, in rows of 256.

The gguf package writes the file, quantises Q8_0, Q5_0 and Q4_0, and decodes every type. Q4_K and Q6_K, which it only decodes,
are random blocks. golden.json has the sha256 of each matrix as f32, and the logits of a prompt, computed in float64.
Needs the PyPI packages gguf 0.19.0 and numpy: python3 make.py
"""

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HERE = Path(__file__).parent
LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, WINDOW, EPS = 2, 256, 256, 4, 1, 64, 96, 4, 1e-6
BASE_LOCAL, BASE_GLOBAL, FACTOR, PATTERN = 1e4, 1e6, 8.0, 2
PROMPT = [2, 17, 5, 90, 33, 33, 8, 71, 2, 60, 41]
random = np.random.default_rng(20261123)


def halves(low, high, count):
    return random.uniform(low, high, (count, 1)).astype(np.float16).view(np.uint8)


def quantized(rows, cols, kind):
    """A matrix in `kind`, as bytes or floats that the package writes."""
    values = random.normal(0, 0.06, (rows, cols)).astype(np.float32)
    if kind in (Type.F32, Type.F16, Type.BF16):
        # What BF16 holds, so that a program that keeps such a matrix in BF16 computes with the very values.
        values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    if kind == Type.F32:
        return values
    blocks = rows * cols // 256
    byte = lambda count: random.integers(0, 256, (blocks, count), np.uint8)
    if kind == Type.Q4_K:
        d = halves(6e-5, 1.8e-4, blocks)
        least = (d.view(np.float16) * np.float16(7.5)).view(np.uint8)
        return np.concatenate([d, least, byte(12), byte(128)], 1).reshape(rows, -1)
    if kind == Type.Q6_K:
        return np.concatenate([byte(128), byte(64), byte(16), halves(3e-5, 6e-5, blocks)], 1).reshape(rows, -1)
    return gguf.quantize(values, kind)


TYPES = {"attn_q": (Type.Q4_K, Type.Q6_K), "attn_k": (Type.Q6_K, Type.F16), "attn_v": (Type.Q8_0, Type.Q4_K),
         "attn_output": (Type.Q4_0, Type.Q8_0), "ffn_gate": (Type.Q4_K, Type.BF16), "ffn_up": (Type.Q8_0, Type.Q4_0),
         "ffn_down": (Type.Q6_K, Type.F32)}
SHAPES = {"attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
          "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM), "ffn_gate": (FFN, HIDDEN),
          "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}
NORMS = {"attn_norm": HIDDEN, "post_attention_norm": HIDDEN, "ffn_norm": HIDDEN, "post_ffw_norm": HIDDEN,
         "attn_q_norm": HEAD_DIM, "attn_k_norm": HEAD_DIM}

writer = gguf.GGUFWriter(HERE / "model.gguf", "gemma3")
writer.add_context_length(512)
writer.add_block_count(LAYERS)
writer.add_embedding_length(HIDDEN)
writer.add_feed_forward_length(FFN)
writer.add_head_count(HEADS)
writer.add_head_count_kv(KV_HEADS)
writer.add_key_length(HEAD_DIM)
writer.add_value_length(HEAD_DIM)
writer.add_layer_norm_rms_eps(EPS)
writer.add_rope_freq_base(BASE_GLOBAL)
writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
writer.add_rope_scaling_factor(FACTOR)
writer.add_sliding_window(WINDOW)
writer.add_sliding_window_pattern(PATTERN)
writer.add_quantization_version(gguf.GGML_QUANT_VERSION)

matrices = {}


def put(name, shape, kind):
    stored = quantized(*shape, kind)
    writer.add_tensor(f"{name}.weight", stored, raw_dtype=kind)
    matrices[name] = stored if kind == Type.F32 else gguf.dequantize(stored, kind).reshape(shape)


def put_norm(name, width):
    # As a converter writes it: a BF16 weight, plus one, in F32.
    weight = random.normal(0, 0.3, width).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    matrices[name] = weight.view(np.float32) + np.float32(1)
    writer.add_tensor(f"{name}.weight", matrices[name])


put("token_embd", (VOCAB, HIDDEN), Type.Q6_K)
for layer in range(LAYERS):
    for name, width in NORMS.items():
        put_norm(f"blk.{layer}.{name}", width)
    for name, shape in SHAPES.items():
        put(f"blk.{layer}.{name}", shape, TYPES[name][layer])
put_norm("output_norm", HIDDEN)
put("output", (VOCAB, HIDDEN), Type.Q5_0)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

weights = {name: values.astype(np.float64) for name, values in matrices.items()}


def rms_norm(x, name):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weights[name]


def rope(x, base, factor):
    half = HEAD_DIM // 2
    angle = np.arange(len(x))[:, None] * (base ** (-2 * np.arange(half) / HEAD_DIM) / factor)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def layer_of(h, layer):
    part = lambda name: weights[f"blk.{layer}.{name}"]
    local = (layer + 1) % PATTERN != 0
    base, factor = (BASE_LOCAL, 1.0) if local else (BASE_GLOBAL, FACTOR)
    a, count = rms_norm(h, f"blk.{layer}.attn_norm"), len(h)
    heads = lambda name, n: (a @ part(name).T).reshape(count, n, HEAD_DIM)
    q = rope(rms_norm(heads("attn_q", HEADS), f"blk.{layer}.attn_q_norm"), base, factor)
    k = rope(rms_norm(heads("attn_k", KV_HEADS), f"blk.{layer}.attn_k_norm"), base, factor)
    k, v = (np.repeat(x, HEADS // KV_HEADS, 1) for x in (k, heads("attn_v", KV_HEADS)))
    scores = np.einsum("qhd,khd->hqk", q, k) * HEAD_DIM**-0.5
    distance = np.arange(count)[:, None] - np.arange(count)[None]
    scores[:, (distance < 0) | (local & (distance >= WINDOW))] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    o = np.einsum("hqk,khd->qhd", shares, v).reshape(count, -1) @ part("attn_output").T
    h = h + rms_norm(o, f"blk.{layer}.post_attention_norm")
    m = rms_norm(h, f"blk.{layer}.ffn_norm")
    m = (gelu(m @ part("ffn_gate").T) * (m @ part("ffn_up").T)) @ part("ffn_down").T
    return h + rms_norm(m, f"blk.{layer}.post_ffw_norm")


h = weights["token_embd"][PROMPT] * np.sqrt(HIDDEN)
for layer in range(LAYERS):
    h = layer_of(h, layer)
logits = rms_norm(h, "output_norm") @ weights["output"].T
digest = lambda x: hashlib.sha256(np.ascontiguousarray(x, np.float32).tobytes()).hexdigest()
golden = {
    "prompt": PROMPT,
    "sha256": {name: digest(values) for name, values in matrices.items()},
    "logits": [[float(f"{x:.7g}") for x in row] for row in logits],
}
(HERE / "golden.json").write_text(json.dumps(golden) + "\n")
