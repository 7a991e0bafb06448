#!/usr/bin/env python3
"""Makes a Gemma 4 whose next token depends on the last one alone, by the table NEXT: it thinks where it is asked to, and answers.

usage: python3 tests/golden/thinker/make.py
"""
import json
import os
import struct

here = os.path.dirname(os.path.abspath(__file__))
# The tokens of Gemma 4's chat format, and the first line of a thought as one token.
ADDED = ["<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>"]
ADDED += ["<|tool_response>", "<tool_response|>", '<|"|>', "thought\n"]
# A turn of the model's begins behind a line feed, or behind the empty thought of a model that is not to think.
CHAINS = [
    ["\n", "<|channel>", "thought\n", "A", "▁simple", "▁question", "<channel|>"],
    ["<channel|>", "Th", "e", "▁river", "▁moves", ".", "<turn|>"],
    # Behind the result of a call the turn goes on.
    ["<tool_response|>", "Th"],
    # A string of a call.
    ["<|tool_call>", '<|"|>', "one", '<|"|>'],
    ["<tool_call|>", "<turn|>"],
]
HIDDEN, FFN, VOCABULARY = 128, 64, 544
HEADS, HEAD, GLOBAL_HEAD = 2, 16, 32


def tokenizer():
    with open(os.path.join(here, "..", "tokenizer", "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    first = len(tokenizer["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokenizer["added_tokens"] += [{"id": first + i, "content": text, **flags} for i, text in enumerate(ADDED)]
    return tokenizer


def numbers(rows, columns, at={}):
    """A matrix with a row's values where `at` has the row."""
    return [columns * [0.0] if row not in at else at[row] for row in range(rows)]


def hadamard(row):
    return [-1.0 if bin(row & column).count("1") % 2 else 1.0 for column in range(HIDDEN)]


def tensors(ids):
    following = {}
    for chain in CHAINS:
        following.update((ids[token], ids[then]) for token, then in zip(chain, chain[1:]))
    tokens = sorted({*following, *following.values()})
    code = {token: hadamard(i + 1) for i, token in enumerate(tokens)}
    yield "embed_tokens.weight", numbers(VOCABULARY, HIDDEN, {token: [x / 4 for x in code[token]] for token in tokens})
    yield "norm.weight", [HIDDEN * [1.0]]
    for layer, head in enumerate([HEAD, GLOBAL_HEAD]):
        # Attention adds nothing. The feed-forward network of the last layer adds the next token.
        rows = {i: [x / 16 for x in code[token]] for i, token in enumerate(following)} if layer else {}
        down = [[code[then][row] for then in following.values()] + (FFN - len(following)) * [0.0] for row in range(HIDDEN)]
        for name, values in {
            "self_attn.q_proj": numbers(HEADS * head, HIDDEN), "self_attn.k_proj": numbers(head, HIDDEN),
            "self_attn.o_proj": numbers(HIDDEN, HEADS * head),
            "self_attn.q_norm": [head * [1.0]], "self_attn.k_norm": [head * [1.0]],
            "mlp.gate_proj": numbers(FFN, HIDDEN, rows), "mlp.up_proj": numbers(FFN, HIDDEN, rows),
            "mlp.down_proj": down if layer else numbers(HIDDEN, FFN),
            "input_layernorm": [HIDDEN * [1.0]], "post_attention_layernorm": [HIDDEN * [1.0]],
            "pre_feedforward_layernorm": [HIDDEN * [1.0]], "post_feedforward_layernorm": [HIDDEN * [50.0]],
        }.items():
            yield f"layers.{layer}.{name}.weight", values
        if not layer:
            yield f"layers.{layer}.self_attn.v_proj.weight", numbers(head, HIDDEN)
        yield f"layers.{layer}.layer_scalar", [[1.0]]


def write(name, value):
    with open(os.path.join(here, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)
        file.write("\n")


def main():
    made = tokenizer()
    ids = {**made["model"]["vocab"], **{token["content"]: token["id"] for token in made["added_tokens"]}}
    ids.setdefault("\n", ids["<0x0A>"])
    header, data = {}, b""
    for name, rows in tensors(ids):
        # BF16 is the upper half of a float.
        values = b"".join(struct.pack("<f", value)[2:] for row in rows for value in row)
        shape = [len(rows[0])] if len(rows) == 1 else [len(rows), len(rows[0])]
        header[f"model.{name}"] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    header = json.dumps(header).encode()
    header += -len(header) % 8 * b" "
    with open(os.path.join(here, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    write("tokenizer.json", made)
    rope = {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    write("config.json", {
        "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
        "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD, "num_global_key_value_heads": 1,
        "global_head_dim": GLOBAL_HEAD, "attention_k_eq_v": True, "rms_norm_eps": 1e-6, "sliding_window": 64,
        "max_position_embeddings": 4096, "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "tie_word_embeddings": True, "rope_parameters": rope,
        "bos_token_id": 2, "eos_token_id": [1, ids["<turn|>"]], "pad_token_id": 0,
    })


main()
