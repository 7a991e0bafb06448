"""Gemma 3 270M, whose weights are real: ids, logits and likeliest tokens, llama.cpp's and Kiln's, from the same file."""
import json
import os
import tempfile
import unittest

import numpy as np

from engines import Llama, kiln, kiln_ids, kiln_logits
from models import golden

folder = os.path.normpath(os.path.join(golden, "..", "..", "target", "gemma-3-270m"))
path = os.path.join(folder, "gemma-3-270m-Q4_K_M.gguf")
# llama.cpp rounds what it multiplies with to 8 bits; its logits differ by that from those of the formulas.
LOGITS = 6e-2  # relative rms error
DOUBT = 0.5  # of logits: between two that are nearer to each other, rounding decides
TEXTS = [
    "The capital of France is",
    "Monday, Tuesday, Wednesday,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Die Hauptstadt von Deutschland ist",
]


class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(path):
            raise AssertionError(f"{path} is missing; run tools/fetch-gemma")
        cls.llama = cls.enterClassContext(Llama(path))

    def test_texts_have_the_same_ids(self):
        with open(os.path.join(golden, "tokenizer", "gemma3_cases.json"), encoding="utf-8") as file:
            cases = json.load(file)
        # llama.cpp takes a run of literal "▁" for one of spaces: see test_tokens.py.
        texts = [case["text"] for case in cases["cases"] if "▁▁" not in case["text"]]
        for text in [*texts, "\n".join(texts)]:
            self.assertEqual(kiln_ids(path, text), self.llama.ids(text), repr(text[:80]))
        print(f"{len(texts)} texts have the same ids, and all of them in one", flush=True)

    def test_logits_and_likeliest_tokens(self):
        with open(os.path.join(golden, "prose.txt"), encoding="utf-8") as file:
            text = file.read()
        tokens = [2, *self.llama.ids(text)[:127]]
        want = self.llama.logits(tokens)
        first, second = np.sort(want)[:, :-3:-1].T
        place = self.enterContext(tempfile.TemporaryDirectory())
        for device in ["reference", "cpu", "vulkan"]:
            got = kiln_logits(path, tokens, device, os.path.join(place, "logits"))
            off = np.sqrt(np.square(got - want).mean() / np.square(want).mean())
            clear = first - second > DOUBT
            same = got.argmax(1) == want.argmax(1)
            print(f"{device}: {off:.1e} off, {same[clear].sum()} of {clear.sum()} clear tokens the same, {same.sum()} of all")
            self.assertLess(off, LOGITS, device)
            self.assertTrue(same[clear].all() and clear.sum() > 60, device)

    def test_greedy_replies_are_llama_cpps_choices(self):
        same = total = 0
        for text in TEXTS:
            got = json.loads(kiln("run", "-m", path, "--raw", "-p", text, "-n", "16", "--device", "cpu", "--json"))
            self.assertEqual(got["prompt_tokens"], [2, *self.llama.ids(text)], repr(text))
            reply = got["tokens"]
            self.assertGreaterEqual(len(reply), 8, repr(text))
            tokens = [*got["prompt_tokens"], *reply]
            for token, logits in zip(reply, self.llama.logits(tokens)[len(tokens) - len(reply) - 1 :]):
                self.assertLess(logits.max() - logits[token], DOUBT, f"{text!r}, {reply}")
                same, total = same + (logits.argmax() == token), total + 1
        print(f"{same} of {total} tokens are llama.cpp's likeliest", flush=True)
        self.assertGreater(same, 0.9 * total)
