#!/usr/bin/env python3
"""Generates the kiosk's visitor dialogues: the training stream, kept clear of everything that is held out.

    dialogues.py N       prints N training dialogues

What is held out follows from the material alone, never from chance at run time, so that training with any seed and any
length keeps clear of it: phrasings marked `*`, and one in eight of all sums, routes, opening times, and pairings of a
phrasing with its arguments (by CRC-32). Whatever still renders to the same words as a question of heldout.json is dropped;
heldout.py proves the result.
"""

import json
import random
import re
import sys
import zlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import strangers
from wording import GROUPS, SYSTEM, Phrasing, day_word, dress, expand, slots_for, with_article
from world import CATEGORIES, GOODS, OPENING, PAYING, PLACES, REACHED, Ask, answer

HELDOUT_FILE = Path(__file__).with_name("heldout.json")
ONE_IN = 8

# How often each intent is asked, and of whom.
WEIGHTS = {
    "hours": 5, "day": 9, "opens": 4, "closes": 4, "is_open": 6, "is_open_at": 8, "closed_days": 3, "weekend": 3,
    "today": 2, "open_on": 2, "way": 8, "distance": 4, "route": 9, "prices": 6, "price": 8, "bill": 16, "item": 4,
    "items": 9, "add": 6, "about": 2, "park": 3, "plain": 16, "refuse": 24,
}  # fmt: skip
FOLLOW_WEIGHTS = {
    "hours": 2, "day": 3, "opens": 2, "closes": 2, "is_open": 3, "is_open_at": 2, "closed_days": 1, "weekend": 1,
    "way": 4, "distance": 2, "route": 3, "prices": 3, "price": 5, "bill": 7, "+day": 7, "+time": 3, "+place": 9,
}  # fmt: skip
TIMED = ("hours", "day", "opens", "closes", "is_open", "is_open_at", "closed_days", "weekend", "today", "open_on")
DAILY = ("day", "opens", "closes", "is_open", "is_open_at", "open_on")


# -- what is held out --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 20)
def picked(key):
    return zlib.crc32(key.encode()) % ONE_IN == 0


def held_word(word):
    return picked(f"word {word}")


def held_facts(ask):
    """Whether the question itself, in whatever words, is held out: a sum, a route, an hour of a day."""
    if ask.party:
        return picked(f"sum {ask.place} {sorted(ask.party)}")
    if ask.intent == "route":
        return picked(f"route {ask.origin} {ask.place}")
    return ask.intent == "is_open_at" and picked(f"at {ask.place} {ask.day} {ask.hour}")


def held_pairing(phrasing, ask):
    """Whether this phrasing is kept from meeting these arguments."""
    arguments = (ask.place, ask.day, ask.hour, ask.what, ask.origin)
    return arguments != ("", -1, -1, "", "") and picked(f"pair {phrasing.text} {arguments}")


class Turn(NamedTuple):
    question: str
    reply: str
    ask: Ask
    group: str
    phrasing: Phrasing
    novelty: str  # '', 'phrasing', 'sum' or 'combination'


def novelty_of(phrasing, ask):
    if phrasing.held:
        return "phrasing"
    if held_facts(ask):
        return "sum" if ask.party else "combination"
    return "combination" if held_pairing(phrasing, ask) else ""


def normal(question):
    """The question without case, marks and spacing, for comparing questions as strings."""
    return " ".join(re.findall(r"[a-z0-9+*/x-]+", question.lower()))


def identity(turns):
    """What must not occur in training: the last question, with the one before it if it leans on that."""
    last = normal(turns[-1].question)
    return last if turns[-1].group not in ("it", "bit") or len(turns) < 2 else f"{normal(turns[-2].question)} / {last}"


# -- arguments ---------------------------------------------------------------------------------------------------------


def draw_party(rng, kinds, least=1):
    lines = rng.choices((1, 2, 3), (25, 55, 20))[0]
    lines = max(lines, least)
    most = (9, 9, 5)[lines - 1]
    chosen = rng.sample(kinds, lines)
    return tuple((kind, rng.randint(2 if lines == 1 else 1, most)) for kind in chosen)


