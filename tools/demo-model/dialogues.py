#!/usr/bin/env python3
"""Generates the kiosk's visitor dialogues: the training stream, kept clear of everything that is held out.

    dialogues.py N       prints N training dialogues

What is held out follows from the material alone, never from chance at run time, so that training with any seed and any
length keeps clear of it: phrasings marked `*`, and one in eight of all sums, routes, opening times, and pairings of a
phrasing with its arguments (by CRC-32). Whatever still renders to the same words as a question of heldout.json or of a
freely worded set (free.json to late.json, FREE_FILES) is dropped, and so is what differs from a question of
the latter by one word. heldout.py proves it.
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
from company import (
    UNCOUNTED,
    absentee,
    all_of_us,
    away,
    dropped,
    families,
    fits_one,
    heads,
    none_of,
    numbered_words,
    only_them,
    others,
    own_kind,
    small_party,
    some_absent,
    uncounted,
)
from money import payment
from people import BABY, NAMES_ONLY, family, newcomer, nobody_at_all
from relatives import relatives
from slots import SLOTS
from wording import (
    GROUPS,
    HELD_WORDINGS,
    KIN,
    NUMBER_WORDS,
    PURPOSES,
    SYSTEM,
    VISITORS,
    Phrasing,
    changed_words,
    corrected,
    day_word,
    dress,
    expand,
    fewer_words,
    filled,
    holiday_word,
    kin_words,
    line_word,
    paired,
    part_of_day,
    party_words,
    place_word,
    plain,
    rephrased,
    slots_for,
    slots_in,
    spoken,
    with_article,
    with_company,
    with_none,
)
from world import CATEGORIES, GOODS, LARGE, OPENING, PARKING, PAYING, PLACES, REACHED, Ask, answer, cost, is_group

HELDOUT_FILE = Path(__file__).with_name("heldout.json")
FREE_FILES = tuple(
    Path(__file__).with_name(f"{name}.json") for name in ("free", "blind", "fresh", "unseen", "late")
)
ONE_IN = 8

# How often each intent is asked, and of whom. Sums, and questions that ask for two things, are the hard ones: they get more
# than visitors would ask of them. So do the fixed answers: each of them is asked for in words of its own.
WEIGHTS = {
    "hours": 6, "day": 9, "opens": 5, "closes": 6, "is_open": 7, "is_open_at": 15, "too_late": 1, "at_time": 3,
    "closed_days": 3, "weekend": 3, "today": 4, "open_on": 3, "open_at": 5, "closed_on": 3, "way": 9, "distance": 5,
    "route": 10, "prices": 8, "price": 9, "bill": 30, "item": 6, "items": 15, "add": 5, "parked": 2, "cheaper": 6,
    "nearer": 3, "people": 4, "about": 2, "park": 9, "plain": 60, "refuse": 42, "holiday": 5,
    "+led": 42, "+led_both": 9, "+led_two": 6, "+twice": 6, "+purpose": 8, "+places": 12, "+days": 4,
    "+kinds": 4, "+bills": 10, "+then": 9, "+three": 2, "+other": 12, "+baby": 2, "+many": 2, "+hundreds": 1,
    "+family": 24, "+too": 11, "+parked_span": 2, "+paid": 24, "+unpaid": 4, "+nobody": 2, "replaced": 1,
    "to_kiosk": 2, "to_fountain": 2, "return": 2, "+no_others": 9,
    "+absent": 24, "+left": 16, "+taken": 17, "+sent": 9, "+relatives": 16, "+heads": 9, "+families": 5, "+uncounted": 7,
    "+split": 2,
}  # fmt: skip
FOLLOW_WEIGHTS = {
    "hours": 2, "day": 3, "opens": 2, "closes": 2, "is_open": 3, "is_open_at": 3, "closed_days": 1, "weekend": 1,
    "today": 1, "way": 4, "distance": 3, "route": 3, "prices": 3, "price": 5, "bill": 8, "people": 1, "cheaper": 1,
    "nearer": 1,
    "+day": 7, "+time": 6, "+place": 9, "+more": 12, "+fewer": 3, "+swap": 4, "+back": 3, "+days": 2, "+kinds": 1,
    "+holiday": 1, "+thanks": 5, "+settled": 10, "+reset": 5, "+joins": 7, "+other_day": 2, "to_kiosk": 1,
    "+withdrawn": 22, "+some_more": 3, "+shared": 2,
}  # fmt: skip
# What puts the speaker among those who are counted: only a sentence that people.py words may say so, except of a list
# that names the adults by number.
WITH_ME = re.compile(
    r"\b(?:with me|here with|coming with|i (?:bring|take|come with)|i(?:'m| am) (?:taking|bringing)|to (?:take|bring))\b"
)
WITH_KIN = re.compile(r"\bwith \{(?:party|kin)\}")
KINSHIP, SPEAKER = re.compile(r"\b(?:my|our)\b"), re.compile(r"\b(?:me|myself|i)\b")
# Words of ages: a kid of 16 is an adult in the bill, so "without the kids" would leave open who stays.
AGED = re.compile(
    r"\b(?:years?|ages?|aged|months?|turn\w*|teen\w*|both|yet|quite|nearly|almost)\b|\(|[a-z],? \d\d?(?:,| and|$)|"
    rf"(?:'s|is|are|of) (?:\d|(?:{'|'.join(NUMBER_WORDS)})\b)"
)
CORRECTING = re.compile(r"\b(?:make (?:that|it)|meant|sorry|wait|actually|no|oh|let it be|it is|it's)\b")
TIMED = ("hours", "day", "opens", "closes", "is_open", "is_open_at", "closed_days", "weekend", "today", "open_on")
CORRECTIONS = ("fish", "boats", "stars", "plants", "golf", "food", "way out", "shop", "house", "thing with the fish")
DAILY = ("day", "opens", "closes", "is_open", "is_open_at", "open_on", "open_at", "closed_on")
# Follow-ups that mean nothing without the question before.
ALONE = (
    "route", "people", "more", "fewer", "swap", "back", "cheaper", "nearer", "settled", "along", "other_day", "reset", "joins",
    "to_kiosk", "withdrawn", "uncounted", "split",
)  # fmt: skip
# What a follow-up may lean on, and what leaves open what it would be about.
LEADING = (*TIMED, "at_time", "about", "way", "distance", "route", "prices", "price", "bill", "items", "people")
UNCLEAR = ("cheaper", "nearer", "holiday", "many", "hundreds", "open_at", "closed_on")
# What can be asked of two places, and of two days, at once; a yes-or-no question is answered with the hours.
OF_PLACES = (
    "hours", "day", "opens", "closes", "is_open", "is_open_at", "closed_days", "weekend", "way", "way", "distance",
    "prices", "prices", "price", "bill", "bill",
)  # fmt: skip
# What a few words more ask of another place, day or kind of visitor, after the whole question about the first.
OF_TWO = {
    "p": ("hours", "day", "opens", "closes", "is_open", "is_open", "is_open_at", "closed_days", "way", "distance",
          "prices", "prices", "price"),
    "d": ("day", "opens", "closes", "is_open", "is_open", "open_on", "closed_on"),
    "c": ("price",),
}  # fmt: skip
TOO = (
    " and {}", ", and {}", "? and {}", ". and {}", "? what about {}", ". what about {}", " and {} as well",
    ", and {} too",
    "? same for {}", "? and how about {}", ". same question for {}", "? and what about {}", " and also {}", ", also {}",
    "? {} too", "? {}", " - and {}", "? and {}, too", " plus {}", "... and {}", "? the same for {}, please",
)  # fmt: skip
TOO_OPEN = (
    " and is {}, too",
    " and is {}",
    ", and is {} as well",
    "? is {}, too",
    " and is {} also open",
    ", is {} too",
)
BABIES = (
    "a baby|one baby|a toddler|our baby|a two year old|2 babies|an infant|my baby|our one year old|a newborn|the toddler|"
    "a small baby|our two-year-old"
).split("|")
# The place where a route starts, by what one does there.
STARTED = {
    "car park": ("we parked in", "our car is in", "we left the car in", "i have just parked in"),
    "train station": ("we just arrived at", "our train came into", "we got off the train at"),
    "bus stop": ("we got off the bus at", "the bus dropped us at", "we're standing at"),
    "restaurant": ("we had lunch at", "after lunch at", "we have just paid at", "we had a big meal at"),
    "cafe": ("we had coffee at", "after breakfast at", "i just finished my cake in", "we're having tea in"),
    "playground": ("the kids are still on", "my son plays at", "after an hour on"),
    "lockers": ("we put our bags in", "i just left my suitcase in", "we fetched our bags from"),
    "cash machine": ("i just got money from", "my husband stands at"),
    "picnic area": ("we had our picnic at", "we are eating in", "after our picnic at"),
    "castle tower": ("we climbed", "we just came down from", "after climbing"),
    "boat house": ("we brought our boat back to", "after a boat trip from"),
    "gift shop": ("we bought souvenirs in", "my wife is still in"),
    "museum": ("we looked at everything in", "the rain has us stuck in"),
    "aquarium": ("we've seen all the fish in", "my kids are still in"),
    "first aid post": ("they patched me up at", "my son got a plaster at"),
    "toilets": ("my wife is still in", "i'm waiting outside"),
}
PLACES_FOR = dict.fromkeys(("way", "distance"), REACHED) | dict.fromkeys(("prices", "price", "bill"), PAYING)
OF_DAYS = ("day", "opens", "closes", "is_open", "open_on", "closed_on")
# What may name a part of the day, or the wrong word before the right one.
PARTS = ("day", "opens", "closes", "is_open", "is_open_at")
CORRECTED = ("hours", "day", "opens", "closes", "is_open", "is_open_at", "way", "distance", "prices", "price", "bill")
# What a sentence and a question that leans on it may ask for, by what the sentence names.
LED = {
    "place": ("hours", "day", "opens", "closes", "is_open", "is_open_at", "closed_days", "weekend", "way", "distance",
              "prices", "prices", "price", "bill", "bill"),
    "place_day": ("hours", "hours", "day", "opens", "closes", "is_open", "is_open_at"),
    "day": ("day", "opens", "closes", "is_open", "is_open_at", "open_on", "closed_on"),
}  # fmt: skip
OF_BOTH = ("hours", "hours", "day", "day", "closed_days", "prices", "price", "bill", "bill", "bill", "way", "distance")
WEEKDAY_SUCH_AS = (
    "weekdays, say ", "a weekday, for example ", "weekdays, for instance ", "a weekday like ", "weekdays such as ",
)  # fmt: skip
SEPARATORS = (". ", ". ", ". ", ", ", ", ", "! ", " - ", "... ", "; ", ": ", " and ")
# What is joined to something else.
JOINED = (
    "hours", "day", "opens", "closes", "is_open", "is_open_at", "closed_days", "way", "way", "distance", "route", "prices",
    "price", "bill", "item", "items", "parked", "cheaper", "plain", "plain", "plain", "plain",
)  # fmt: skip


# -- what is held out --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 20)
def picked(key):
    return zlib.crc32(key.encode()) % ONE_IN == 0


def held_word(word):
    return picked(f"word {word}")


def held_facts(ask):
    """Whether the question itself, in whatever words, is held out: a sum, a route, an hour of a day."""
    if ask.parts:
        return any(map(held_facts, ask.parts))
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


def is_held(phrasing, ask):
    return phrasing.held or held_facts(ask) or held_pairing(phrasing, ask)


def takes(phrasing, slots):
    """Whether the phrasing has one of the slots."""
    return not slots_in(phrasing.text).isdisjoint(slots)


@lru_cache(maxsize=None)
def shown(group, intent):
    """The phrasings for training and their weights: one with slots of slots.py stands for many, and comes up more."""
    options = [option for option in GROUPS[group][intent] if not option.held]
    return options, [1 + min(2, len(slots_in(option.text).intersection(SLOTS))) for option in options]


def normal(question):
    """The question without case, marks and spacing, for comparing questions as strings."""
    return " ".join(re.findall(r"[a-z0-9+*/x-]+", question.lower()))


def identities(questions):
    """What of a dialogue's questions must not occur in training: the last one, and the last one after the one before."""
    last = normal(questions[-1])
    return {last} if len(questions) < 2 else {last, f"{normal(questions[-2])} / {last}"}


