#!/usr/bin/env python3
"""Generates the kiosk's visitor dialogues: the training stream and the held-out questions, proved disjoint.

    dialogues.py --show 5            prints five training dialogues
    dialogues.py --heldout           rewrites heldout.json (300 questions, fixed by seed)
    dialogues.py --prove N           generates the first N batches of the training stream (N = the training's steps: all
                                     of it) and checks that no dialogue shows a held-out phrasing, sum, combination or
                                     question; prints the counts, exits 1 on any overlap

What is held out follows from the material alone, never from chance at run time, so that training with any seed and any
length keeps clear of it: phrasings marked `*`, and one in eight of all sums, routes, opening times, and pairings of a
phrasing with its arguments (by CRC-32). Whatever still renders to the same words as a held-out question is dropped.
"""

import argparse
import json
import random
import re
import sys
import zlib
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import phrases
import strangers
from world import CATEGORIES, DAYS, FIXED, GOODS, OPENING, PAYING, PLACES, PLURAL, REACHED, Ask, answer

HELDOUT_FILE = Path(__file__).with_name("heldout.json")
HELDOUT_SEED, HELDOUT_COUNT = 20, 300
ONE_IN = 8

PLACE_WORDS = {
    "greenhouse": ("greenhouse", "greenhouse", "glasshouse"),
    "castle tower": ("castle tower", "castle tower", "tower", "castle"),
    "boat house": ("boat house", "boat house", "boathouse", "boat hire"),
    "mini golf": ("mini golf", "mini golf", "minigolf", "mini golf course"),
    "cafe": ("cafe", "cafe", "coffee shop"),
    "gift shop": ("gift shop", "gift shop", "shop", "souvenir shop"),
    "playground": ("playground", "playground", "play area"),
    "toilets": ("toilets", "toilets", "toilet", "restroom", "bathroom", "wc"),
    "car park": ("car park", "car park", "parking lot"),
    "train station": ("train station", "train station", "station"),
    "bus stop": ("bus stop", "bus stop", "bus"),
    "first aid post": ("first aid post", "first aid"),
    "lockers": ("lockers", "lockers", "locker"),
    "cash machine": ("cash machine", "cash machine", "atm"),
    "picnic area": ("picnic area", "picnic area", "picnic place"),
}
VISITORS = {
    "adult": (("adult", "adults"), ("adult", "adults"), ("grown-up", "grown-ups")),
    "child": (("child", "children"), ("child", "children"), ("kid", "kids")),
    "senior": (("senior", "seniors"), ("senior", "seniors"), ("pensioner", "pensioners")),
    "student": (("student", "students"),),
}
NUMBER_WORDS = "zero one two three four five six seven eight nine ten".split()

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


# -- phrasings ---------------------------------------------------------------------------------------------------------


class Phrasing(NamedTuple):
    text: str
    tree: tuple
    held: bool


def parse(text):
    """'(a|b) [c] {p}' as nested tuples: strings, ('slot', name), ('any', options), each option a tuple."""
    tokens = re.findall(r"[()\[\]|]|\{\w+\}|[^()\[\]|{}]+", text)

    def sequence(at):
        parts = []
        while at < len(tokens) and tokens[at] not in "|)]":
            token = tokens[at]
            if token in "([":
                options, at = [], at
                while True:
                    option, at = sequence(at + 1)
                    options.append(option)
                    if tokens[at] in ")]":
                        break
                if token == "[":
                    options = [()] * len(options) + options
                parts.append(("any", tuple(options)))
            else:
                parts.append(("slot", token[1:-1]) if token[0] == "{" else token)
            at += 1
        return tuple(parts), at

    return sequence(0)[0]


def phrasings(text):
    lines = [line.strip() for line in text.strip().splitlines()]
    return tuple(Phrasing(line, parse(line.lstrip("* ")), line.startswith("*")) for line in lines)


def expand(tree, rng, slots):
    out = []
    for part in tree:
        if isinstance(part, str):
            out.append(part)
        elif part[0] == "slot":
            value = slots[part[1]]
            out.append(value(rng) if callable(value) else value)
        else:
            out.append(expand(rng.choice(part[1]), rng, slots))
    return "".join(out)


GROUPS = {
    "named": {intent: phrasings(text) for intent, text in phrases.NAMED.items()},
    "park": {intent: phrasings(text) for intent, text in phrases.PARK.items()},
    "it": {intent: phrasings(text) for intent, text in phrases.IT.items()},
    "bit": {what: phrasings(text) for what, text in phrases.ELLIPSIS.items()},
    "plain": {intent: phrasings(text) for intent, text in phrases.PLAIN.items()},
    "refuse": {"refuse": phrasings(strangers.TOPICS)},
}


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


# -- words for arguments -----------------------------------------------------------------------------------------------


def place_word(place, rng):
    return rng.choice(PLACE_WORDS.get(place, (place,)))