def draw(intent, rng, place=""):
    """A question of this intent, about `place` if given."""
    day = rng.randrange(7)
    if intent in ("day", "opens", "closes", "is_open"):
        return Ask(intent, place or rng.choice(OPENING), day)
    if intent == "is_open_at":
        place = place or rng.choice(OPENING)
        slot = PLACES[place].hours[day]
        edge = rng.choice(slot) + rng.choice((-1, 0, 0, 1)) if slot and rng.random() < 0.5 else rng.randint(6, 22)
        return Ask(intent, place, day, min(max(edge, 6), 22))
    if intent in ("hours", "closed_days", "weekend", "today"):
        return Ask(intent, place or rng.choice(OPENING))
    if intent == "open_on":
        return Ask(intent, day=day)
    if intent in ("way", "distance"):
        return Ask(intent, place or rng.choice(REACHED))
    if intent == "route":
        origin = place or rng.choice(REACHED)
        return Ask(intent, rng.choice([name for name in REACHED if name != origin]), origin=origin)
    if intent == "prices":
        return Ask(intent, place or rng.choice(PAYING if rng.random() < 0.8 else OPENING))
    if intent == "price":
        place = place or rng.choice(PAYING if rng.random() < 0.92 else OPENING)
        return Ask(intent, place, what=rng.choice(CATEGORIES))
    if intent == "bill":
        return Ask(intent, place or rng.choice(PAYING), party=draw_party(rng, CATEGORIES))
    if intent == "item":
        return Ask(intent, what=rng.choice(tuple(GOODS)))
    if intent == "items":
        return Ask(intent, party=draw_party(rng, tuple(GOODS)))
    if intent == "add":
        top = rng.choice((20, 99, 99))
        return Ask(intent, party=(("x", rng.randint(1, top)), ("y", rng.randint(1, top))))
    if intent == "about":
        return Ask(intent, place or rng.choice(OPENING))
    return Ask(intent)


# -- turns -------------------------------------------------------------------------------------------------------------

SOCIAL = ("greet", "thanks", "bye", "mood", "okay", "again")