# -- arguments ---------------------------------------------------------------------------------------------------------


def draw_party(rng, kinds):
    """Half of the parties are small; the others have a count of two digits or four kinds."""
    if rng.random() < 0.5:
        lines = rng.choices((1, 2, 3), (25, 55, 20))[0]
        most = (9, 9, 5)[lines - 1]
        return tuple((kind, rng.randint(2 if lines == 1 else 1, most)) for kind in rng.sample(kinds, lines))
    lines = rng.choices((1, 2, 3, 4), (25, 40, 17, 18))[0]
    tops = rng.choices((9, 20, 40, 99), (40, 20, 20, 20), k=lines)
    if lines < 4 and max(tops) == 9:
        tops[rng.randrange(lines)] = 99
    counts = [rng.randint(1 if top == 9 else 10, top) for top in tops]
    return tuple(zip(rng.sample(kinds, lines), counts))


def draw_pair(rng, options):
    return rng.sample(options, 2)


@lru_cache(maxsize=None)
def odd_hours(place):
    """Each (day, hour) at which the place is open or closed unlike on most days: what has to be known by heart."""
    hours = [[bool(slot) and slot[0] <= hour < slot[1] for hour in range(6, 23)] for slot in PLACES[place].hours]
    usual = [sum(column) > 3 for column in zip(*hours)]
    return [(day, at + 6) for day, row in enumerate(hours) for at, is_open in enumerate(row) if is_open != usual[at]]


def draw(intent, rng, place=""):
    """A question of this intent, about `place` if given."""
    day = rng.randrange(7)
    if intent in ("day", "opens", "closes", "is_open"):
        return Ask(intent, place or rng.choice(OPENING), day)
    if intent == "is_open_at":
        place = place or rng.choice(OPENING)
        if rng.random() < 0.3 and (odd := odd_hours(place)):
            return Ask(intent, place, *rng.choice(odd))
        slot = PLACES[place].hours[day]
        edge = rng.choice(slot) + rng.choice((-1, 0, 0, 1)) if slot and rng.random() < 0.5 else rng.randint(6, 22)
        return Ask(intent, place, day, min(max(edge, 6), 22))
    if intent in ("hours", "closed_days", "weekend", "today"):
        return Ask(intent, place or rng.choice(OPENING))
    if intent in ("open_on", "closed_on"):
        return Ask(intent, day=day)
    if intent in ("at_time", "open_at"):
        hour = rng.randint(6 if intent == "at_time" else 7, 22)
        return (
            Ask(intent, place or rng.choice(OPENING), hour=hour) if intent == "at_time" else Ask(intent, "", day, hour)
        )
    if intent == "parked":
        return Ask(intent, hour=rng.randint(1, 24))
    if intent == "replaced":
        return Ask("item", what=rng.choice(("umbrella", "mug", "map", "shirt")))
    if intent in ("to_kiosk", "to_fountain"):
        return Ask(intent, place or rng.choice(REACHED))
    if intent in ("cheaper", "nearer"):
        known = PAYING if intent == "cheaper" else REACHED
        place = place or rng.choice(known)
        other = rng.choice([name for name in known if name != place])
        return Ask(intent, place, origin=other, what=rng.choice(CATEGORIES) if intent == "cheaper" else "")
    if intent == "people":
        return Ask(intent, place or rng.choice(PAYING))
    if intent in ("way", "distance", "return"):
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
        top = rng.choice((20, 99, 99, 999))
        return Ask(intent, party=(("x", rng.randint(1, top)), ("y", rng.randint(1, top))))
    if intent == "about":
        return Ask(intent, place or rng.choice(OPENING))
    return Ask(intent)


# -- turns -------------------------------------------------------------------------------------------------------------

SOCIAL = ("greet", "thanks", "bye", "mood", "okay", "again")
CHATTER = {*SOCIAL, "who", "can", "refund", "emergency", "lostchild", "hundreds", "people"}  # asked by itself
CONNECTORS = (
    " and ", " and ", ", and ", "? and ", ". ", "? ", " and also ", ". also, ", ", also ", " plus ", ", ", "? also ",
)  # fmt: skip


class Drawn(NamedTuple):
    """A question on its way to a Turn; `text` is not yet dressed."""

    group: str
    phrasing: Phrasing
    ask: Ask
    text: str


def miscounts(text, ask, slots):
    """Whether the wording leaves open if the speaker is one of the party."""
    if ask.intent not in ("bill", "change"):
        return False
    words = slots.get("kin") if "{kin}" in text else slots.get("party", "")
    if WITH_KIN.search(text) and KINSHIP.search(words) and not SPEAKER.search(words):
        return True
    named = KINSHIP.search(words) or SPEAKER.search(words)
    return WITH_ME.search(text) is not None and ("adult" not in dict(ask.party) or named is not None)