def day_word(day, rng):
    name = DAYS[day].lower()
    return rng.choices((name, name + "s", name[:3]), (90, 5, 5))[0]


def time_word(hour, rng):
    half, part = hour % 12 or 12, "am" if hour < 12 else "pm"
    words = [f"{hour}:00", f"{hour}:00", f"{half} {part}", f"{half} {part}", f"{half}{part}"]
    if hour == 12:
        words.append("noon")
    words.append(f"{half} in the {'morning' if hour < 12 else 'afternoon' if hour < 18 else 'evening'}")
    return rng.choice(words)


def with_article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def line_word(what, count, digits, rng):
    one, many = (what, GOODS[what][0]) if what in GOODS else rng.choice(VISITORS[what])
    if count == 1:
        return with_article(one) if rng.random() < 0.4 else f"{'1' if digits else 'one'} {one}"
    return f"{count if digits else NUMBER_WORDS[count]} {many}"


def party_words(party, rng):
    digits = rng.random() < 0.5
    words = [line_word(what, count, digits, rng) for what, count in party]
    if len(words) == 1:
        return words[0]
    last = rng.choices((" and ", ", ", " + ", " with ", " "), (76, 8, 6, 6, 4))[0]
    return rng.choice((", ", ", ", " and ")).join(words[:-1]) + last + words[-1]


def slots_for(ask, rng):
    """The words for every slot that a phrasing of this question may have."""
    slots = {}
    if ask.place:
        word = place_word(ask.place, rng)
        slots["p"], slots["is"] = word, "are" if word in ("toilets", "lockers") else "is"
    if ask.origin:
        slots["o"] = place_word(ask.origin, rng)
    if ask.day >= 0:
        slots["d"] = day_word(ask.day, rng)
    if ask.hour >= 0:
        slots["t"] = time_word(ask.hour, rng)
    if ask.what in GOODS:
        slots["i"], slots["is_"] = with_article(ask.what), GOODS[ask.what][0]
    elif ask.what:
        one, many = rng.choice(VISITORS[ask.what])
        slots["a"], slots["c"], slots["c1"] = with_article(one), many, one
    if ask.intent == "add":
        slots["x"], slots["y"] = (str(number) for _, number in ask.party)
    elif ask.party:
        slots["party"] = slots["items"] = party_words(ask.party, rng)
    return slots


# -- case, marks, slips ------------------------------------------------------------------------------------------------

OPENERS = (
    "hello, ", "hi, ", "hi ", "hi! ", "excuse me, ", "please, ", "sorry, ", "ok, ", "so ", "hey, ", "good morning, ", "and ",
    "quick question: ", "one more thing: ", "another question, ", "i was wondering, ", "my wife asks, ", "well, ", "ok so ",
    "we are new here, ", "it is our first visit, ", "i have a question: ", "please tell me, ", "tell me, ", "um, ", "now ",
    "do you know, ", "can you help me, ", "just one question, ", "thanks, and ", "great, ", "yes, ", "no, ", "oh, ",
)  # fmt: skip
CLOSERS = (
    " please", ", please", ", thanks", " thank you", ", do you know", ", can you tell me", " if i may ask", ", i wonder",
    " exactly", " then", " by the way", " for us", ", any idea", " pls", ", my friend",
)  # fmt: skip
FILLERS = ("just", "maybe", "actually", "also", "please", "really", "perhaps", "usually", "normally", "like", "then")
LOOSE = frozenset("the is are of a an do does can i we at on for please it there be you me my".split())
SYSTEM = (
    "You are a helpful assistant.", "You are the kiosk of Alder Park.", "Answer briefly.", "You are a friendly guide.",
    "Be polite and short.", "You are a pirate.", "You help visitors.", "Answer in one sentence.",
)  # fmt: skip
ASKING = tuple("what when where which who how is are can could may do does will would on at from until".split())


def slip(text, rng):
    """One mistyped word: a letter lost, doubled or swapped; numbers and short words stay as they are."""
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    at = rng.choice(long)
    word = words[at]
    spot = rng.randrange(1, len(word) - 1)
    words[at] = rng.choice(
        (
            word[:spot] + word[spot + 1 :],
            word[:spot] + word[spot] + word[spot:],
            word[:spot] + word[spot + 1] + word[spot] + word[spot + 2 :],
        )
    )
    return " ".join(words)


def loosen(text, rng):
    """The question with one small word lost or one empty word gained, as people talk."""
    words = text.split(" ")
    small = [at for at, word in enumerate(words) if word in LOOSE]
    if len(words) < 4 or not small:
        return text
    if rng.random() < 0.6:
        del words[rng.choice(small)]
    else:
        words.insert(rng.choice(small), rng.choice(FILLERS))
    return " ".join(words)