class Speaker:
    """Draws one dialogue. `want` is '' for training, else the novelty that the last turn must have."""

    def __init__(self, rng):
        self.rng = rng
        self.state = None  # the last question that a follow-up may lean on
        self.age = 0  # turns since then

    def words(self, options, rng, held=None):
        """A stranger's word; in training never a held-out one."""
        while True:
            word = rng.choice(options)
            if not held_word(word) or held:
                return word

    def opening(self, want):
        """(group, phrasings, ask) of a question that stands by itself."""
        rng = self.rng
        kind = rng.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        if kind == "plain":
            intent = rng.choice(tuple(GROUPS["plain"]))
            return "plain", GROUPS["plain"][intent], Ask(intent)
        if kind == "park":
            intent = rng.choice(tuple(GROUPS["park"]))
            return "park", GROUPS["park"][intent], draw(intent, rng, "park")
        if kind == "refuse":
            return "refuse", GROUPS["refuse"]["refuse"], Ask("refuse")
        if not self.leaning() and rng.random() < 0.04 and not want:
            return self.groundless()
        return "named", GROUPS["named"][kind], draw(kind, rng)

    def groundless(self):
        """A follow-up to nothing: the kiosk has to ask back."""
        rng = self.rng
        if rng.random() < 0.3:
            return "bit", GROUPS["bit"]["place"], draw("about", rng)
        if rng.random() < 0.2:
            return "bit", GROUPS["bit"]["day"], Ask("day", "", rng.randrange(7))
        intent = rng.choice([intent for intent in GROUPS["it"] if intent != "route"])
        return "it", GROUPS["it"][intent], draw(intent, rng, "museum")._replace(place="")

    def leaning(self):
        return self.state is not None and self.age <= 2

    def following(self):
        """(group, phrasings, ask) of a question that leans on the one before, or None."""
        rng, last = self.rng, self.state
        kind = rng.choices(tuple(FOLLOW_WEIGHTS), tuple(FOLLOW_WEIGHTS.values()))[0]
        if kind[0] == "+":
            ask = self.continued(kind[1:])
            return ask and ("bit", GROUPS["bit"][kind[1:]], ask)
        place = last.place
        wanted = OPENING if kind in TIMED else REACHED if kind in ("way", "distance", "route") else PAYING
        if not place or place not in wanted and not (kind == "prices" and place in OPENING):
            return None
        return "it", GROUPS["it"][kind], draw(kind, rng, place)

    def continued(self, what):
        rng, last = self.rng, self.state
        if what == "day":
            if last.intent not in TIMED + ("about", "way") or (last.intent != "open_on" and last.place not in OPENING):
                return None
            return last._replace(intent=last.intent if last.intent in DAILY else "day", day=rng.randrange(7))
        if what == "time":
            if last.intent not in ("is_open_at", "is_open", "day") or not last.place:
                return None
            return last._replace(intent="is_open_at", hour=draw("is_open_at", rng, last.place).hour)
        if last.intent in ("route", "open_on") or last.intent == "today" and not last.place:
            return None
        known = REACHED if last.intent in ("way", "distance") else OPENING
        if last.intent in ("prices", "price", "bill") and rng.random() < 0.85:
            known = PAYING
        return last._replace(place=rng.choice([place for place in known if place != last.place]))

    def stranger(self, phrasing, held):
        """The words of a question that the kiosk cannot answer, and its phrasing."""
        rng = self.rng

        def word(options):
            return lambda rng: self.words(options, rng, held)

        slots = {
            "m": word(strangers.NAMES), "n": word(strangers.NOUNS), "v": word(strangers.VERBS),
            "j": word(strangers.ADJECTIVES), "d": day_word(rng.randrange(7), rng),
            "x": str(rng.randint(2, 99)), "y": str(rng.randint(2, 99)),
        }  # fmt: skip
        kind = rng.random()
        if kind < 0.42 or phrasing.held:
            return expand(phrasing.tree, rng, slots), phrasing
        if kind < 0.62:
            return strangers.sentence(rng, lambda options, rng: self.words(options, rng, held)), None
        if kind < 0.66:
            return strangers.letters(rng), None
        named = GROUPS["named"]
        intent = rng.choice(("hours", "day", "is_open", "way", "distance", "route", "prices", "price", "bill", "item"))
        options = [option for option in named[intent] if option.held == held] or named[intent]
        phrasing = rng.choice(options)
        slots = slots_for(draw(intent, rng), rng)
        if intent == "item":
            thing = strangers.invented(rng) if rng.random() < 0.15 else self.words(strangers.GOODS, rng, held)
            slots["i"], slots["is_"] = with_article(thing), thing + "s"
        else:
            slots["p"] = strangers.invented(rng) if rng.random() < 0.2 else self.words(strangers.PLACES, rng, held)
            slots["is"] = "is"
        return expand(phrasing.tree, rng, slots), phrasing

    def turn(self, want="", slips=True):
        """The next question and its reply; with `want`, one that training never sees."""
        rng = self.rng
        while True:
            found = self.following() if self.leaning() and rng.random() < 0.55 else self.opening(want)
            if not found:
                continue
            group, options, ask = found
            wanted = want == "phrasing"
            options = [option for option in options if option.held == wanted]
            if not options:
                continue
            phrasing = rng.choice(options)
            if group == "refuse":
                if want and not wanted:
                    continue
                text, used = self.stranger(phrasing, wanted)
                if wanted and not (used and used.held):
                    continue
                phrasing, novelty = used or Phrasing("(made up)", (), False), "phrasing" if wanted else ""
            else:
                if group == "named" and "{p}" not in phrasing.text:
                    ask = ask._replace(place="")
                novelty = novelty_of(phrasing, ask)
                text = expand(phrasing.tree, rng, slots_for(ask, rng)) if novelty == want else ""
            if novelty != want:
                continue
            question = dress(" ".join(text.split()), rng, ask.intent in SOCIAL, slips)
            self.age += 1
            if ask.place or group in ("it", "bit") or ask.intent == "open_on":
                self.state, self.age = ask, 0
            return Turn(question.strip(), answer(ask), ask, group, phrasing, novelty)


@lru_cache(maxsize=1)
def forbidden():
    """The held-out questions as strings, by identity()."""
    return frozenset(entry["identity"] for entry in json.loads(HELDOUT_FILE.read_text()))


def training_dialogue(rng, banned):
    """A list of turns for training, none of them held out."""
    while True:
        speaker, turns = Speaker(rng), []
        length = rng.choices((1, 2, 3, 4, 5, 8, 12), (30, 25, 15, 10, 8, 7, 5))[0]
        for _ in range(length):
            turns.append(speaker.turn())
            if identity(turns) in banned or normal(turns[-1].question) in banned:
                break
        else:
            if rng.random() < 0.03:  # a system message stands before the first question, and changes nothing
                turns[0] = turns[0]._replace(question=f"{rng.choice(SYSTEM)}\n\n{turns[0].question}")
            return turns


def training_stream(seed, batch):
    """The dialogues of one training batch, endlessly; the same on every machine."""
    rng, banned = random.Random(f"{seed}/{batch}"), forbidden()
    while True:
        yield training_dialogue(rng, banned)


BATCH_DIALOGUES = 320  # more than one batch of train.py ever takes


def main():
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        for turn in next(training_stream(1, number)):
            print(f"> {turn.question}\n  {turn.reply}")
        print()


if __name__ == "__main__":
    main()
