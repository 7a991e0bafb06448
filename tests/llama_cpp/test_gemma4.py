"""Gemma 4's golden models: the logits of transformers, llama.cpp and Kiln, the tokens that Kiln chooses, and a drafter."""
import json
import os
import tempfile
import unittest

import numpy as np

from engines import Llama, kiln, kiln_drafts, kiln_logits
from models import golden, tensors, write_drafter, write_golden

# Relative rms errors against transformers: llama.cpp's GELU is a table of F16, and Kiln keeps keys and values in F16.
LLAMA, KILN = 4e-3, 8e-3
DEVICES = {"reference": 1e-4, "cpu": KILN, "vulkan": KILN}
TEXTS = ["The capital of France is", "a", "one two three four five six seven eight nine ten eleven twelve thirteen"]
STEPS = 40  # past the windows, of 16 and of 64


def error(got, want):
    return np.sqrt(np.square(got - want).mean() / np.square(want).mean())


def read(case):
    """A case's prompts, and its tensors."""
    with open(os.path.join(golden, case, "golden.json"), encoding="utf-8") as file:
        return json.load(file)["prompts"], tensors(os.path.join(golden, case, "golden.safetensors"))


class Golden(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def model(self, case):
        return write_golden(os.path.join(self.folder, f"{case}.gguf"), case)

    def test_logits_are_transformers(self):
        for case in ["tiny4", "wide4"]:
            path = self.model(case)
            prompts, stored = read(case)
            with Llama(path) as model:
                for prompt in prompts:
                    name, ids = prompt["name"], prompt["ids"]
                    want = stored[f"{name}.logits"]
                    other = model.logits(ids)
                    figures = [self.check(f"{case} {name}, llama.cpp", other[-1], want, LLAMA)]
                    for device, bound in DEVICES.items():
                        got = kiln_logits(path, ids, device)
                        figures.append(self.check(f"{case} {name}, {device}", got[-1], want, bound))
                        self.check(f"{case} {name}, {device} and llama.cpp", got, other, LLAMA + bound)
                    print(f"{case} {name}: {', '.join(figures)}", flush=True)

    def check(self, what, got, want, bound):
        off = error(got, want)
        self.assertLess(off, bound, what)
        return f"{what.rsplit(', ', 1)[1]} {off:.1e} of {bound:.0e}"

    def test_greedy_tokens_are_llama_cpps(self):
        for case in ["tiny4", "wide4"]:
            path = self.model(case)
            with Llama(path) as model:
                for device, bound in DEVICES.items():
                    for text in TEXTS:
                        self.check_greedy(model, path, device, text, 10 * (LLAMA + bound))

    def check_greedy(self, model, path, device, text, bound):
        """Each of Kiln's tokens is the likeliest after those before, or is as good as that."""
        where = ["-m", path, "--device", device, "--weights", "bf16", "--json"]
        reply = json.loads(kiln("run", *where, "--raw", "-p", text, "-n", str(STEPS)))
        self.assertEqual(reply["prompt_tokens"], [2, *model.ids(text)], repr(text))
        tokens = [*reply["prompt_tokens"], *reply["tokens"]]
        logits = model.logits(tokens)[len(reply["prompt_tokens"]) - 1 : -1]
        same = [row.argmax() == token for row, token in zip(logits, reply["tokens"])]
        for row, token in zip(logits, reply["tokens"]):
            doubt = bound * np.sqrt(np.square(row).mean())
            self.assertLess(row.max() - row[token], doubt, f"{device}, {text!r}, {tokens}")
        self.assertEqual(len(same), STEPS, f"{device}, {text!r}")
        print(f"{device}, {text!r}: {sum(same)} of {len(same)} tokens are llama.cpp's likeliest", flush=True)

    def test_a_drafters_logits_are_llama_cpps_and_transformers(self):
        """For one round behind each prompt. Every step is at the same position and writes no keys."""
        prompts, stored = read("drafter4")
        model, path = self.model("tiny4"), write_drafter(os.path.join(self.folder, "drafter4.gguf"), "drafter4")
        shape = len(prompts), *stored[f"{prompts[0]['name']}.logits"].shape
        own = {device: kiln_drafts(model, path, device).reshape(shape) for device in DEVICES}
        with Llama(model) as target, Llama(path) as drafter:
            for number, prompt in enumerate(prompts):
                name, ids, drafts = prompt["name"], prompt["ids"], prompt["f32"]
                states = [stored[f"{name}.hidden"], *stored[f"{name}.states"]]
                # The drafter's context clears the cache that it shares.
                with target.context() as cache, drafter.context(cache) as context:
                    target.run(cache, ids)
                    rounds = zip([drafts["token"], *drafts["ids"]], states, stored[f"{name}.logits"], drafts["ids"])
                    for step, (token, state, want, draft) in enumerate(rounds):
                        [got] = drafter.run(context, [token], len(ids), state)
                        figures = [self.check(f"step {step}, llama.cpp", got, want, LLAMA)]
                        self.assertEqual(got.argmax(), draft, name)
                        for device, bound in DEVICES.items():
                            row = own[device][number, step]
                            figures.append(self.check(f"{name} {step}, {device}", row, got, LLAMA + bound))
                            self.assertEqual(row.argmax(), draft, f"{name} {step}, {device}")
                        print(f"drafter4 {name}, step {step}: {', '.join(figures)}", flush=True)