def proper(text):
    text = re.sub(r"\b(" + "|".join(DAYS) + r")(s?)\b", lambda m: m[0].capitalize(), text, flags=re.I)
    text = re.sub(r"\bi\b", "I", text).replace("alder park", "Alder Park")
    return text[0].upper() + text[1:]


def dress(text, rng, social, slips):
    """A phrasing as someone types it."""
    if not social:
        chance = rng.random()
        if chance < 0.08:
            text = rng.choice(OPENERS) + text
        elif chance < 0.12:
            text += rng.choice(CLOSERS)
    if slips and not social and rng.random() < 0.12:
        text = loosen(text, rng)
    if slips and rng.random() < 0.12:
        text = slip(text, rng)
    asking = text.startswith(ASKING)
    style = rng.random()
    if style < 0.5:
        mark = "?" if asking else rng.choice((".", "?", "", "!" if social else "?"))
        return proper(text) + mark
    if style < 0.85:
        return text + rng.choice(("", "", "?" if asking else ""))
    if style < 0.95:
        return text[0].upper() + text[1:] + rng.choice(("?", "", "!" if social else " ?"))
    if style < 0.98:
        return text.upper() + rng.choice(("", "?" if asking else "!"))
    return proper(text) + rng.choice(("??", "...", "!", " "))


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


def heldout_set():
    """The evaluation's questions: half new phrasings, a quarter new sums, a quarter new combinations."""
    rng, seen, entries = random.Random(HELDOUT_SEED), set(), []
    kinds = ("phrasing", "sum", "phrasing", "combination")
    while len(entries) < HELDOUT_COUNT:
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


def training_stream(seed, batch):
    """The dialogues of one training batch, endlessly; the same on every machine."""
    rng, banned = random.Random(f"{seed}/{batch}"), forbidden()
    while True:
        yield training_dialogue(rng, banned)


BATCH_DIALOGUES = 320  # more than one batch of train.py ever takes


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
            if novelty_of(turn.phrasing, turn.ask) or identity(turns[: at + 1]) in self.banned or question in self.banned:
                self.overlaps.append(turn.question)
            if turn.group not in ("it", "bit") and self.replies.setdefault(hash(question), turn.reply) != turn.reply:
                self.clashes[question] = turn.reply

    def report(self):
        twins = twin_phrasings()
        held = json.loads(HELDOUT_FILE.read_text())
        kinds = {kind: sum(entry["kind"] == kind for entry in held) for kind in ("phrasing", "sum", "combination")}
        all_held = sum(option.held for group in GROUPS.values() for options in group.values() for option in options)
        print(f"training: {self.dialogues} dialogues, {self.questions} questions; {len(self.replies)} different ones that")
        print(f"          stand alone, {len(self.phrasings)} phrasings, {len(self.sums)} sums")
        print(f"held out: {len(held)} questions ({', '.join(f'{n} new by {kind}' for kind, n in kinds.items())});")
        print(f"          {all_held} phrasings, one in {ONE_IN} of sums and combinations")
        print(f"overlaps: {len(self.overlaps)} questions, {len(twins)} phrasings; ", end="")
        print(f"questions with two answers: {len(self.clashes)}")
        for question in self.overlaps[:8] + twins[:8] + list(self.clashes)[:8]:
            print("   ", question)
        return not self.overlaps and not twins and not self.clashes


def wordings(tree):
    """Every way in which a phrasing can be worded, its slots left open."""
    ways = [""]
    for part in tree:
        if isinstance(part, str):
            ends = [part]
        elif part[0] == "slot":
            ends = ["{" + part[1] + "}"]
        else:
            ends = [end for option in part[1] for end in wordings(option)]
        ways = [way + end for way in ways for end in ends]
    return ways


def twin_phrasings():
    """Held-out phrasings that some training phrasing can word in the same way."""
    every = [option for group in GROUPS.values() for options in group.values() for option in options]
    known = {" ".join(way.split()) for option in every if not option.held for way in wordings(option.tree)}
    held = [(option.text, way) for option in every if option.held for way in wordings(option.tree)]
    return sorted({text for text, way in held if " ".join(way.split()) in known})


def prove(batches, seed):
    proof = Proof()
    for batch in range(batches):
        for turns in islice(training_stream(seed, batch), BATCH_DIALOGUES):
            proof.add(turns)
    return proof.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N training dialogues")
    parser.add_argument("--heldout", action="store_true", help="rewrite heldout.json")
    parser.add_argument("--prove", type=int, default=0, metavar="N", help="check N training batches")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.heldout:
        lines = ",\n".join(json.dumps(entry) for entry in heldout_set())
        HELDOUT_FILE.write_text(f"[\n{lines}\n]\n")
    for number in range(options.show):
        for turn in next(training_stream(options.seed, number)):
            print(f"> {turn.question}\n  {turn.reply}")
        print()
    if options.prove and not prove(options.prove, options.seed):
        sys.exit(1)


if __name__ == "__main__":
    main()
