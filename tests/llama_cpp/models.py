"""GGUF files: small models of Gemma 3 and 4 with random weights, golden models, and a tokenizer alone."""
import json
import os

import gguf
import numpy as np

golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
VOCAB, WINDOW = 512, 32
# Rows of whole blocks of 256, and heads that are wider than the hidden size divided by their number.
SIZES = {
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 256,
    "attention.head_count": 8,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": WINDOW,
    "rope.freq_base": 1e6,
}


def gemma3(layers):
    """The usual keys of a Gemma 3."""
    heads = {"attention.head_count_kv": 4, "attention.key_length": 64, "attention.value_length": 64}
    return {**SIZES, "block_count": layers, **heads}


def gemma4(local, kv_heads=(4, 1), widths=(64, 128)):
    """The usual keys of a Gemma 4, as its converter writes them.

    `local` says of each layer whether it is local, `kv_heads` and `widths` have the heads of local and of global layers.
    """
    keys = {
        **SIZES,
        "block_count": len(local),
        "attention.head_count_kv": [kv_heads[not is_local] for is_local in local],
        "attention.sliding_window_pattern": list(local),
        "attention.shared_kv_layers": 0,
        "embedding_length_per_layer_input": 0,
        "rope.freq_base_swa": 1e4,
        "final_logit_softcapping": 30.0,
    }
    for end, width in zip(["_swa", ""], widths):
        of_width = ["attention.key_length", "attention.value_length", "rope.dimension_count"]
        keys |= {f"{key}{end}": width for key in of_width}
    return keys


def heads(keys, layer):
    """A layer's KV heads, and the width of its heads."""
    if "attention.key_length_swa" not in keys:
        return keys["attention.head_count_kv"], keys["attention.key_length"]
    kv_heads, local = keys["attention.head_count_kv"], keys["attention.sliding_window_pattern"][layer]
    width = keys["attention.key_length_swa" if local else "attention.key_length"]
    return kv_heads[layer] if isinstance(kv_heads, list) else kv_heads, width


