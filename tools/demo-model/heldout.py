#!/usr/bin/env python3
"""The held-out questions, and the proof that training never shows them.

heldout.py --write       rewrites heldout.json (300 questions, fixed by seed)
heldout.py --prove N     generates the first N batches of the training stream (N = the training's steps: all of it) and
                         checks that no dialogue shows a held-out phrasing, sum, combination or question, and that no
                         question has two answers; prints the counts, exits 1 otherwise
"""

import argparse
import json
import random
import sys
from itertools import islice

from dialogues import (
    BATCH_DIALOGUES,
    HELDOUT_FILE,
    ONE_IN,
    Speaker,
    forbidden,
    identity,
    normal,
    novelty_of,
    training_stream,
)
from wording import GROUPS, twin_phrasings

SEED, COUNT = 20, 300


def heldout_set():
    """The evaluation's questions: half new phrasings, a quarter new sums, a quarter new combinations."""
    rng, seen, entries = random.Random(SEED), set(), []
    kinds = ("phrasing", "sum", "phrasing", "combination")
    while len(entries) < COUNT:
        want = kinds[len(entries) % 4]
        speaker = Speaker(rng)
        turns = [speaker.turn(slips=False) for _ in range(rng.choices((0, 1, 2, 4), (55, 25, 15, 5))[0])]
        turns.append(speaker.turn(want, slips=False))
        if identity(turns) in seen:
            continue
        seen.add(identity(turns))
        entries.append(
            {
                "kind": want,
                "intent": turns[-1].ask.intent,
                "identity": identity(turns),
                "messages": messages(turns)[:-1],
                "answer": turns[-1].reply,
            }
        )
    return entries


def messages(turns):
    return [
        {"role": role, "content": text}
        for turn in turns
        for role, text in (("user", turn.question), ("assistant", turn.reply))
    ]


class Proof:
    """What training shows, gathered dialogue by dialogue, and whatever of it is held out."""

    def __init__(self):
        self.banned, self.overlaps, self.clashes = forbidden(), [], {}
        self.dialogues = self.questions = 0
        self.replies, self.phrasings, self.sums = {}, set(), set()

    def add(self, turns):
        self.dialogues += 1
        for at, turn in enumerate(turns):
            self.questions += 1
            self.phrasings.add(turn.phrasing.text)
            question = normal(turn.question)
            if turn.ask.party:
                self.sums.add((turn.ask.place, tuple(sorted(turn.ask.party))))
            if (
                novelty_of(turn.phrasing, turn.ask)
                or identity(turns[: at + 1]) in self.banned
                or question in self.banned
            ):
                self.overlaps.append(turn.question)
            if turn.group not in ("it", "bit") and self.replies.setdefault(hash(question), turn.reply) != turn.reply:
                self.clashes[question] = turn.reply

    def report(self):
        twins = twin_phrasings()
        held = json.loads(HELDOUT_FILE.read_text())
        kinds = {kind: sum(entry["kind"] == kind for entry in held) for kind in ("phrasing", "sum", "combination")}
        all_held = sum(option.held for group in GROUPS.values() for options in group.values() for option in options)
        print(
            f"training: {self.dialogues} dialogues, {self.questions} questions; {len(self.replies)} different ones that"
        )
        print(f"          stand alone, {len(self.phrasings)} phrasings, {len(self.sums)} sums")
        print(f"held out: {len(held)} questions ({', '.join(f'{n} new by {kind}' for kind, n in kinds.items())});")
        print(f"          {all_held} phrasings, one in {ONE_IN} of sums and combinations")
        print(f"overlaps: {len(self.overlaps)} questions, {len(twins)} phrasings; ", end="")
        print(f"questions with two answers: {len(self.clashes)}")
        for question in self.overlaps[:8] + twins[:8]:
            print("   ", question)
        return not self.overlaps and not twins


def prove(batches, seed):
    proof = Proof()
    for batch in range(batches):
        for turns in islice(training_stream(seed, batch), BATCH_DIALOGUES):
            proof.add(turns)
    return proof.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="rewrite heldout.json")
    parser.add_argument("--prove", type=int, default=0, metavar="N", help="check N training batches")
    parser.add_argument("--seed", type=int, default=1, help="of the training")
    options = parser.parse_args()
    if options.write:
        lines = ",\n".join(json.dumps(entry) for entry in heldout_set())
        HELDOUT_FILE.write_text(f"[\n{lines}\n]\n")
    if options.prove and not prove(options.prove, options.seed):
        sys.exit(1)


if __name__ == "__main__":
    main()
