"""The ids of texts: llama.cpp's, Kiln's and those of the golden cases, from the same file."""
import json
import os
import tempfile
import unittest

from engines import Llama, kiln_ids
from models import golden, write_vocabulary

cases = os.path.join(golden, "tokenizer")
fetched = os.path.join(golden, "..", "..", "target", "gemma3-tokenizer", "tokenizer.json")


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


class Tokens(unittest.TestCase):
    def check(self, tokenizer, name):
        golden = json.loads(read(cases, name))
        # A conversation that the template refuses has no text.
        want = {case["text"]: case["ids"] for case in [*golden["cases"], *golden["chat"]] if "text" in case}
        # llama.cpp cuts runs of spaces out of a text before it writes them as "▁", so that the same run of literal
        # "▁" is not cut out.
        texts = [text for text in want if "▁▁" not in text]
        together = "\n".join(texts)
        for form, listed in [("by scores", False), ("by a list", True)]:
            with tempfile.TemporaryDirectory() as folder:
                path = write_vocabulary(os.path.join(folder, "vocabulary.gguf"), tokenizer, listed)
                with Llama(path, vocab_only=True) as model:
                    self.assertEqual({text: model.ids(text) for text in texts}, {text: want[text] for text in texts}, form)
                    self.assertEqual(kiln_ids(path, together), model.ids(together), form)
                    differing = [text for text in want if model.ids(text) != want[text]]
            self.assertEqual(differing, [text for text in want if "▁▁" in text], form)
            print(f"{name}, merges {form}: {len(texts)} of {len(want)} texts the same, and all of them in one", flush=True)

    def test_the_small_tokenizer(self):
        self.check(read(cases, "tokenizer.json"), "golden_tok_small.json")

    def test_gemma_3s_tokenizer(self):
        self.check(read(fetched), "gemma3_cases.json")
