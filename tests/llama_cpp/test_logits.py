"""The logits of small models: Kiln's against llama.cpp's, from the same file and from what llama.cpp decodes of it."""
import os
import tempfile
import unittest

import gguf
import numpy as np

from engines import Llama, kiln_logits, quantized
from models import VOCAB, WINDOW, gemma3, gemma4, write_model

# The CPU executor has bounds of its own, ROUNDED_HERE.
DEVICES = ["reference", "vulkan"]
# The first layers after a global one are local again.
GEMMA3 = gemma3(8)
GEMMA4 = gemma4([True, True, True, False] * 2)
# The widths of the 31B's heads.
WIDE = {**gemma4([True, False], (2, 1), (256, 512)), "attention.head_count": 4, "feed_forward_length": 512}
PROMPTS = [WINDOW // 3, 3 * WINDOW + 4]  # tokens
# Relative rms errors. From F32, Kiln is 2e-4 off: it keeps keys and values in F16.
EXACT = 1e-3
# llama.cpp rounds what it multiplies a matrix with: to BF16 for BF16, and to 8 bits for quantised types, with a scale for 32
# values or, for the last two, for 256. That alone makes errors of half of these, which grow from layer to layer.
ROUNDED = {
    "ALL_F32": EXACT,
    "MOSTLY_F16": EXACT,
    "MOSTLY_BF16": 6e-3,
    "MOSTLY_Q8_0": 2e-2,
    "MOSTLY_Q5_0": 2e-2,
    "MOSTLY_Q4_0": 2e-2,
    "MOSTLY_Q4_1": 2e-2,
    "MOSTLY_Q5_1": 2e-2,
    "MOSTLY_IQ4_NL": 2e-2,
    "MOSTLY_Q2_K": 3e-2,
    "MOSTLY_Q3_K_M": 3e-2,
    "MOSTLY_Q5_K_M": 3e-2,
    "MOSTLY_Q6_K": 3e-2,
    "MOSTLY_IQ4_XS": 3e-2,
    "MOSTLY_Q4_K_M": 3e-2,
}
# Kiln's CPU executor rounds to 8 bits too, always with a scale for 32 values, for all but what it keeps in BF16.
ROUNDED_HERE = {kind: bound if kind in ("ALL_F32", "MOSTLY_F16", "MOSTLY_BF16") else 2e-2 for kind, bound in ROUNDED.items()}
# Gemma 3 270M's widths. Rows of 640 are no whole blocks of 256: llama.cpp takes Q5_0 and Q8_0 in place of Q4_K and Q6_K.
OF_270M = {
    "embedding_length": 640,
    "feed_forward_length": 2048,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
    "attention.key_length": 256,
    "attention.value_length": 256,
}
# Gemma 4's files: the types that differ in the way they are computed with, and those that public files have.
KINDS_OF_GEMMA4 = ["ALL_F32", "MOSTLY_F16", "MOSTLY_BF16", "MOSTLY_Q8_0", "MOSTLY_Q4_0", "MOSTLY_Q5_K_M", "MOSTLY_Q4_K_M"]
TYPES = {"F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "IQ4_NL"}
TYPES |= {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}
# Files that say something else. Each must be further off than any bound.
WRONG = {
    "a global layer's base": {"keys": {"rope.freq_base": 1e4}},
    "a local layer's base": {"keys": {"rope.freq_base_swa": 2e4}},
    "RoPE's factor": {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}},
    "a window of one less": {"keys": {"attention.sliding_window": WINDOW - 1}},
    "a global layer earlier": {"keys": {"attention.sliding_window_pattern": 5}},
    "the root of another width": {"query": 2**0.5},
}
WRONG_GEMMA4 = {
    "a global layer's base": {"keys": {"rope.freq_base": 1e4}},
    "a local layer's base": {"keys": {"rope.freq_base_swa": 2e4}},
    "an eighth of the pairs turns in global layers": {"turning": 0.125},
    "a window of one less": {"keys": {"attention.sliding_window": WINDOW - 1}},
    "scores scaled": {"query": 2**0.5},
    "a cap of 15": {"keys": {"final_logit_softcapping": 15.0}},
    "another layer's scalar": {"scalar": 0.8},
}
# Files as they may be. Kiln and llama.cpp must understand them alike. A file without a RoPE base is not among them: llama.cpp
# takes 1e4 there, Kiln the 1e6 of every Gemma 3, with a warning.
LOCAL = [True, True, False, False, True, False, True, True]
FORMS = {
    "a factor": {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}},
    "a factor in its older spelling": {"keys": {"rope.scale_linear": 8.0}},
    "a local base": {"keys": {"rope.freq_base_swa": 5e4}},
    "a pattern": {"keys": {"attention.sliding_window_pattern": 3}},
    "a pattern as a list": {"keys": {"attention.sliding_window_pattern": LOCAL}},
    "no window": {"keys": {"attention.sliding_window": None}},
    "a window of 0": {"keys": {"attention.sliding_window": 0}},
    "the embedding as the head": {"tied": True},
}
# Without a cap llama.cpp takes one of 30, Kiln none, as transformers does.
FORMS_GEMMA4 = {
    "values of their own in global layers": {"values": True},
    "half of the pairs turn in global layers": {"turning": 0.5},
    "a local base": {"keys": {"rope.freq_base_swa": 5e4}},
    "a cap of 60": {"keys": {"final_logit_softcapping": 60.0}},
    "a factor": {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}},
    "other layers are global": {"usual": gemma4([True, False, False, True, True, False, True, False])},
    "KV heads as a number": {"keys": {"attention.head_count_kv": 2}},
    "the embedding as the head": {"tied": True},
}