def bills_of(ask):
    """What of a question has to be paid for, as bills; empty if nothing has, or if it was not added up."""
    bills = []
    for part in (ask.parts or (ask,)) if ask else ():
        if part.intent in ("price", "item") and (part.place in PAYING or part.what in GOODS):
            part = Ask("bill" if part.place else "items", part.place, party=((part.what, 1),))
        if part.intent in ("change", "change_parked"):
            kind = "parked" if part.hour > 0 else "bill" if part.place else "items"
            part = part._replace(intent=kind, paid=0)
        if part.intent in ("items", "parked") or part.intent == "bill" and part.place in PAYING:
            bills.append(part)
    added_up = len(bills) < 2 or all(part.intent in ("bill", "items") for part in ask.parts)
    return tuple(bills) if added_up else ()


class Speaker:
    """Draws the visitor's side of one dialogue; whatever is held out never comes up. The steps that may fail return None."""

    def __init__(self, rng):
        self.rng = rng
        self.state = None  # the last question that a follow-up may lean on
        self.age = 0  # turns since then
        self.previous = None  # the question just before
        self.asked = ""  # the words of the question in `state`

    # What a visitor asks

    def opening(self):
        """A question that stands by itself."""
        rng = self.rng
        kind = rng.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        if kind[0] == "+":
            return getattr(self, kind[1:])()
        if kind == "refuse":
            return self.stranger()
        if kind == "holiday":
            return self.holiday("named", rng.choice(DAILY[:6]))
        if kind not in ("plain", "park") and not self.leaning() and rng.random() < 0.04:
            return self.groundless()
        return self.simple(kind)

    def simple(self, kind, place=""):
        """A question for one thing."""
        rng = self.rng
        if kind in ("plain", "park"):
            intents = tuple(GROUPS[kind])
            intent = rng.choices(intents, [len(GROUPS[kind][intent]) for intent in intents])[0]
            return self.worded(kind, intent, draw(intent, rng, "park") if kind == "park" else Ask(intent))
        if kind == "too_late":  # yes would say that it is too late, so the answer is the hours
            drawn = self.worded("named", kind, draw("is_open_at", rng, place))
            return drawn and drawn._replace(ask=Ask("day", drawn.ask.place, drawn.ask.day))
        ask = draw(kind, rng, place)
        if kind in PARTS and rng.random() < 0.07:
            return self.in_part_of_day(kind, ask)
        if kind in PARTS and ask.day < 5 and rng.random() < 0.01:
            drawn = self.worded("named", kind, ask, d=rng.choice(WEEKDAY_SUCH_AS) + day_word(ask.day, rng))
            return drawn if drawn and "on {d}" in drawn.phrasing.text else None
        if kind in CORRECTED and rng.random() < 0.02:
            return self.slipped(kind, ask)
        drawn = self.worded("named", kind, ask)
        if drawn and kind in (*TIMED, "way", "distance", "route") and rng.random() < 0.06:
            drawn = drawn._replace(text=with_company(drawn.text, rng))
        return drawn

    def in_part_of_day(self, kind, ask):
        """A question that names the morning or the evening. Where it names no hour, the hours are the answer, not yes."""
        part = {"opens": "morning", "closes": "evening"}.get(kind) or part_of_day(ask.hour, self.rng)
        drawn = self.worded("named", kind, ask, d=f"{day_word(ask.day, self.rng)} {part}")
        if drawn and kind == "is_open":
            drawn = drawn._replace(ask=ask._replace(intent="day"))
        return drawn

    def slipped(self, kind, ask):
        """A question in which the visitor names the wrong place or day first."""
        rng = self.rng
        if ask.day >= 0 and rng.random() < 0.4:
            other = rng.choice([day for day in range(7) if day != ask.day])
            words = {"d": corrected(day_word(ask.day, rng), day_word(other, rng), rng)}
        else:
            other = rng.choice([place for place in PAYING if place != ask.place])
            wrong = place_word(other, rng) if rng.random() < 0.75 else rng.choice(CORRECTIONS)
            words = {"p": corrected(place_word(ask.place, rng), wrong, rng, "the "), "is": "is"}
        drawn = self.worded("named", kind, ask, **words)
        return drawn if drawn and takes(drawn.phrasing, words.keys() - {"is"}) else None

    def worded(self, group, intent, ask, fits=None, **words):
        """`ask` in one of the phrasings of `intent`, with `words` in place of its own; None if that is held out.

        `fits` says whether the wording, its slots still open, suits the words.
        """
        rng = self.rng
        phrasing = rng.choices(*shown(group, intent))[0]
        if group == "named" and not takes(phrasing, "p") and not ask.parts:
            ask = ask._replace(place="")
        if intent == "cheaper" and not takes(phrasing, ("c", "a")):
            ask = ask._replace(what="")
        if is_held(phrasing, ask):
            return None
        text = spoken(expand(phrasing.tree, rng), rng)
        if plain(text) in HELD_WORDINGS:
            return None
        if group in ("named", "park", "it", "purpose") and rng.random() < 0.25:
            text = rephrased(text, rng)
        slots = slots_for(ask, rng) | words
        if not fits(text) if fits else miscounts(text, ask, slots):
            return None
        return Drawn(group, phrasing, ask, filled(text, rng, slots))

    def groundless(self):
        """A follow-up to nothing: the kiosk has to ask back."""
        rng = self.rng
        if rng.random() < 0.3:
            ask = draw("about", rng)
            return self.worded("bit", "place", ask)
        if rng.random() < 0.2:
            return self.worded("bit", "day", Ask("day", "", rng.randrange(7)))
        asked = [intent for intent in GROUPS["it"] if intent not in ALONE]
        intent = rng.choice(asked)
        return self.worded("it", intent, draw(intent, rng, "museum")._replace(place=""))

    # Two things at once

    def together(self, group, intent, asks, **words):
        """One phrasing of `intent` that stands for all of `asks`, with `words` that name what they differ in."""
        drawn = self.worded(group, intent, asks[0], **words)
        if not drawn or any(map(held_facts, asks)) or not takes(drawn.phrasing, words):
            return None
        ask = Ask("both", parts=tuple(asks))
        text = drawn.text
        for slot, both in words.items():
            if slot in "pd" and self.rng.random() < 0.5:
                text = text.replace(f"is the {both}", f"are the {both}").replace(f"does the {both}", f"do the {both}")
        return drawn._replace(ask=ask, text=text)

    def places(self):
        """Two places in one question."""
        rng = self.rng
        intent = rng.choice(OF_PLACES)
        first, second = draw_pair(rng, PLACES_FOR.get(intent, OPENING))
        ask = draw(intent, rng, first)
        if intent == "is_open":
            ask = ask._replace(intent="day")
        ask = ask._replace(party=ask.party[:2])
        asks = (ask, ask._replace(place=second))
        names = paired(place_word(first, rng), place_word(second, rng), rng, "the ")
        names = names.replace(" or ", " and ") if intent == "bill" else names  # a bill adds the two up
        return self.together("named", intent, asks, p=names)

    def days(self, place="", group="named"):
        """Two days in one question."""
        rng = self.rng
        first, second = draw_pair(rng, range(7))
        if group == "named" and rng.random() < 0.15:
            place, group = "park", "park"
        intent = rng.choice(OF_DAYS if group == "named" else OF_DAYS[:4])
        ask = draw(intent, rng, place)
        if intent == "is_open":
            ask = ask._replace(intent="day")
        names = paired(day_word(first, rng), day_word(second, rng), rng, "on ")
        drawn = self.together(group, intent, (ask._replace(day=first), ask._replace(day=second)), d=names)
        if drawn and ask.intent == "day" and {first, second} == {5, 6}:
            drawn = drawn._replace(ask=Ask("weekend", ask.place))
        return None if drawn and is_held(drawn.phrasing, drawn.ask) else drawn

    def kinds(self, place="", group="named"):
        """The price for two kinds of visitors."""
        rng = self.rng
        first, second = draw_pair(rng, CATEGORIES)
        ask = draw("price", rng, place or rng.choice(PAYING))
        plural, single = (
            (rng.choice(VISITORS[first])[number], rng.choice(VISITORS[second])[number]) for number in (1, 0)
        )
        words = {"c": paired(*plural, rng), "c1": paired(*single, rng)}
        drawn = self.together(group, "price", (ask._replace(what=first), ask._replace(what=second)), **words)
        counted = drawn and (
            takes(drawn.phrasing, "a") or re.search(r"\b(?:one|1|just|single|per)\b", drawn.phrasing.text)
        )
        return None if counted else drawn  # a child and a student make a sum

    def too(self):
        """A question, and a few words that ask the same of another place, day or kind of visitor."""
        rng = self.rng
        slot = rng.choices("pdc", (6, 3, 2))[0]
        intent = rng.choice(OF_TWO[slot])
        ask = draw(intent, rng, rng.choice(PLACES_FOR.get(intent, OPENING)) if intent not in DAILY[5:] else "")
        if slot == "p":
            other = rng.choice([place for place in PLACES_FOR.get(intent, OPENING) if place != ask.place])
            second, name = ask._replace(place=other), place_word(other, rng)
            name = ("" if rng.random() < 0.2 else "the ") + name
        elif slot == "d":
            day = rng.choice([day for day in range(7) if day != ask.day])
            second, name = ask._replace(day=day), ("on " if rng.random() < 0.4 else "") + day_word(day, rng)
        else:
            what = rng.choice([what for what in CATEGORIES if what != ask.what])
            second = ask._replace(what=what)
            name = ("for " if rng.random() < 0.4 else "") + rng.choice(VISITORS[what])[1]
        drawn = self.worded("named", intent, ask)
        if not drawn or held_facts(second) or not takes(drawn.phrasing, "ca" if slot == "c" else slot):
            return None
        joint = rng.choice(TOO_OPEN if slot == "p" and intent == "is_open" and rng.random() < 0.5 else TOO)
        parts = [part._replace(intent="day") if intent == "is_open" else part for part in (drawn.ask, second)]
        whole = Ask("both", parts=tuple(parts))
        if slot == "d" and parts[0].intent == "day" and {ask.day, second.day} == {5, 6}:
            whole = Ask("weekend", ask.place)
        return drawn._replace(ask=whole, text=drawn.text + joint.format(name).replace("for for", "for"))

    def family(self):
        """A sum for people who are named one by one, as one speaks of a family."""
        rng = self.rng
        return self.billed(family(rng))

    def billed(self, people):
        """A sum for these people, perhaps with the money that it is paid with."""
        rng = self.rng
        if not people or not people.party:
            return None
        ask = Ask("bill", rng.choice(PAYING), party=people.party)
        one = sum(count for _, count in people.party) == 1
        if one and (rng.random() < 0.7 or re.match(r"(?:1|one|an?) ", people.words)):
            return None  # "1 student" asks for the price of a ticket
        if held_facts(ask):
            return None
        if not people.baby and rng.random() < 0.12:
            return self.paid_by(people, ask)
        return self.with_baby(self.worded_family(people, ask, "named"), people)

    def worded_family(self, people, ask, group):
        """The bill of people who are named one by one."""
        if people.clause:
            return self.worded(group, "along", ask, along=people.words)
        if group == "named" and self.rng.random() < 0.35:
            lead = self.lead("kin_place", ask, people.counted_in, kin=people.words)
            return self.led_by(lead, self.worded("asks", "total", ask), ask)
        drawn = self.worded(group, "bill", ask, people.counted_in, party=people.words)
        return drawn if drawn and takes(drawn.phrasing, ("party",)) else None

    # Who comes, who does not, and who is counted

    def relatives(self):
        """A sum for people whose ages are told."""
        return self.billed(relatives(self.rng))

    def absent(self):
        """A sum for those who come, where it is said who does not."""
        return self.billed(some_absent(self.rng))

    def heads(self):
        """A sum for so many people, of whom only some are named."""
        return self.billed(heads(self.rng))

    def families(self):
        """A sum for two families, or for couples with their children."""
        return self.billed(families(self.rng))

    def left(self):
        """A sum for a few visitors by number, and a clause that others of another kind do not come."""
        rng = self.rng
        ask = Ask("bill", rng.choice(PAYING), party=small_party(rng))
        missing = [kind for kind in CATEGORIES if kind not in dict(ask.party)]
        if rng.random() < 0.35:
            clause = none_of(rng.sample(missing, min(len(missing), rng.choice((1, 2)))), rng)
        else:
            who = absentee(rng)
            if who.kind not in (*missing, BABY):
                return None
            clause = away(who, rng)
        words = numbered_words(ask.party, rng)
        return self.worded("named", "left", ask, lambda text: True, party=words, away=clause)

    def taken(self):
        """A sum for people whom the speaker takes along, the speaker among them."""
        rng = self.rng
        taken = others(rng)
        if not taken:
            return None
        own, kind = own_kind(rng)
        party = {kind: 1}
        for what, count in taken.party:
            party[what] = party.get(what, 0) + count
        ask = Ask("bill", rng.choice(PAYING), party=tuple(party.items()))
        us = all_of_us(taken.heads + 1, rng)
        drawn = self.worded("named", "taken", ask, lambda text: True, kin=taken.words, us=us)
        if drawn and own:
            drawn = drawn._replace(text=own + rng.choice((" and ", ", ", ". ", ". ")) + drawn.text)
        return self.with_baby(drawn, taken)

    def sent(self):
        """A sum for people whom the speaker sends without coming along."""
        rng = self.rng
        taken = others(rng)
        if not taken or not taken.party:
            return None
        ask = Ask("bill", rng.choice(PAYING), party=taken.party)
        them = only_them(taken, rng)
        drawn = self.worded("named", "sent", ask, fits_one if taken.one else lambda text: True, kin=taken.words, them=them)
        return self.with_baby(drawn, taken)

    def uncounted(self):
        """People of whom nobody can tell how many they are, or what they pay."""
        rng = self.rng
        ask = Ask("people", rng.choice(PAYING))
        return self.worded("named", "uncounted", ask, lambda text: True, party=uncounted(rng))

    def some_more(self):
        """People without a number who would join those of the last bill."""
        last = self.state
        if last.intent != "bill" or not last.place or not last.party:
            return None
        words = self.rng.choice(UNCOUNTED).replace("{my}", "my")
        if words in ("the others", "everybody else", "the boys", "the girls", "the kids") and "child" in dict(last.party):
            return None
        return self.worded("it", "uncounted", Ask("people", last.place), lambda text: True, party=words)

    def withdrawn(self):
        """Some of the last bill's visitors do not come after all."""
        rng, last = self.rng, self.state
        if last.intent != "bill" or not last.place or not last.party or AGED.search(self.asked):
            return None
        change = dropped(last.party, rng)
        if not change:
            return None
        party, clause = change
        return self.worded("it", "withdrawn", last._replace(party=party), lambda text: True, away=clause)

    def split(self):
        """A sum that is to be split, which the kiosk does not do."""
        ask = Ask("bill", self.rng.choice(PAYING), party=small_party(self.rng))
        drawn = self.worded("named", "split", ask, party=numbered_words(ask.party, self.rng))
        return drawn and drawn._replace(ask=Ask("both", parts=(drawn.ask, Ask("split"))))

    def shared(self):
        """The last sum is to be split."""
        if not bills_of(self.previous):
            return None
        return self.worded("it", "split", Ask("split"))

    @staticmethod
    def with_baby(drawn, people):
        """The bill, and that a baby enters free if there is one."""
        if not drawn or not people.baby:
            return drawn
        return drawn._replace(ask=Ask("both", parts=(drawn.ask, Ask("toddler"))))

    # Money

    def paid(self):
        """A bill, and the money that it is paid with."""
        rng = self.rng
        if rng.random() < 0.06:
            hours = rng.randint(1, 12)
            amount, money = payment(hours * PARKING, rng)
            return self.worded("named", "change_parked", Ask("change_parked", hour=hours, paid=amount), m=money)
        if rng.random() < 0.06:
            _, money = payment(rng.randint(10, 120), rng)
            drawn = self.worded("named", "people_paid", draw("people", rng), m=money)
            return drawn and drawn._replace(ask=Ask("people", drawn.ask.place))
        goods = rng.random() < 0.45
        ask = draw("items" if goods else "bill", rng)
        if rng.random() < 0.2:  # one thing, or one person
            ask = ask._replace(party=((ask.party[0][0], 1),))
        if max(count for _, count in ask.party) >= LARGE and rng.random() < 0.85 or cost(ask) > 250:
            return None
        amount, money = payment(cost(ask), rng)
        ask = ask._replace(intent="change", paid=amount)
        if goods:
            return self.worded("named", "change_items", ask, m=money)
        if rng.random() < 0.25:
            return self.led_by(self.lead("party_place", ask), self.worded("asks", "settled", ask, m=money), ask)
        return self.worded("named", "change", ask, m=money)

    def paid_by(self, people, ask):
        """The bill of people who are named one by one, and the money that it is paid with."""
        amount, money = payment(cost(ask), self.rng)
        ask = ask._replace(intent="change", paid=amount)
        settled = self.worded("asks", "settled", ask, m=money)
        if not people.clause and self.rng.random() < 0.5:
            return self.worded("named", "change", ask, people.counted_in, party=people.words, m=money)
        if people.clause:
            first = self.worded("named", "along", ask, along=people.words)
        else:
            first = self.lead("kin_place", ask, people.counted_in, kin=people.words)
        return self.led_by(first, settled, ask)

    def settled(self):
        """The money that what was asked for last is paid with."""
        bills = bills_of(self.previous) or bills_of(self.state)
        due = sum(map(cost, bills))
        if not 0 < due <= 250 or any(map(is_group, bills)) or any(map(held_facts, bills)):
            return None
        amount, money = payment(due, self.rng)
        drawn = self.worded("it", "settled", Ask("settled", parts=bills, paid=amount), m=money)
        bare = drawn and drawn.phrasing.text == "{paying}" and "euro" not in money
        return None if bare else drawn  # a number alone may count people

    def unpaid(self):
        """Money without a word of what it is to pay for: the question before may say it, else the kiosk has to ask."""
        if bills_of(self.previous):
            return self.settled()
        if self.leaning() and self.state.party:
            return None
        _, money = payment(self.rng.randint(2, 60), self.rng)
        return self.worded("it", "settled", Ask("for_what"), m=money)

    def no_others(self):
        """A sum for a few visitors, or for one, that says of whom there are none."""
        rng = self.rng
        ask, chance = draw("bill", rng), rng.random()
        if chance < 0.7:
            kinds = rng.sample(CATEGORIES, 1 if chance < 0.45 else 2)
            ask = ask._replace(party=tuple((kind, 1 if chance < 0.3 else rng.randint(1, 9)) for kind in kinds))
        return self.worded("named", "bill", ask, party=with_none(ask.party, rng))

    def nobody(self):
        """Nothing but kinds of whom nobody comes, or people of whom only the names are told."""
        rng = self.rng
        words = nobody_at_all(rng)
        if rng.random() < 0.6:
            names = [name.capitalize() for name in rng.sample(NAMES_ONLY, rng.randint(1, 3))]
            words = ", ".join(["me", *names[:-1]]) + " and " + names[-1]
        drawn = self.worded("named", "bill", draw("bill", rng), party=words)
        return drawn and drawn._replace(ask=Ask("people"))

    def parked_span(self):
        """Parking from one time of the day to another."""
        rng = self.rng
        hours = rng.randint(1, 12)
        start = rng.randint(6, 22 - hours)
        form = rng.choice(("half", "half", "half", "word", "word", "clock", "part"))
        begin, end = (
            {"half": str(hour % 12 or 12), "word": NUMBER_WORDS[hour % 12 or 12], "clock": f"{hour}:00",
             "part": f"{hour % 12 or 12} {'am' if hour < 12 else 'pm'}"}[form]
            for hour in (start, start + hours)
        )  # fmt: skip
        span = rng.choice(("from {} to {}", "from {} till {}", "from {} until {}", "between {} and {}", "{} to {}"))
        words = span.format(begin, end)
        if rng.random() < 0.5 or form in ("half", "word") and hours == 12:
            count = rng.choice((str(hours), NUMBER_WORDS[hours])) + (" hour" if hours == 1 else " hours")
            words += rng.choice((", that's {}", ", so {}", ", {} in all", " ({})", ", which makes {}", ", {}")).format(
                count
            )
        return self.worded("named", "parked_span", Ask("parked", hour=hours), n=words)

    def bills(self):
        """Two bills to be added up: of two places, or of tickets and goods."""
        rng = self.rng
        first = self.simple("bill")
        if not first:
            return None
        if rng.random() < 0.3:
            items = draw("items", rng)
            words = (
                rng.choice((" and ", " plus ", ", and ", " and then ", " and also ")) + slots_for(items, rng)["items"]
            )
            return self.joined(first, Drawn("named", first.phrasing, items, words), "")
        ask = first.ask._replace(party=first.ask.party[:2])
        other = rng.choice([place for place in PAYING if place != ask.place])
        names = paired(place_word(ask.place, rng), place_word(other, rng), rng, "the ").replace(" or ", " and ")
        return self.together("named", "bill", (ask, ask._replace(place=other)), p=names)

    def joined(self, first, second, connector=None):
        """Two questions in one."""
        if not first or not second or held_facts(first.ask) or held_facts(second.ask):
            return None
        ask = Ask("both", parts=(first.ask, second.ask))
        phrasing = Phrasing(f"{first.phrasing.text} + {second.phrasing.text}", (), False)
        connector = self.rng.choice(CONNECTORS) if connector is None else connector
        return Drawn(first.group, phrasing, ask, first.text + connector + second.text.removeprefix("and "))

    def then(self):
        """A question and one that leans on it."""
        rng = self.rng
        place = rng.choice(PAYING if rng.random() < 0.6 else OPENING)
        asked = (
            "hours",
            "day",
            "opens",
            "closes",
            "is_open",
            "closed_days",
            "way",
            "distance",
            "prices",
            "price",
            "bill",
        )
        known = [kind for kind in asked if place in PAYING or kind not in ("price", "bill")]
        known = known if place in REACHED else [kind for kind in known if kind not in ("way", "distance")]
        first, second = draw_pair(rng, known)
        drawn = self.joined(self.simple(first, place), self.worded("it", second, draw(second, rng, place)))
        if drawn and {first, second} in ({"prices", "bill"}, {"price", "bill"}):
            return None  # which of the two is wanted?
        whole = {("distance", "way"): "way", ("closed_days", "hours"): "hours", ("price", "prices"): "prices"}
        intent = whole.get(tuple(sorted((first, second))))
        return drawn._replace(ask=Ask(intent, place)) if drawn and intent else drawn

    def three(self):
        """Three questions about one place."""
        rng = self.rng
        place = rng.choice(PAYING)
        kinds = [rng.choice(of) for of in (("hours", "day", "closes"), ("way", "distance"), ("prices", "bill"))]
        rng.shuffle(kinds)
        drawn = [self.simple(kinds[0], place), *(self.worded("it", kind, draw(kind, rng, place)) for kind in kinds[1:])]
        if not all(drawn) or any(held_facts(one.ask) for one in drawn):
            return None
        texts = [one.text.removeprefix("and ") for one in drawn]
        first, last = rng.choice((", ", "? ", ". ", " and ")), rng.choice((" and ", ", and ", "? and "))
        text = texts[0] + first + texts[1] + last + texts[2]
        phrasing = Phrasing(" + ".join(one.phrasing.text for one in drawn), (), False)
        return Drawn("named", phrasing, Ask("both", parts=tuple(one.ask for one in drawn)), text)

    # A sentence first, and then a question that leans on it

    def lead(self, kind, ask, fits=None, **words):
        """A sentence that says what the next question is about; `fits` as in `worded`."""
        rng = self.rng
        phrasing = rng.choices(*shown("lead", kind))[0]
        text = rephrased(spoken(expand(phrasing.tree, rng), rng), rng)
        slots = slots_for(ask, rng) | words
        unfit = not fits(text) if fits else miscounts(text, ask, slots)
        return None if unfit else Drawn("named", phrasing, ask, filled(text, rng, slots))

    def led_by(self, lead, drawn, ask):
        """The sentence and the question as one turn that asks `ask`."""
        if not lead or not drawn or held_facts(ask) or held_facts(drawn.ask):
            return None
        phrasing = Phrasing(f"{lead.phrasing.text} / {drawn.phrasing.text}", (), False)
        text = re.sub(r"\b(?:this|next|coming|on that day|that day|on a) (that day|then)\b", r"\1", drawn.text)
        text = re.sub(r"\bon (that day)\b", self.rng.choice(("that day", "then", "on that day")), text)
        between = " " if lead.text.endswith("?") else self.rng.choice(SEPARATORS)
        return Drawn("named", phrasing, ask, lead.text + between + text)

    def led(self):
        """A place, a day or a party in a sentence of its own, and a question that leans on it."""
        rng = self.rng
        kinds = ("place", "place_day", "day", "party", "party_place", "kin_place", "day_time", "start")
        kind = rng.choices(kinds, (8, 7, 7, 6, 13, 5, 7, 6))[0]
        if kind in ("party", "party_place"):
            ask = draw("bill", rng)
            lead = self.lead(kind, ask)
            return self.led_by(lead, self.worded("asks", "party" if kind == "party" else "total", ask), ask)
        if kind == "kin_place":
            return self.kin()
        if kind in ("day_time", "start"):
            return getattr(self, kind)()
        intent = rng.choice(LED[kind])
        if kind == "place":
            known = PLACES_FOR.get(intent, OPENING)
            ask = draw(intent, rng, rng.choice(known))
            return self.led_by(self.lead(kind, ask), self.worded("it", intent, ask), ask)
        ask = draw("day" if intent == "hours" else intent, rng)
        name = day_word(ask.day, rng)
        if intent in ("day", "hours", "opens", "closes", "is_open") and rng.random() < 0.15:
            name += " " + ({"opens": "morning", "closes": "evening"}.get(intent) or part_of_day(-1, rng))
            ask = ask._replace(intent="day" if intent == "is_open" else ask.intent)
        lead = self.lead(kind, ask, d=name)
        if intent == "hours":
            return self.led_by(lead, self.worded("it", "hours", Ask("hours", ask.place)), ask)
        worded = self.worded("it" if kind == "place_day" else "named", intent, ask, d="that day")
        return self.led_by(lead, worded, worded.ask._replace(intent=ask.intent) if worded else ask)

    def day_time(self):
        """When the visitor has time, in a sentence of its own, and what is open then."""
        rng = self.rng
        ask = draw("open_at" if rng.random() < 0.15 else "is_open_at", rng)
        return self.led_by(
            self.lead("day_time", ask), self.worded("asks", "open_then" if ask.place else "what_then", ask), ask
        )

    def start(self):
        """Where the visitor is, in a sentence of its own, and where to from there."""
        rng = self.rng
        ask = draw("route", rng)
        lead = self.lead("start", ask)
        if not lead:
            return None
        if ask.origin in STARTED and rng.random() < 0.5:
            origin = "bus stop" if ask.origin == "bus stop" else place_word(ask.origin, rng)
            lead = lead._replace(text=f"{rng.choice(STARTED[ask.origin])} the {origin}")
        return self.led_by(lead, self.worded("asks", "from_there", ask), ask)

    def led_two(self):
        """A place in a sentence of its own, perhaps with who comes, and two questions about it."""
        rng = self.rng
        place, party = rng.choice(PAYING), draw("bill", rng).party
        with_party = rng.random() < 0.35
        money = "bill" if with_party else rng.choice(("prices", "price", "bill"))
        kinds = [rng.choice(("hours", "day", "opens", "closes", "is_open")), rng.choice(("way", "distance")), money]
        first, second = rng.sample(kinds, 2) if not with_party else rng.sample([rng.choice(kinds[:2]), money], 2)
        lead = self.lead("party_place" if with_party else "place", Ask("bill", place, party=party))
        drawn = []
        for kind in (first, second):
            ask = Ask("bill", place, party=party) if with_party and kind == "bill" else draw(kind, rng, place)
            group, wording = ("asks", "total") if with_party and kind == "bill" else ("it", kind)
            drawn.append(self.worded(group, wording, ask))
        both = self.joined(*drawn)
        return both and self.led_by(lead, both, both.ask)

    def kin(self):
        """People named by kinship, perhaps counted once more, and what they pay."""
        rng = self.rng
        lines = [line for line in KIN if line[0] != "adult"]
        line, partners = rng.choice(lines), ("adult", rng.randint(1, 2))
        party = rng.choice(((line, ("adult", 1)), (partners, line), (("adult", 2),)))
        ask = Ask("bill", rng.choice(PAYING), party=party)
        lead = self.lead("kin_place", ask, kin=kin_words(party, rng))
        if lead and rng.random() < 0.5:
            counted = party_words(party if rng.random() < 0.5 else party[::-1], rng)
            lead = lead._replace(text=lead.text + rng.choice((". ", ": ", ", ", " - ")) + counted)
        return self.led_by(lead, self.worded("asks", "total", ask), ask)

    def led_both(self):
        """Two places in a sentence of their own, and a question about both."""
        rng = self.rng
        intent = rng.choice(OF_BOTH)
        first, second = draw_pair(rng, PLACES_FOR.get(intent, OPENING))
        ask = draw(intent, rng, first)
        ask = ask._replace(party=ask.party[:2])
        asks = (ask, ask._replace(place=second))
        if any(map(held_facts, asks)):
            return None
        names = paired(place_word(first, rng), place_word(second, rng), rng, "the ").replace(" or ", " and ")
        if intent == "day" and rng.random() < 0.7:  # the day stands in the sentence
            lead = self.lead("places_day", ask, ps="the " + names)
            worded = self.worded("asks", "hours", ask)
            return self.led_by(lead, worded, Ask("both", parts=asks))
        lead = self.lead("places", ask, ps="the " + names)
        return self.led_by(lead, self.worded("asks", intent, ask), Ask("both", parts=asks))

    def twice(self):
        """The same thing asked in two ways, which wants one answer."""
        rng = self.rng
        if rng.random() < 0.25:
            place = rng.choice(PAYING)
            pairs = (("way", "distance"), ("distance", "way"), ("prices", "prices"), ("hours", "hours"))
            first, second = rng.choice(pairs)
            ask = Ask("way" if first != second else first, place)
            return self.led_by(self.simple_lead(first, ask), self.worded("it", second, Ask(second, place)), ask)
        ask = draw("day", rng)
        first, second = rng.choice(PARTS[:4]), rng.choice(("hours", *PARTS[:4]))
        intent = first if first == second or first == "is_open" else "day"
        lead = self.simple_lead(first, ask._replace(intent=first))
        worded = self.worded("it", second, Ask(second, ask.place, -1 if second == "hours" else ask.day), d="that day")
        return self.led_by(lead, worded, ask._replace(intent=intent))

    def simple_lead(self, kind, ask):
        """A question as the sentence before another."""
        drawn = self.worded("named", kind, ask._replace(intent=kind))
        return drawn and drawn._replace(text=drawn.text + self.rng.choice(("?", "?", "")))

    def purpose(self):
        """A question for what one wants to do, rather than for the place where it is done."""
        rng = self.rng
        place = rng.choice(tuple(PURPOSES))
        intent = "way"
        if place in OPENING and rng.random() < 0.75:
            known = [kind for kind in GROUPS["purpose"] if place in PAYING or kind in TIMED]
            intent = rng.choice([kind for kind in known if kind != "way"])
        ask = draw(intent, rng, place)
        return self.worded("purpose", intent, ask, u=rng.choice(PURPOSES[place]))

    def other(self):
        """Two questions that have nothing to do with each other, one of them perhaps a stranger's."""
        rng = self.rng
        first = self.simple(rng.choice(JOINED))
        second = self.simple(rng.choice(JOINED))
        if rng.random() < 0.1:
            second = self.stranger()
            if second and not second.text.startswith(strangers.QUESTION_WORDS):
                return None  # what is not a question asks for no answer
        if rng.random() < 0.5:
            first, second = second, first
        if not first or not second:
            return None
        intents = {first.ask.intent, second.ask.intent}
        return self.joined(first, second) if len(intents) == 2 and not intents & CHATTER else None

    # What the kiosk declines

    def holiday(self, group, intent):
        """A question about a holiday or a date."""
        ask = draw(intent, self.rng, "museum" if group != "named" else "")
        drawn = self.worded(group, intent, ask, d=holiday_word(self.rng))
        return drawn and drawn._replace(ask=Ask("holiday"))

    def many(self):
        """More than two places or days."""
        rng = self.rng
        places = rng.random() < 0.6
        intent = rng.choice(OF_PLACES if places else OF_DAYS[:4])
        known = PLACES_FOR.get(intent, OPENING[1:])
        words = [place_word(place, rng) for place in rng.sample(known, rng.randint(3, 4))]
        if not places:
            words = [day_word(day, rng) for day in rng.sample(range(7), 3)]
        the = "the " if places and rng.random() < 0.7 else ""
        text = f", {the}".join(words[:-1]) + rng.choice((" and ", " and ", " or ", ", ")) + the + words[-1]
        drawn = self.worded("named", intent, draw(intent, rng, rng.choice(known)), **{"p" if places else "d": text})
        return drawn._replace(ask=Ask("many")) if drawn and takes(drawn.phrasing, "p" if places else "d") else None

    def hundreds(self):
        """More visitors or goods of a kind than the kiosk can count."""
        rng = self.rng
        intent = rng.choice(("bill", "items"))
        ask = draw(intent, rng)
        lines, at = list(ask.party), rng.randrange(len(ask.party))
        lines[at] = (lines[at][0], rng.choice((100, 120, 150, 200, 250, 300, 500, rng.randint(100, 999))))
        words = " and ".join(line_word(what, count, True, rng) for what, count in lines)
        drawn = self.worded("named", intent, ask, party=words, items=words)
        return drawn._replace(ask=Ask("hundreds")) if drawn and takes(drawn.phrasing, ("party", "items")) else None

    def baby(self):
        """A sum for visitors of whom one is too small to pay."""
        rng = self.rng
        ask = draw("bill", rng)
        small = rng.choice(BABIES)
        words = party_words(ask.party, rng) + rng.choice((" and ", ", ", " plus ", " with ")) + small
        drawn = self.worded("named", "bill", ask, fits=lambda text: not WITH_ME.search(text), party=words)
        if not drawn or not takes(drawn.phrasing, ("party",)):
            return None
        return drawn._replace(ask=Ask("both", parts=(drawn.ask, Ask("toddler"))))

    def known_word(self, options, rng):
        """A stranger's word that is not held out."""
        while True:
            word = rng.choice(options)
            if not held_word(word):
                return word

    def stranger(self):
        """A question that the kiosk cannot answer."""
        rng, word = self.rng, self.known_word
        kind = rng.random()
        unknown = Phrasing("(made up)", (), False)
        if kind < 0.40:
            phrasing = rng.choices(*shown("refuse", "refuse"))[0]
            slots = {
                "m": lambda rng: word(strangers.NAMES, rng), "n": lambda rng: word(strangers.NOUNS, rng),
                "v": lambda rng: word(strangers.VERBS, rng), "j": lambda rng: word(strangers.ADJECTIVES, rng),
                "d": day_word(rng.randrange(7), rng), "x": str(rng.randint(2, 99)), "y": str(rng.randint(2, 99)),
            }  # fmt: skip
            text = spoken(expand(phrasing.tree, rng), rng)
            return Drawn("refuse", phrasing, Ask("refuse"), filled(text, rng, slots))
        if kind < 0.56:
            return Drawn("refuse", unknown, Ask("refuse"), strangers.sentence(rng, word))
        if kind < 0.60:
            return Drawn("refuse", unknown, Ask("refuse"), strangers.letters(rng))
        return self.lookalike()

    def lookalike(self):
        """A question of the kiosk's own kind about a place or goods that the park does not have."""
        rng, word = self.rng, self.known_word
        intent = rng.choice(
            ("hours", "day", "is_open", "way", "distance", "route", "prices", "price", "bill", "item", "items")
        )
        ask = draw(intent, rng)
        if intent in ("item", "items"):
            thing = strangers.invented(rng) if rng.random() < 0.15 else word(strangers.GOODS, rng)
            if intent == "item":
                words = {"i": with_article(thing), "is_": thing + "s", "i_": thing}
            else:
                count = rng.randint(1, 20)
                things = [f"{count} {thing}{'s' if count > 1 else ''}"]
                things += [line_word(what, many, True, rng) for what, many in ask.party[: rng.randint(0, 2)]]
                rng.shuffle(things)
                words = {"items": " and ".join(things)}
                if rng.random() < 0.25:
                    intent, words["m"] = "change_items", payment(count * 5, rng)[1]
        else:
            name = strangers.invented(rng) if rng.random() < 0.2 else word(strangers.PLACES, rng)
            if intent in TIMED and rng.random() < 0.3:
                name = place_word(rng.choice([place for place in REACHED if place not in OPENING]), rng)  # whose hours?
            if rng.random() < 0.1:
                names = [name, place_word(rng.choice(PAYING), rng)]
                rng.shuffle(names)
                name = paired(*names, rng, "the ")
            words = {"p": name, "is": "is"}
        drawn = self.worded("named", intent, ask, **words)
        if not drawn or not takes(drawn.phrasing, words):
            return None
        return drawn._replace(group="refuse", ask=Ask("refuse"))

    # What leans on the question before

    def leaning(self):
        return self.state is not None and self.age <= 2

    def following(self):
        """A question that leans on the one before."""
        rng, last = self.rng, self.state
        kind = rng.choices(tuple(FOLLOW_WEIGHTS), tuple(FOLLOW_WEIGHTS.values()))[0]
        if last.intent == "people" and kind not in ("+thanks", "bill"):
            kind = "bill"  # the kiosk has just asked who they are
        if kind in ("+more", "+fewer", "+swap", "+back", "+settled", "+reset", "+other_day", "+joins", "+withdrawn",
                    "+some_more", "+shared"):  # fmt: skip
            return getattr(self, kind[1:])()
        if kind == "+thanks":
            return self.worded("plain", "thanks", Ask("thanks"))
        if kind == "+holiday":
            return self.holiday("bit", "day") if last.intent in TIMED else None
        if kind in ("+days", "+kinds"):
            known = OPENING if kind == "+days" else PAYING
            return getattr(self, kind[1:])(last.place, "it") if last.place in known else None
        if kind[0] == "+":
            ask = self.continued(kind[1:])
            return ask and self.worded("bit", kind[1:], ask)
        place = last.place
        walked = ("way", "distance", "route", "nearer", "to_kiosk")
        wanted = OPENING if kind in TIMED else REACHED if kind in walked else PAYING
        if kind == "to_kiosk" and last.intent not in ("way", "distance", "route"):
            return None
        if place and place not in OPENING and kind in TIMED[:8]:
            drawn = self.worded("it", kind, draw(kind, rng, "museum"))
            return drawn and drawn._replace(ask=Ask("refuse"))
        if not place or place not in wanted and not (kind == "prices" and place in OPENING):
            return None
        ask = draw(kind, rng, place)
        if kind == "cheaper":
            ask = ask._replace(what="")
        if kind == "bill" and rng.random() < 0.3:
            people = family(rng)
            if not people.party or last.party and not people.has_self:
                return None  # "and my wife" may add to the last bill
            return self.with_baby(self.worded_family(people, ask._replace(party=people.party), "it"), people)
        drawn = self.worded("it", kind, ask)
        if drawn and kind == "bill" and last.party and set(dict(ask.party)) < set(dict(last.party)):
            return None if CORRECTING.search(drawn.text) else drawn  # is the rest of the party still there?
        return drawn

    def more(self):
        """Further visitors or goods, to be added to the last bill."""
        rng, last = self.rng, self.state
        if last.intent not in ("bill", "items") or not last.party:
            return None
        kinds = CATEGORIES if last.intent == "bill" else tuple(GOODS)
        what = rng.choice(kinds if rng.random() < 0.5 else tuple(what for what, _ in last.party))
        count, party = rng.choice((1, 1, 1, 2, 2, 2, 3, 4, 5, rng.randint(6, 20))), dict(last.party)
        party[what] = party.get(what, 0) + count
        if party[what] > 99 or len(party) > 4:
            return None
        words = line_word(what, count, rng.random() < 0.5, rng, 0)
        words = words.replace("a ", "another ", 1) if words.startswith("a ") and rng.random() < 0.4 else words
        ask = last._replace(party=tuple(party.items()))
        return self.worded("it", "more", ask, party=words, more=changed_words(what, count, rng))

    def joins(self):
        """Somebody who is named by a role, to be added to the last bill."""
        rng, last = self.rng, self.state
        if last.intent != "bill" or not last.place or not last.party:
            return None
        words, kind, count = newcomer(rng)
        party = dict(last.party)
        if kind != BABY:
            party[kind] = party.get(kind, 0) + count
        if len(party) > 4 or max(party.values()) > 99:
            return None
        drawn = self.worded("it", "joins", last._replace(party=tuple(party.items())), party=words)
        return drawn and drawn._replace(ask=Ask("both", parts=(drawn.ask, Ask("toddler")))) if kind == BABY else drawn

    def fewer(self):
        """Some visitors or goods of the last bill less."""
        rng, last = self.rng, self.state
        if last.intent not in ("bill", "items") or not last.party:
            return None
        at = rng.randrange(len(last.party))
        what, had = last.party[at]
        count = had if len(last.party) > 1 and rng.random() < 0.3 else rng.randint(1, min(had, 4))
        if count == had and len(last.party) == 1:
            return None
        words = fewer_words(what, count, rng)
        if count == had and rng.random() < 0.8:
            one, many = (what, GOODS[what][0]) if what in GOODS else rng.choice(VISITORS[what])
            none = rng.choice(("no", "no", "zero", "0", "without any"))
            words = f"without the {one if had == 1 else many}" if rng.random() < 0.5 else f"{none} {many}"
        left = [(what, had - count)] if had > count else []
        party = (*last.party[:at], *left, *last.party[at + 1 :])
        return self.worded("it", "fewer", last._replace(party=party), fewer=words)

    def swap(self):
        """Another number, or another kind, in place of one line of the last bill."""
        rng, last = self.rng, self.state
        if last.intent not in ("bill", "items") or not last.party:
            return None
        at, digits = rng.randrange(len(last.party)), rng.random() < 0.7
        what, had = last.party[at]
        kinds = [kind for kind in (CATEGORIES if last.intent == "bill" else GOODS) if kind not in dict(last.party)]
        others = [number for number in range(max(1, had - 5), min(99, had + 5) + 1) if number != had]
        kind, count = what, rng.choice(others)
        if kinds and rng.random() < 0.35:
            kind, count = rng.choice(kinds), had
        old, new = line_word(what, had, digits, rng, 0), line_word(kind, count, digits, rng, 0)
        if kind == what and rng.random() < 0.5:
            old = str(had) if digits else old
        party = (*last.party[:at], (kind, count), *last.party[at + 1 :])
        return self.worded("it", "swap", last._replace(party=party), old=old, new=new)

    def reset(self):
        """Another number for one line of the last bill; the others stay."""
        rng, last = self.rng, self.state
        if last.intent not in ("bill", "items") or not last.party:
            return None
        at = rng.randrange(len(last.party))
        what, had = last.party[at]
        count = rng.choice([number for number in range(1, min(99, had + 5) + 1) if number != had])
        party = (*last.party[:at], (what, count), *last.party[at + 1 :])
        digits = rng.random() < 0.6
        words, old = (line_word(what, number, digits, rng, 0) for number in (count, had))
        words = re.sub(r"^an? ", "one ", words)  # "make it a soup" would leave no other
        return self.worded("it", "reset", last._replace(party=party), party=words, old=old)

    def other_day(self):
        """Another day in place of the last one, which does not suit."""
        rng, last = self.rng, self.state
        ask = self.continued("day") if last.day >= 0 and last.intent in DAILY else None
        if not ask or ask.day == last.day:
            return None
        return self.worded("it", "other_day", ask, old=day_word(last.day, rng))

    def back(self):
        """The way back from where the last route led."""
        last = self.state
        if last.intent != "route" or not last.origin:
            return None
        return self.worded("it", "back", last._replace(place=last.origin, origin=last.place))

    def continued(self, what):
        """The last question with another day, time or place; None if it has no such thing."""
        rng, last = self.rng, self.state
        if what == "day":
            if last.intent == "at_time" and last.place:
                return last._replace(intent="is_open_at", day=rng.randrange(7))
            if last.intent not in TIMED + ("about", "way") or (last.intent != "open_on" and last.place not in OPENING):
                return None
            return last._replace(intent=last.intent if last.intent in DAILY else "day", day=rng.randrange(7))
        if what == "time":
            if last.intent not in ("is_open_at", "is_open", "day") or not last.place:
                return None
            return last._replace(intent="is_open_at", hour=draw("is_open_at", rng, last.place).hour)
        if last.intent in ("route", "open_on", "items") or last.intent == "today" and not last.place:
            return None
        known = REACHED if last.intent in ("way", "distance") else OPENING
        if last.intent in ("prices", "price", "bill") and rng.random() < 0.85:
            known = PAYING
        return last._replace(place=rng.choice([place for place in known if place != last.place]))

    # The dialogue

    def turn(self):
        """The next question and its reply."""
        while True:
            drawn = self.following() if self.leaning() and self.rng.random() < 0.55 else self.opening()
            if drawn and not is_held(drawn.phrasing, drawn.ask):
                break
        group, phrasing, ask, text = drawn
        text = text.replace("the alder park", "alder park")
        text = re.sub(r"\b(this|next|coming|come|for) an? (?=\w+day\b)", r"\1 ", text)
        if self.state and (group in ("it", "bit") or self.rng.random() < 0.3) and self.rng.random() < 0.15:
            text = spoken("{remark}{dot}", self.rng) + text
        elif group not in ("it", "bit") and ask.intent not in CHATTER:
            text = self.with_aside(text, ask)
        question = dress(" ".join(text.split()), self.rng, ask.intent in SOCIAL)
        self.age += 1
        self.remember(group, ask)
        self.asked = text if self.age == 0 else self.asked
        self.previous = ask
        return Turn(question.strip(), answer(ask), ask, group, phrasing)

    def with_aside(self, text, ask):
        """The question, perhaps with a sentence before or after it that changes nothing."""
        rng, chance = self.rng, self.rng.random()
        many = bool(ask.party or ask.parts or ask.intent in ("people", "hundreds", "group", "add", "refuse"))
        if chance > (0.08 if many else 0.13):
            return text
        aside = strangers.statement(rng, self.known_word, many)
        aside = filled(spoken(aside, rng), rng, {"x": str(rng.randint(2, 40))})
        if chance < 0.03 and not ask.parts:
            return text + rng.choice((". ", "? ", ". ", "? ", " - ", ", ")) + aside
        return aside + rng.choice((". ", ". ", ". ", ", ", ". so ", " and ", " - ", "! ", "... ", "; ")) + text

    def remember(self, group, ask):
        """Keeps what the next question may lean on. Small talk in between changes nothing."""
        last = ask
        if ask.intent == "settled":  # what was bought stays
            self.age = 0
            return
        if ask.parts:
            parts = [part for part in ask.parts if part.intent not in ("toddler", "split")]
            last = parts[-1] if len({part.place for part in parts}) == 1 else None
        if last and last.intent == "change":
            last = last._replace(intent="bill" if last.place else "items", paid=0)
        if last is None or last.intent in UNCLEAR or last.intent == "people" and not last.place:
            self.state, self.age = None, 0
        elif last.intent in LEADING and (last.place or group in ("it", "bit") or last.intent in ("open_on", "items")):
            self.state, self.age = last, 0


