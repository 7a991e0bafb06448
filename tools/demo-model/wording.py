"""From a question to the words that a visitor types: phrasings and their slots, case and marks, slips of the finger."""

import re
from typing import NamedTuple

import phrases
import strangers
from world import DAYS, GOODS

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
                options = []
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
    text = re.sub(r"\b(" + "|".join(DAYS) + r")(s?)\b", lambda m: m[0].capitalize(), text, flags=re.IGNORECASE)
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
