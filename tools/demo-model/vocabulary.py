#!/usr/bin/env python3
"""Builds the demo model's tokenizer: Gemma 3's kind and special ids, with a vocabulary learnt from the dialogues.

    vocabulary.py        rewrites model/tokenizer.json, tokenizer_config.json and generation_config.json

Ids 0 to 493 mean what they mean in Gemma 3 (specials, unused, runs of newlines and spaces, bytes), except that HTML tags
are unused ids. BPE merges follow, learnt within words, so that numbers stay digit by digit and no piece spans two words.
"""

import json
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from dialogues import training_stream

DIRECTORY = Path(__file__).with_name("model")
SIZE = 1536
SEED, BATCHES, PER_BATCH = 7, 100, 300
RUN = 31  # longest run of newlines or spaces with an id of its own

CHAT_TEMPLATE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""


def reserved():
    """[(piece, special)] of the ids 0 to 237, as Gemma 3 has them."""
    pieces = [
        ("<pad>", True),
        ("<eos>", True),
        ("<bos>", True),
        ("<unk>", True),
        ("<mask>", False),
        ("[multimodal]", False),
    ]
    pieces += [(f"<unused{number}>", False) for number in range(99)]
    pieces += [("<start_of_turn>", True), ("<end_of_turn>", True)]
    pieces += [("\n" * run, False) for run in range(1, RUN + 1)]
    pieces += [("▁" * run, False) for run in range(2, RUN + 1)]
    pieces += [(f"<unused{number}>", False) for number in range(99, 169)]
    return pieces


def learnt_merges(count):
    """The first `count` merges that byte-pair encoding learns from the dialogues, and the characters they start from."""
    texts = (
        text.replace(" ", "▁")
        for batch in range(BATCHES)
        for turns in islice(training_stream(SEED, f"vocabulary {batch}"), PER_BATCH)
        for turn in turns
        for text in (turn.question, turn.reply)
    )
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Split(Regex(r"▁?[A-Za-z]+|."), "isolated")
    alphabet = [chr(code) for code in range(33, 127)] + ["▁"]
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + count, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    state = json.loads(learner.to_str())["model"]
    return alphabet, [tuple(merge) for merge in state["merges"]]


def build():
    pieces = reserved()
    added = [
        {"id": at, "content": piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": special}
        for at, (piece, special) in enumerate(pieces)
    ]  # fmt: skip
    vocabulary = [piece for piece, _ in pieces] + [f"<0x{byte:02X}>" for byte in range(256)]
    alphabet, merges = learnt_merges(SIZE - len(vocabulary) - 95)
    vocabulary += alphabet + [left + right for left, right in merges]
    if len(vocabulary) != SIZE or len(set(vocabulary)) != SIZE:
        raise SystemExit(f"vocabulary: {len(vocabulary)} pieces, {len(set(vocabulary))} different; {SIZE} wanted")
    spaces = [("▁" * left, "▁" * (run - left)) for run in range(RUN, 1, -1) for left in range(run - 1, 0, -1)]
    special = {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}
    bos, text = {"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    pair = [{"SpecialToken": {"id": "<bos>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing", "single": [bos, text], "pair": [bos, text, *pair], "special_tokens": special,
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": {piece: at for at, piece in enumerate(vocabulary)},
            "merges": [list(merge) for merge in spaces + merges],
        },
    }  # fmt: skip


def write(name, content):
    (DIRECTORY / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def check(path):
    """The file keeps digits apart, splits within words as it was learnt, and decodes to what it encoded."""
    tokenizer = Tokenizer.from_file(str(path))
    for turns in islice(training_stream(SEED + 1, "check"), 200):
        for turn in turns:
            ids = tokenizer.encode(turn.reply, add_special_tokens=False).ids
            words = [tokenizer.id_to_token(at) for at in ids]
            if tokenizer.decode(ids) != turn.reply:
                raise SystemExit(f"vocabulary: {turn.reply!r} does not survive encoding")
            if any("▁" in word[1:] or (len(word) > 1 and any(map(str.isdigit, word))) for word in words):
                raise SystemExit(f"vocabulary: a piece spans two words or digits in {words}")
    return tokenizer


def main():
    DIRECTORY.mkdir(exist_ok=True)
    write("tokenizer.json", build())
    write(
        "tokenizer_config.json",
        {
            "add_bos_token": True, "add_eos_token": False, "bos_token": "<bos>", "eos_token": "<eos>",
            "pad_token": "<pad>", "unk_token": "<unk>", "tokenizer_class": "GemmaTokenizer",
            "chat_template": CHAT_TEMPLATE,
        },
    )  # fmt: skip
    write(
        "generation_config.json", {"bos_token_id": 2, "eos_token_id": [1, 106], "pad_token_id": 0, "do_sample": False}
    )
    tokenizer = check(DIRECTORY / "tokenizer.json")
    print(tokenizer.get_vocab_size(), tokenizer.encode("How much is the museum for 12 adults?").tokens)


if __name__ == "__main__":
    main()
