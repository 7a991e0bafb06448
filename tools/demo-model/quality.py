"""The two figures in PyTorch, as training reports them: exact greedy answers and perplexity on the held-out dialogues.

`evaluate` measures the same through the `kiln` executable.
"""

import json
import math

import torch
import torch.nn.functional as F

from batches import encode, turn_texts
from dialogues import HELDOUT_FILE

STOP = (1, 106)
LONGEST = 96  # tokens of an answer


def heldout(tokenizer):
    """[(prompt ids, answer, [(question, reply), ...])] of the held-out dialogues."""
    out = []
    for entry in json.loads(HELDOUT_FILE.read_text()):
        said = [message["content"] for message in entry["messages"]] + [entry["answer"]]
        turns = list(zip(said[::2], said[1::2]))
        prompt, _ = encode(tokenizer, turns[:-1], 1 << 20)
        prompt += tokenizer.encode(turn_texts(*turns[-1])[0], add_special_tokens=False).ids
        out.append((prompt, entry["answer"], turns))
    return out


def padded(rows, device):
    """ids and documents [B, T]; the padding on the right is nobody's document."""
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device)
    real = torch.tensor([[0] * len(row) + [1] * (length - len(row)) for row in rows], device=device)
    return ids, real


@torch.no_grad()
def answers(model, tokenizer, prompts, device, size=100, **how):
    """Greedy answers as text."""
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    out = [""] * len(prompts)
    for first in range(0, len(order), size):
        group = order[first : first + size]
        rows, said, open_rows = [list(prompts[at]) for at in group], [[] for _ in group], set(range(len(group)))
        for _ in range(LONGEST):
            ids, documents = padded(rows, device)
            ends = torch.tensor([len(row) - 1 for row in rows], device=device)
            logits = model(ids, documents, **how)[torch.arange(len(rows), device=device), ends]
            for row, token in enumerate(logits.argmax(-1).tolist()):
                if row in open_rows and token in STOP:
                    open_rows.remove(row)
                elif row in open_rows:
                    said[row].append(token)
                    rows[row].append(token)
            if not open_rows:
                break
        for at, tokens in zip(group, said):
            out[at] = tokenizer.decode(tokens)
    return out


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


def report(model, tokenizer, device, name, show, **how):
    """Prints both figures and the first mismatches; returns (share exact, perplexity)."""
    held = heldout(tokenizer)
    got = answers(model, tokenizer, [prompt for prompt, _, _ in held], device, **how)
    wrong = [(turns[-1][0], want, said) for (_, want, turns), said in zip(held, got) if said != want]
    share, figure = (
        1 - len(wrong) / len(held),
        perplexity(model, [turns for *_, turns in held], tokenizer, device, **how),
    )
    print(f"{name}: {len(held) - len(wrong)} of {len(held)} exact ({100 * share:.1f} %), perplexity {figure:.4f}")
    for question, want, said in wrong[:show]:
        print(f"    {question!r}\n      want {want}\n      got  {said}")
    return share, figure
