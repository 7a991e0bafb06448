"""The figures in PyTorch, as training reports them: greedy answers to the sets of questions, and perplexity.

`evaluate` measures the same through the `kiln` executable.
"""

import json
import math

import torch
import torch.nn.functional as F

from batches import encode, turn_texts
from dialogues import FREE_FILES, HELDOUT_FILE
from facts import faults

STOP = (1, 106)
LONGEST = 256  # tokens of an answer


def turns_of(entry):
    """[(question, reply), ...] of a held-out dialogue; the last reply is the right one, where there is one."""
    said = [message["content"] for message in entry["messages"]] + [entry.get("answer", "")]
    return list(zip(said[::2], said[1::2]))


def prompt(tokenizer, entry):
    """The ids that the model answers."""
    turns = turns_of(entry)
    ids, _ = encode(tokenizer, turns[:-1], 1 << 20)
    return ids + tokenizer.encode(turn_texts(*turns[-1])[0], add_special_tokens=False).ids


def padded(rows, device):
    """ids and documents [B, T]; the padding on the right is nobody's document."""
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device)
    real = torch.tensor([[0] * len(row) + [1] * (length - len(row)) for row in rows], device=device)
    return ids, real


@torch.no_grad()
def answers(model, tokenizer, prompts, device, size=256, **how):
    """Greedy answers as text."""
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    said = [[] for _ in prompts]
    for first in range(0, len(order), size):
        unfinished = order[first : first + size]
        for _ in range(LONGEST):
            rows = [prompts[at] + said[at] for at in unfinished]
            ids, documents = padded(rows, device)
            ends = torch.tensor([len(row) - 1 for row in rows], device=device)
            logits = model(ids, documents, **how)[torch.arange(len(rows), device=device), ends]
            chosen = dict(zip(unfinished, logits.argmax(-1).tolist()))
            unfinished = [at for at in unfinished if chosen[at] not in STOP]
            for at in unfinished:
                said[at].append(chosen[at])
            if not unfinished:
                break
    return [tokenizer.decode(tokens) for tokens in said]


@torch.no_grad()
def perplexity(model, dialogues, tokenizer, device, size=100, **how):
    """Perplexity over every token after <bos>."""
    rows = sorted((encode(tokenizer, turns, 1 << 20)[0] for turns in dialogues), key=len)
    total = count = 0.0
    for first in range(0, len(rows), size):
        ids, documents = padded(rows[first : first + size], device)
        logits = model(ids, documents, **how)[:, :-1].float()
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(ids[:, 1:])
        seen = documents[:, 1:] == 0
        total, count = total + loss[seen].double().sum().item(), count + seen.sum().item()
    return math.exp(total / count)


def report(model, tokenizer, device, **how):
    """Prints the share of each set and every question that was not answered right."""
    exact, *free = [json.loads(file.read_text()) for file in (HELDOUT_FILE, *FREE_FILES)]
    asked = [entry for entries in (exact, *free) for entry in entries]
    got = answers(model, tokenizer, [prompt(tokenizer, entry) for entry in asked], device, **how)
    wrong = [(entry, said, f"right: {entry['answer']}") for entry, said in zip(exact, got) if said != entry["answer"]]
    show(wrong, f"exact: {len(exact) - len(wrong)} of {len(exact)}")
    rest = iter(got[len(exact) :])
    for file, entries in zip(FREE_FILES, free):
        judged = [(entry, said, ", ".join(faults(entry, said))) for entry, said in zip(entries, rest)]
        wrong = [(entry, said, why) for entry, said, why in judged if why]
        show(wrong, f"{file.stem}: {len(entries) - len(wrong)} of {len(entries)}")


def show(wrong, title):
    for entry, said, why in wrong:
        asked = " / ".join(message["content"] for message in entry["messages"] if message["role"] == "user")
        print(f"> {asked}\n  {why}\n  got:   {said}")
    print(title, flush=True)


def drift(model, tokenizer, device, transforms):
    """Prints the perplexity on the dialogues of heldout.json under each of {name: transform}."""
    dialogues = [turns_of(entry) for entry in json.loads(HELDOUT_FILE.read_text())]
    for name, transform in transforms.items():
        figure = perplexity(model, dialogues, tokenizer, device, transform=transform)
        print(f"perplexity {name}: {figure:.5f}", flush=True)
