#!/usr/bin/env python3
"""The proof that training never shows a held-out question.

heldout.py N     generates the first N batches of the training stream (N = the training's steps: all of it) and checks that
                 no dialogue shows a held-out phrasing, sum, combination or question of heldout.json, or a question of
                 free.json, blind.json, fresh.json, unseen.json or late.json or one that differs from it by a word, and
                 that no question has two answers; prints the counts, exits 1 otherwise

heldout.json is fixed: the generator drew it once, at seed 20, when it knew less than today. The others were
written by hand.
"""

import argparse
import json
import sys
from itertools import islice

from dialogues import (
    BATCH_DIALOGUES,
    HELDOUT_FILE,
    ONE_IN,
    freely_worded,
    is_forbidden,
    is_held,
    normal,
    training_stream,
)
from wording import GROUPS, twin_phrasings


class Proof:
    """What training shows, gathered dialogue by dialogue, and whatever of it is held out."""

    def __init__(self):
        self.overlaps, self.clashes = [], {}
        self.dialogues = self.questions = 0
        self.replies, self.phrasings, self.sums = {}, set(), set()

    def add(self, turns):
        self.dialogues += 1
        for at, turn in enumerate(turns):
            self.questions += 1
            self.phrasings.add(turn.phrasing.text)
            question = normal(turn.question)
            for ask in (turn.ask, *turn.ask.parts):
                if ask.party:
                    self.sums.add((ask.place, tuple(sorted(ask.party))))
            if is_held(turn.phrasing, turn.ask) or is_forbidden(turns[: at + 1]):
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
        print(f"          {len(freely_worded())} freely worded questions")
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
    parser.add_argument("batches", type=int, metavar="N", help="check N training batches")
    parser.add_argument("--seed", type=int, default=1, help="of the training")
    options = parser.parse_args()
    sys.exit(0 if prove(options.batches, options.seed) else 1)


if __name__ == "__main__":
    main()
