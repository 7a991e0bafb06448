"""GGUF files: small models of Gemma 3 and 4 with random weights, golden models, and a tokenizer alone."""
import hashlib
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


def write_golden(path, case, split=False, width=None):
    """Writes a golden case of Gemma 4 in F32, and returns its path.

    Of experts, `split` keeps gates and ups apart, and zeros pad them to `width`.
    """
    with open(os.path.join(golden, case, "config.hub_text.json"), encoding="utf-8") as file:
        config, keys = json.load(file), {}
    if config.get("num_experts"):
        width = width or config["moe_intermediate_size"]
        keys = {"expert_count": config["num_experts"], "expert_used_count": config["top_k_experts"]}
        keys["expert_feed_forward_length"] = width
    return put_golden(path, case, "gemma4", config, keys, split, width)


def write_drafter(path, case):
    """Writes a golden case of a Gemma 4's drafter in F32, and returns its path."""
    with open(os.path.join(golden, case, "config.hub.json"), encoding="utf-8") as file:
        config = json.load(file)
    layers = config["text_config"]["num_hidden_layers"]
    keys = {"embedding_length_out": config["backbone_hidden_size"], "nextn_predict_layers": layers}
    keys |= {"attention.shared_kv_layers": layers, "final_logit_softcapping": None}
    return put_golden(path, case, "gemma4-assistant", config["text_config"], keys)


def put_golden(path, case, family, config, keys=(), split=False, width=None):
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
        put_tokenizer(writer, file.read(), True, config["vocab_size"])
    for name, values in weights(case).items():
        for name, values in in_form(renamed(name), values, split, width).items():
            writer.add_tensor(name, values)
    put_divisors(writer, config["global_head_dim"] // 2, 0.25)
    end(writer)
    return path


def in_form(name, values, split, width):
    """A tensor, or those in its place where experts have another form."""
    if "ffn_down_exps.weight" in name:
        return {name: np.pad(values, [(0, 0), (0, 0), (0, width - values.shape[2])])}
    if "ffn_gate_up_exps" not in name:
        return {name: values}
    more = width - values.shape[1] // 2
    halves = [np.pad(half, [(0, 0), (0, more), (0, 0)]) for half in np.split(values, 2, 1)]
    names = [name.replace("gate_up", half) for half in ["gate", "up"]]
    return dict(zip(names, halves)) if split else {name: np.concatenate(halves, 1)}


def weights(case):
    """A golden case's weights as F32: its file's, or those that its table of weights says how to draw."""
    path = os.path.join(golden, case, "model.safetensors")
    if os.path.exists(path):
        return tensors(path)
    with open(os.path.join(golden, case, "golden.json"), encoding="utf-8") as file:
        table = json.load(file)
    return {name: drawn(table["seed"], name, **of_name) for name, of_name in table["weights"].items()}


def drawn(seed, name, shape, std, mean, row_gain, bf16_sha256, **_):
    """A tensor of random BF16 numbers, as tests/common draws it."""
    values = normal(seed, name, np.prod(shape)) * np.float32(1 / 37837.227) * np.float32(std)
    if row_gain is None:
        values += np.float32(mean)
    else:
        values = values.reshape(-1, shape[-1])
        gains = normal(seed, f"{name}#row", len(values)) * np.float32(1 / 131070)
        values *= (1 + np.float32(row_gain) * gains)[:, None]
    bits = values.view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if hashlib.sha256(bits.astype("<u2").tobytes()).hexdigest() != bf16_sha256:
        raise AssertionError(f"{name} is drawn wrongly")
    return (bits << 16).view(np.float32).reshape(shape)


def normal(seed, name, count):
    """Sums of four 16-bit numbers each, about normal around 0, of SplitMix64 with a seed of its own for each name."""
    last, gold, seed_of_name = (1 << 64) - 1, 0x9E3779B97F4A7C15, 0xCBF29CE484222325
    for byte in name.encode():
        seed_of_name = (seed_of_name ^ byte) * 0x100000001B3 & last

    def mix(bits):
        bits = (bits ^ bits >> 30) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ bits >> 27) * np.uint64(0x94D049BB133111EB)
        return bits ^ bits >> 31

    first = mix(np.array([seed_of_name + seed * gold & last], np.uint64))
    bits = mix(first + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(gold))
    return (bits.view(np.uint16).reshape(-1, 4).sum(1, dtype=np.int64) - 131070).astype(np.float32)


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
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "post_feedforward_layernorm_2": "post_ffw_norm_2",
        "router.proj": "ffn_gate_inp",
        "experts.gate_up_proj": "ffn_gate_up_exps",
        "experts.down_proj": "ffn_down_exps",
    }
    scales = {"router.scale": "ffn_gate_inp", "router.per_expert_scale": "ffn_down_exps"}
    name = name.removeprefix("model.").removesuffix(".weight")
    if name in whole:
        return f"{whole[name]}.weight"
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{scales[part]}.scale" if part in scales else f"blk.{layer}.{parts[part]}.weight"


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


def put_tokenizer(writer, tokenizer_json, listed, size=None):
    """Adds a tokenizer: as SentencePiece has it, where a token's score follows from the rank of its first merge, or, if
    `listed`, as Gemma 4's files have it, with the merges themselves. Of its tokens only the first `size` remain."""
    tokenizer, kinds = json.loads(tokenizer_json), gguf.TokenType
    vocab = tokenizer["model"]["vocab"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    if size:
        vocab = {text: number for text, number in vocab.items() if number < size}
        merges = [pair for pair in merges if {*pair.split(" "), pair.replace(" ", "")} <= vocab.keys()]
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
