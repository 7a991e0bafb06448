"""Gemma 4's golden models, dense and of experts: transformers', llama.cpp's and Kiln's logits, Kiln's tokens, a drafter."""
import json
import os
import tempfile
import unittest

import gguf
import numpy as np

from engines import Llama, kiln, kiln_drafts, kiln_logits, quantized
from models import golden, tensors, write_drafter, write_golden

# Relative rms errors against transformers: llama.cpp's GELU is a table of F16, and Kiln keeps keys and values in F16.
LLAMA, KILN = 4e-3, 8e-3
DEVICES = {"reference": 1e-4, "cpu": KILN, "vulkan": KILN}
CASES = ["tiny4", "wide4", "moe4", "moe_wide4"]
# Files of experts: gates and ups in one tensor or in two, and wider experts, as some publishers pad them for larger blocks.
FORMS = {
    "moe4": {"merged": {}, "split": {"split": True}, "padded": {"width": 64}},
    "moe_wide4": {"merged": {}, "split": {"split": True}},
}
KINDS = [f"MOSTLY_{kind}" for kind in ["F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q5_1", "IQ4_NL", "Q4_K_M"]]
# Where two scores of a router are as close as this, rounding may choose another expert.
CLOSE = 0.03
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

    def model(self, case, **form):
        return write_golden(os.path.join(self.folder, f"{case}.gguf"), case, **form)

    def test_logits_are_transformers(self):
        for case in CASES:
            path = self.model(case)
            prompts, stored = read(case)
            with Llama(path) as model:
                for prompt in prompts:
                    name, ids = prompt["name"], prompt["ids"]
                    want = stored[f"{name}.logits"]
                    other, margins = model.logits_and_margins(ids)
                    figures = [self.check(f"{case} {name}, llama.cpp", other[-1], want, LLAMA)]
                    for device, bound in DEVICES.items():
                        got = kiln_logits(path, ids, device)
                        figures.append(self.check(f"{case} {name}, {device}", got[-1], want, bound))
                        self.check_rows(f"{case} {name}, {device} and llama.cpp", got, other, margins, LLAMA + bound)
                    print(f"{case} {name}: {', '.join(figures)}", flush=True)

    def test_experts_in_a_type_have_llama_cpps_logits_and_tokens(self):
        found = set()
        for case, forms in FORMS.items():
            prompts = [prompt["ids"] for prompt in read(case)[0]]
            for form, options in forms.items():
                source = self.model(case, **options)
                for kind in KINDS:
                    devices = DEVICES if form == "merged" else ["cpu"]
                    found |= self.check_type(f"{case} {form} {kind}", source, kind, devices, prompts)
        self.assertEqual(found, {"F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q5_1", "IQ4_NL", "Q4_K", "Q6_K"})

    def check_type(self, what, source, kind, devices, prompts):
        """Compares a file with llama.cpp's F32 of it, and returns its experts' types. From the file itself, llama.cpp rounds
        what it multiplies to 8 bits and so chooses other experts."""
        path = quantized(source, os.path.join(self.folder, "quantized"), kind, pure=False)
        with Llama(quantized(path, os.path.join(self.folder, "decoded"), "ALL_F32")) as model:
            wants = [model.logits_and_margins(prompt) for prompt in prompts]
            for device in devices:
                whole, bound = f"{what}, {device}", LLAMA + DEVICES[device]
                gots = [kiln_logits(path, prompt, device) for prompt in prompts]
                off = np.concatenate([self.check_rows(whole, got, *want, bound) for got, want in zip(gots, wants)])
                rows = sum(map(len, prompts))
                print(f"{whole}: at most {off.max():.1e} of {2 * bound:.0e}, {len(off)} of {rows} rows", flush=True)
                self.assertGreater(len(off), rows // 3, whole)
            self.check_greedy(model, path, "cpu", TEXTS[0], 10 * (LLAMA + KILN))
        types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
        self.assertEqual({kind for name, kind in types.items() if "ffn_gate_inp.weight" in name}, {"F32"})
        return {kind for name, kind in types.items() if "_exps.weight" in name}

    def check_rows(self, what, got, want, margins, bound):
        """The errors of the rows before the first with other experts."""
        off = np.array([error(*rows) for rows in zip(got, want)])
        count = self.before_other_experts(what, off > 2 * bound, margins)
        if count:
            self.check(what, got[:count], want[:count], bound)
        return off[:count]

    def before_other_experts(self, what, is_off, margins):
        """The number of rows before the first that is off. That one has chosen closely, and later ones see its keys."""
        count = int(np.argmax([*is_off, True]))
        if count < len(is_off):
            self.assertLess(margins[count], CLOSE, f"{what}, row {count} of {len(is_off)}")
        return count

    def check(self, what, got, want, bound):
        off = error(got, want)
        self.assertLess(off, bound, what)
        return f"{what.rsplit(', ', 1)[1]} {off:.1e} of {bound:.0e}"

    def test_greedy_tokens_are_llama_cpps(self):
        for case in CASES:
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
        behind = slice(len(reply["prompt_tokens"]) - 1, -1)
        logits, margins = (rows[behind] for rows in model.logits_and_margins(tokens))
        same = [row.argmax() == token for row, token in zip(logits, reply["tokens"])]
        lead = np.array([row.max() - row[token] for row, token in zip(logits, reply["tokens"])])
        is_off = lead >= bound * np.sqrt(np.square(logits).mean(1))
        self.assertEqual(len(same), STEPS, f"{device}, {text!r}")
        count = self.before_other_experts(f"{device}, {text!r}, {tokens}", is_off, margins)
        print(f"{device}, {text!r}: {sum(same[:count])} of {count} tokens are llama.cpp's likeliest", flush=True)

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