def write_model(path, usual, keys=(), tied=False, query=1.0, turning=0.25, values=False, scalar=1.0):
    """Writes a model in F32, and returns its path.

    `usual` has the keys of its family, and `keys` those that are not as usual; None leaves one out. `query` multiplies the
    queries. Of Gemma 4: `turning` is the share of the global layers' pairs that turn, `values` gives these layers values of
    their own, `scalar` multiplies the layers' scalars. Models of the same sizes have the same weights.
    """
    keys = {**usual, **dict(keys)}
    layers, hidden, ffn = (keys[name] for name in ["block_count", "embedding_length", "feed_forward_length"])
    is_gemma4 = "attention.key_length_swa" in keys
    random = np.random.default_rng(layers)
    writer = begin(path, keys, "gemma4" if is_gemma4 else "gemma3")
    with open(os.path.join(golden, "tokenizer", "tokenizer.json"), "rb") as file:
        put_tokenizer(writer, file.read(), is_gemma4)

    def matrix(name, rows, cols):
        # Numbers that BF16 holds, so that Kiln's --weights bf16 computes with the very values of F32, F16 and BF16.
        bits = random.normal(0, cols**-0.5, (rows, cols)).astype(np.float32).view(np.uint32)
        writer.add_tensor(f"{name}.weight", (bits & np.uint32(0xFFFF0000)).view(np.float32))

    def norm(name, width, size=1.0):
        writer.add_tensor(f"{name}.weight", (size * random.normal(1, 0.2, width)).astype(np.float32))

    matrix("token_embd", VOCAB, hidden)
    for layer in range(layers):
        kv_heads, width = heads(keys, layer)
        queries, name = keys["attention.head_count"] * width, f"blk.{layer}"
        matrix(f"{name}.attn_q", queries, hidden)
        matrix(f"{name}.attn_k", kv_heads * width, hidden)
        if values or not is_gemma4 or keys["attention.sliding_window_pattern"][layer]:
            matrix(f"{name}.attn_v", kv_heads * width, hidden)
        matrix(f"{name}.attn_output", hidden, queries)
        matrix(f"{name}.ffn_gate", ffn, hidden)
        matrix(f"{name}.ffn_up", ffn, hidden)
        matrix(f"{name}.ffn_down", hidden, ffn)
        # Gemma 4 does not scale scores. They are large enough to show a fault.
        norm(f"{name}.attn_q_norm", width, query * 1.5 * width**-0.5 if is_gemma4 else query)
        norm(f"{name}.attn_k_norm", width)
        norm(f"{name}.attn_norm", hidden)
        norm(f"{name}.ffn_norm", hidden)
        # A layer adds little to the rest, or random layers would make much of a rounding.
        norm(f"{name}.post_attention_norm", hidden, 0.25)
        norm(f"{name}.post_ffw_norm", hidden, 0.25)
        if is_gemma4:
            factor = scalar * random.uniform(0.75, 1.3, 1)
            writer.add_tensor(f"{name}.layer_output_scale.weight", factor.astype(np.float32))
    # A cap shows in large logits.
    norm("output_norm", hidden, 5.0 if is_gemma4 else 1.0)
    if is_gemma4:
        put_divisors(writer, keys["attention.key_length"] // 2, turning)
    if not tied:
        matrix("output", VOCAB, hidden)
    end(writer)
    return path


def write_golden(path, case):
    """Writes a golden case of Gemma 4 in F32, and returns its path."""
    with open(os.path.join(golden, case, "config.hub_text.json"), encoding="utf-8") as file:
        return put_golden(path, case, "gemma4", json.load(file))


def write_drafter(path, case):
    """Writes a golden case of a Gemma 4's drafter in F32, and returns its path."""
    with open(os.path.join(golden, case, "config.hub.json"), encoding="utf-8") as file:
        config = json.load(file)
    layers = config["text_config"]["num_hidden_layers"]
    keys = {"embedding_length_out": config["backbone_hidden_size"], "nextn_predict_layers": layers}
    keys |= {"attention.shared_kv_layers": layers, "final_logit_softcapping": None}
    return put_golden(path, case, "gemma4-assistant", config["text_config"], keys)


def put_golden(path, case, family, config, keys=()):
    local = [kind == "sliding_attention" for kind in config["layer_types"]]
    kv_heads = [config[key] for key in ["num_key_value_heads", "num_global_key_value_heads"]]
    sizes = {
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.sliding_window": config["sliding_window"],
    }
    usual = gemma4(local, kv_heads, [config["head_dim"], config["global_head_dim"]])
    writer = begin(path, {**usual, **sizes, **dict(keys)}, family)
    with open(os.path.join(golden, "tokenizer", "tokenizer.json"), "rb") as file:
        put_tokenizer(writer, file.read(), True)
    for name, values in tensors(os.path.join(golden, case, "model.safetensors")).items():
        writer.add_tensor(renamed(name), values)
    put_divisors(writer, config["global_head_dim"] // 2, 0.25)
    end(writer)
    return path


def tensors(path):
    """The tensors of a safetensors file as F32."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        body = file.read()

    def read(tensor):
        raw = body[slice(*tensor["data_offsets"])]
        if tensor["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, np.float32)
        return values.reshape(tensor["shape"])

    return {name: read(tensor) for name, tensor in header.items() if name != "__metadata__"}


def renamed(name):
    """The name in GGUF files of a tensor of transformers."""
    whole = {"embed_tokens": "token_embd", "norm": "output_norm"}
    whole |= {part: f"nextn.{part}" for part in ["pre_projection", "post_projection"]}
    parts = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "layer_scalar": "layer_output_scale",
    }
    name = name.removeprefix("model.").removesuffix(".weight")
    if name in whole:
        return f"{whole[name]}.weight"
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{parts[part]}.weight"


def put_divisors(writer, pairs, turning):
    """Adds the divisors of the global layers' frequencies: 1 for the pairs that turn."""
    divisors = np.full(pairs, 1e30, np.float32)
    divisors[: int(pairs * turning)] = 1
    writer.add_tensor("rope_freqs.weight", divisors)


def write_vocabulary(path, tokenizer_json, listed):
    """Writes the tokenizer of a tokenizer.json without a model, in Gemma 4's form if `listed`, and returns its path."""
    writer = begin(path, gemma4([True, False]) if listed else gemma3(1), "gemma4" if listed else "gemma3")
    put_tokenizer(writer, tokenizer_json, listed)
    end(writer)
    return path


def begin(path, keys, family):
    writer = gguf.GGUFWriter(path, family)
    for name, value in keys.items():
        match value:
            case list():
                writer.add_array(f"{family}.{name}", value)
            case str():
                writer.add_string(f"{family}.{name}", value)
            case float():
                writer.add_float32(f"{family}.{name}", value)
            case int():
                writer.add_uint32(f"{family}.{name}", value)
    return writer


def end(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def put_tokenizer(writer, tokenizer_json, listed):
    """Adds a tokenizer: as SentencePiece has it, where a token's score follows from the rank of its first merge, or, if
    `listed`, as Gemma 4's files have it, with the merges themselves."""
    tokenizer, kinds = json.loads(tokenizer_json), gguf.TokenType
    vocab = tokenizer["model"]["vocab"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    ranks = {}
    for pair in merges:
        ranks.setdefault(pair.replace(" ", "", 1), len(ranks))
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
    writer.add_tokenizer_model("gemma4" if listed else "llama")
    writer.add_token_list(texts)
    writer.add_token_scores([-1000.0] * len(texts) if listed else scores)
    writer.add_token_types(types)
    if listed:
        writer.add_token_merges(merges)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
