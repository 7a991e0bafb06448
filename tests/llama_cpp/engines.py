"""What llama.cpp and Kiln make of a GGUF file."""
import contextlib
import ctypes
import json
import os
import subprocess

import llama_cpp
import numpy as np
from llama_cpp._ggml import libggml as ggml

root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PATIENCE = 600  # seconds of one call of Kiln


@llama_cpp.llama_log_callback
def say_nothing(*_):
    pass


llama_cpp.llama_log_set(say_nothing, None)


def quantized(source, target, kind, pure=True):
    """Has llama.cpp write a model's matrices in another type, and returns the new file's path.

    `kind` ends a name of llama.cpp's file types, LLAMA_FTYPE_. Without `pure` some matrices get a better type.
    """
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_{kind}")
    options.nthread, options.pure, options.allow_requantize = 2, pure, True
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(options)):
        raise AssertionError(f"llama.cpp cannot make {kind} of {source}")
    return target


class Llama:
    """A file that llama.cpp has loaded, for a `with` statement."""

    def __init__(self, path, vocab_only=False):
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers, options.vocab_only = 0, vocab_only
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise AssertionError(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        llama_cpp.llama_model_free(self.model)

    def logits(self, tokens):
        """The logits of all positions, [n, vocab], with attention in F32."""
        with self.context() as context:
            return self.run(context, tokens)

    def logits_and_margins(self, tokens):
        """The logits, and of each position how close the choice of experts is in the layer where it is closest: the score of
        the last one chosen less that of the first left out. Infinite in a model without experts."""
        scores, used = [], ctypes.create_string_buffer(16)
        ggml.ggml_get_name.restype, ggml.ggml_nbytes.restype = ctypes.c_char_p, ctypes.c_size_t

        @llama_cpp.ggml_backend_sched_eval_callback
        def keep(tensor, is_question, _):
            tensor = ctypes.c_void_p(tensor)
            if is_question:
                return ggml.ggml_get_name(tensor).startswith(b"ffn_moe_logits-")
            size = ctypes.c_size_t(ggml.ggml_nbytes(tensor))
            values = (ctypes.c_float * (size.value // 4))()
            ggml.ggml_backend_tensor_get(tensor, values, ctypes.c_size_t(0), size)
            scores.append(np.array(values).reshape(len(tokens), -1))
            return True

        with self.context(watch=keep) as context:
            logits = self.run(context, tokens)
        if not scores:
            return logits, np.full(len(tokens), np.inf)
        llama_cpp.llama_model_meta_val_str(self.model, b"gemma4.expert_used_count", used, len(used))
        falling = -np.sort(-np.stack(scores))
        return logits, (falling[..., int(used.value) - 1] - falling[..., int(used.value)]).min(0)

    @contextlib.contextmanager
    def context(self, target=None, watch=None):
        """A context with a cache of its own, or a drafter's with that of a target. `watch` sees its tensors."""
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = 512
        options.n_threads = options.n_threads_batch = 2
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if watch:
            options.cb_eval = watch
        if target:
            options.ctx_type, options.ctx_other = llama_cpp.LLAMA_CONTEXT_TYPE_MTP, target
        context = llama_cpp.llama_init_from_model(self.model, options)
        if not context:
            raise AssertionError("llama.cpp cannot make a context")
        try:
            yield context
        finally:
            llama_cpp.llama_free(context)

    def run(self, context, tokens, first=0, state=None):
        """The logits of a pass whose first token has the position `first`. A drafter's only token also has a state."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.logits[i] = token, first + i, True
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            if state is not None:
                batch.embd = (ctypes.c_float * len(state))(*state)
            if llama_cpp.llama_decode(context, batch):
                raise AssertionError("llama.cpp cannot run the prompt")
            width = llama_cpp.llama_vocab_n_tokens(self.vocab)
            rows = (llama_cpp.llama_get_logits_ith(context, i) for i in range(len(tokens)))
            return np.stack([np.ctypeslib.as_array(row, (width,)).copy() for row in rows])
        finally:
            batch.embd = None
            llama_cpp.llama_batch_free(batch)

    def ids(self, text):
        """The ids of a text without BOS. What spells a special token is one."""
        text = text.encode()
        room = 3 * len(text) + 1  # a space may become the three bytes of "▁"
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), ids, room, False, True)
        if count < 0:
            raise AssertionError(f"llama.cpp makes {-count} tokens of {len(text)} bytes")
        return list(ids[:count])


def kiln(*arguments, text=None):
    """What Kiln prints, given a text on its standard input."""
    command = [os.environ["KILN"], *arguments]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", timeout=PATIENCE)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def kiln_logits(path, tokens, device, out=None):
    """The logits of all positions, [n, vocab], by way of the file `out`. Matrices in F32, F16 and BF16 stay as they are."""
    out = out or f"{path}.logits"
    where = ["-m", path, "--device", device, "--weights", "bf16", "--all", "--out", out]
    kiln("logits", *where, "--tokens", ",".join(map(str, tokens)))
    with open(out, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start, end = header["logits"]["data_offsets"]
        file.seek(start, os.SEEK_CUR)
        return np.frombuffer(file.read(end - start), np.float32).reshape(header["logits"]["shape"])


def kiln_drafts(path, drafter, device):
    """The logits of a draft's steps behind each golden prompt, one after the other, which a test of Kiln writes."""
    out = f"{drafter}.{device}"
    names = {"MODEL": path, "DRAFTER": drafter, "DEVICE": device, "OUT": out}
    environment = os.environ | {f"KILN_{name}": value for name, value in names.items()}
    test = ["--test", "sequences", "--", "--ignored", "--exact", "drafter::writes_the_logits_of_drafts"]
    command = ["cargo", "test", "--locked", "--workspace", "--quiet", *test]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return np.fromfile(out, np.float32)


def kiln_ids(path, text):
    """The ids of a text without BOS."""
    return json.loads(kiln("tokenize", "-m", path, "--no-bos", text=text))["ids"]