def prompt(length):
    return [2, *np.random.default_rng(length).integers(3, VOCAB, length - 1).tolist()]


def llama_logits(path, tokens):
    with Llama(path) as model:
        return model.logits(tokens)


def error(got, want):
    return np.sqrt(np.square(got - want).mean() / np.square(want).mean())


class Logits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, f"{name}.gguf")

    def model(self, kind, pure=True, name="model", usual=GEMMA3, **form):
        """A file whose matrices are in a type."""
        path = write_model(self.path(name), usual, **form)
        return path if kind == "ALL_F32" else quantized(path, self.path(f"{name}-{kind}"), kind, pure)

    def check(self, what, got, want, bound):
        """The error is within the bound, and the likeliest token the same where that bound leaves no doubt."""
        off = error(got, want)
        first, second = np.sort(want)[:, :-3:-1].T
        clear = first - second > 10 * bound * np.sqrt(np.square(want).mean())
        same = got.argmax(1) == want.argmax(1)
        figures = f"{off:.1e} of {bound:.0e}, {same[clear].sum()} of {clear.sum()} likeliest tokens, {len(want)} positions"
        print(f"{what}: {figures}", flush=True)
        self.assertLess(off, bound, what)
        self.assertTrue(same[clear].all(), what)
        self.assertGreaterEqual(clear.sum(), len(want) // 5, what)

    def check_type(self, kind, pure=True, **form):
        """Compares a file with llama.cpp, and returns the types of its matrices."""
        path = self.model(kind, pure, **form)
        types = {tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors if len(tensor.shape) > 1}
        decoded = quantized(path, self.path("decoded"), "ALL_F32")
        for tokens in map(prompt, PROMPTS):
            same, exact = llama_logits(path, tokens), llama_logits(decoded, tokens)
            for device in DEVICES:
                got = kiln_logits(path, tokens, device)
                what = f"{', '.join(sorted(types))} on {device}"
                self.check(f"{what}, the same file", got, same, ROUNDED[kind])
                self.check(f"{what}, decoded by llama.cpp", got, exact, EXACT)
            got = kiln_logits(path, tokens, "cpu")
            what = f"{', '.join(sorted(types))} on cpu, decoded by llama.cpp"
            self.check(what, got, exact, max(EXACT, ROUNDED_HERE[kind]))
        return types

    def test_a_type_has_llama_cpps_logits(self):
        found = set()
        for kind in ROUNDED:
            found |= self.check_type(kind)
        for keys in [{}, OF_270M]:
            found |= self.check_type("MOSTLY_Q4_K_M", False, keys=keys)
        self.assertEqual(found, TYPES)

    def test_a_type_of_gemma_4_has_llama_cpps_logits(self):
        for kind in KINDS_OF_GEMMA4:
            self.check_type(kind, usual=GEMMA4)
        for usual in [GEMMA4, WIDE]:
            self.check_type("MOSTLY_Q4_K_M", False, usual=usual)

    def test_62_layers_are_27bs(self):
        self.check_depth(gemma3(62))

    def test_60_layers_are_31bs(self):
        self.check_depth(gemma4(([True] * 5 + [False]) * 10))

    def check_depth(self, usual):
        path = write_model(self.path("deep"), usual)
        tokens = prompt(2 * WINDOW)
        want = llama_logits(path, tokens)
        for device in DEVICES:
            what = f"{usual['block_count']} layers on {device}"
            self.check(what, kiln_logits(path, tokens, device), want, 2 * EXACT)

    def test_other_forms_of_a_file_are_understood_alike(self):
        self.check_forms(GEMMA3, FORMS)

    def test_other_forms_of_a_gemma_4_are_understood_alike(self):
        self.check_forms(GEMMA4, FORMS_GEMMA4)

    def check_forms(self, usual, forms):
        tokens = prompt(PROMPTS[-1])
        plain = llama_logits(self.model("ALL_F32", usual=usual), tokens)
        for name, form in forms.items():
            path = self.model("ALL_F32", **{"usual": usual, **form})
            want = llama_logits(path, tokens)
            self.assertGreater(error(plain, want), 10 * EXACT, f"{name} says something")
            for device in DEVICES:
                self.check(f"{name} on {device}", kiln_logits(path, tokens, device), want, EXACT)

    def test_a_wrong_model_is_beyond_every_bound(self):
        for kind in ROUNDED:
            self.check_wrong(kind, GEMMA3, WRONG)
        for kind in KINDS_OF_GEMMA4:
            self.check_wrong(kind, GEMMA4, WRONG_GEMMA4)

    def check_wrong(self, kind, usual, wrong):
        tokens, bound = prompt(PROMPTS[-1]), ROUNDED[kind]
        want = llama_logits(self.model(kind, usual=usual), tokens)
        for name, form in wrong.items():
            path = self.model(kind, name="wrong", usual=usual, **form)
            off = error(kiln_logits(path, tokens, "reference"), want)
            print(f"{kind}, {name}: {off:.1e}, the bound is {bound:.0e}", flush=True)
            self.assertGreater(off, 2 * bound, f"{kind}, {name}")
