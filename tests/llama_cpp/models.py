"""Small GGUF models with Gemma 3's architecture and random weights, and files with a tokenizer alone."""
import json
import os

import gguf
import numpy as np

golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
VOCAB, WINDOW = 512, 32
# Rows of whole blocks of 256, and heads that are wider than the hidden size divided by their number.
USUAL = {
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 256,
    "attention.head_count": 8,
    "attention.head_count_kv": 4,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": WINDOW,
    "rope.freq_base": 1e6,
}


def write_model(path, layers, keys=(), tied=False, query=1.0):
    """Writes a model in F32, and returns its path.

    `keys` has keys that are not as usual; None leaves one out. `query` multiplies the queries. Models of the same sizes have
    the same weights.
    """
    random = np.random.default_rng(layers)
    keys = {**USUAL, "block_count": layers, **dict(keys)}
    hidden, ffn, width = (keys[name] for name in ["embedding_length", "feed_forward_length", "attention.key_length"])
    queries, values = (keys[name] * width for name in ["attention.head_count", "attention.head_count_kv"])
    writer = begin(path, keys)
    with open(os.path.join(golden, "tokenizer", "tokenizer.json"), "rb") as file:
        put_tokenizer(writer, file.read())

    def matrix(name, rows, cols):
        # What BF16 holds, so that Kiln's --weights bf16 computes with the very values of F32, F16 and BF16.
        bits = random.normal(0, cols**-0.5, (rows, cols)).astype(np.float32).view(np.uint32)
        writer.add_tensor(f"{name}.weight", (bits & np.uint32(0xFFFF0000)).view(np.float32))

    def norm(name, width, size=1.0):
        writer.add_tensor(f"{name}.weight", (size * random.normal(1, 0.2, width)).astype(np.float32))

    matrix("token_embd", VOCAB, hidden)
    for layer in (f"blk.{i}" for i in range(layers)):
        matrix(f"{layer}.attn_q", queries, hidden)
        matrix(f"{layer}.attn_k", values, hidden)
        matrix(f"{layer}.attn_v", values, hidden)
        matrix(f"{layer}.attn_output", hidden, queries)
        matrix(f"{layer}.ffn_gate", ffn, hidden)
        matrix(f"{layer}.ffn_up", ffn, hidden)
        matrix(f"{layer}.ffn_down", hidden, ffn)
        norm(f"{layer}.attn_q_norm", width, query)
        norm(f"{layer}.attn_k_norm", width)
        norm(f"{layer}.attn_norm", hidden)
        norm(f"{layer}.ffn_norm", hidden)
        # A layer adds little to the rest, or random layers would make much of a rounding.
        norm(f"{layer}.post_attention_norm", hidden, 0.25)
        norm(f"{layer}.post_ffw_norm", hidden, 0.25)
    norm("output_norm", hidden)
    if not tied:
        matrix("output", VOCAB, hidden)
    end(writer)
    return path


def write_vocabulary(path, tokenizer_json):
    """Writes the tokenizer of a tokenizer.json without a model, and returns its path."""
    writer = begin(path, {**USUAL, "block_count": 1})
    put_tokenizer(writer, tokenizer_json)
    end(writer)
    return path


def begin(path, keys):
    writer = gguf.GGUFWriter(path, "gemma3")
    for name, value in keys.items():
        match value:
            case list():
                writer.add_array(f"gemma3.{name}", value)
            case str():
                writer.add_string(f"gemma3.{name}", value)
            case float():
                writer.add_float32(f"gemma3.{name}", value)
            case int():
                writer.add_uint32(f"gemma3.{name}", value)
    return writer


def end(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def put_tokenizer(writer, tokenizer_json):
    """Adds a tokenizer as SentencePiece has it: a token's score follows from the rank of its first merge."""
    tokenizer, kinds = json.loads(tokenizer_json), gguf.TokenType
    vocab = tokenizer["model"]["vocab"]
    ranks = {}
    for pair in tokenizer["model"]["merges"]:
        joined = pair.replace(" ", "", 1) if isinstance(pair, str) else "".join(pair)
        ranks.setdefault(joined, len(ranks))
    tokens = {}
    for text, number in vocab.items():
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            tokens[number] = (text, 0.0, kinds.BYTE)
        else:
            # Single characters come behind all that merges make.
            tokens[number] = (text, float(-ranks.get(text, 1e6)), kinds.NORMAL)
    for token in tokenizer["added_tokens"]:
        text = token["content"]
        if token["special"] or text.startswith("<unused") or text in ("<mask>", "[@BOS@]"):
            tokens[token["id"]] = (text, -1000.0, kinds.CONTROL)
        else:
            tokens[token["id"]] = (text.replace("▁", " "), -1000.0, kinds.USER_DEFINED)
    unused = ("", 0.0, kinds.UNUSED)
    texts, scores, types = zip(*(tokens.get(number, unused) for number in range(max(tokens) + 1)))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