def freely_worded():
    return [entry for file in FREE_FILES for entry in json.loads(file.read_text())]


@lru_cache(maxsize=1)
def forbidden():
    """The held-out questions as strings: alone, or after the one before where they lean on it."""
    exact = {entry["identity"] for entry in json.loads(HELDOUT_FILE.read_text())}
    return exact.union(map(free_identity, freely_worded()))


def free_identity(entry):
    asked = [message["content"] for message in entry["messages"] if message["role"] == "user"]
    return max(identities(asked), key=len) if entry.get("leans") else normal(asked[-1])


def shortened(question):
    """The question without one of its words, for each of them."""
    words = question.split(" ")
    return {" ".join(words[:at] + words[at + 1 :]) for at in range(len(words))}


@lru_cache(maxsize=1)
def nearly_forbidden():
    """The freely worded questions, and what is left of each without one of its words."""
    free = set(map(free_identity, freely_worded()))
    return free.union(*map(shortened, free))


def is_forbidden(turns):
    """Whether the last of `turns` is a held-out question, or a freely worded one with a word lost, gained or exchanged."""
    asked = identities([turn.question for turn in turns[-2:]])
    near = nearly_forbidden()
    return not forbidden().isdisjoint(asked) or any(one in near or not near.isdisjoint(shortened(one)) for one in asked)


def training_dialogue(rng):
    """A list of turns for training, none of them held out."""
    while True:
        speaker, turns = Speaker(rng), []
        length = rng.choices((1, 2, 3, 4, 5, 8, 12), (30, 25, 15, 10, 8, 7, 5))[0]
        for _ in range(length):
            turns.append(speaker.turn())
            if is_forbidden(turns):
                break
        else:
            if rng.random() < 0.03:  # a system message stands before the first question, and changes nothing
                turns[0] = turns[0]._replace(question=f"{rng.choice(SYSTEM)}\n\n{turns[0].question}")
            return turns


def training_stream(seed, batch):
    """The dialogues of one training batch, endlessly; the same on every machine."""
    rng = random.Random(f"{seed}/{batch}")
    while True:
        yield training_dialogue(rng)


BATCH_DIALOGUES = 320  # more than one batch of train.py ever takes


def main():
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        for turn in next(training_stream(1, number)):
            print(f"> {turn.question}\n  {turn.reply}")
        print()


if __name__ == "__main__":
    main()
