"""From a question to the words that a visitor types: phrasings and their slots, case and marks, slips of the finger."""

import re
from typing import NamedTuple

import phrases
import strangers
from world import DAYS, GOODS

PLACE_WORDS = {
    "greenhouse": ("greenhouse", "greenhouse", "glasshouse", "hothouse"),
    "castle tower": ("castle tower", "castle tower", "tower", "castle"),
    "boat house": ("boat house", "boat house", "boathouse", "boat hire", "boat rental"),
    "mini golf": ("mini golf", "mini golf", "minigolf", "mini golf course", "crazy golf"),
    "cafe": ("cafe", "cafe", "coffee shop", "coffee house"),
    "restaurant": ("restaurant", "restaurant", "restaurant", "diner"),
    "gift shop": ("gift shop", "gift shop", "shop", "souvenir shop"),
    "playground": ("playground", "playground", "play area", "kids playground"),
    "toilets": (
        "toilets",
        "toilets",
        "toilet",
        "restroom",
        "bathroom",
        "wc",
        "loo",
        "restrooms",
        "ladies room",
        "washroom",
    ),
    "car park": ("car park", "car park", "parking lot", "carpark"),
    "train station": ("train station", "train station", "station", "railway station"),
    "bus stop": ("bus stop", "bus stop", "bus", "bus station"),
    "first aid post": ("first aid post", "first aid", "first aid station"),
    "lockers": ("lockers", "lockers", "locker", "luggage lockers"),
    "cash machine": ("cash machine", "cash machine", "atm", "cash point"),
    "picnic area": ("picnic area", "picnic area", "picnic place", "picnic spot", "picnic tables"),
}
PLURAL_WORDS = ("toilets", "lockers", "restrooms", "luggage lockers", "picnic tables")
VISITORS = {
    "adult": (("adult", "adults"), ("adult", "adults"), ("grown-up", "grown-ups"), ("grownup", "grownups")),
    "child": (("child", "children"), ("child", "children"), ("kid", "kids"), ("kid", "kids"), ("youngster", "youngsters")),
    "senior": (
        ("senior", "seniors"), ("senior", "seniors"), ("pensioner", "pensioners"), ("retiree", "retirees"),
        ("senior citizen", "senior citizens"), ("retired person", "retired people"),
    ),
    "student": (("student", "students"), ("student", "students"), ("student", "students"), ("uni student", "uni students")),
}  # fmt: skip
ESCORTS = {  # words for visitors that fit a group only
    "adult": (("teacher", "teachers"), ("parent", "parents"), ("adult person", "adult persons")),
    "child": (("pupil", "pupils"), ("little one", "little ones"), ("school child", "school children")),
    "senior": (("grandparent", "grandparents"), ("oap", "oaps"), ("elderly person", "elderly people")),
    "student": (("college student", "college students"), ("university student", "university students")),
}
KIN = {  # visitors whom people name without a number
    ("adult", 1): ("me", "myself", "my wife", "my husband", "one parent"),
    ("adult", 2): ("me and my wife", "my husband and me", "mum and dad", "my partner and i", "my girlfriend and me",
                   "my boyfriend and i", "both parents", "my sister and me", "my friend and i"),
    ("child", 1): ("my son", "my daughter", "our daughter", "our little one", "my little boy", "our kid"),
    ("child", 2): ("our twins", "our two kids", "my two boys", "both our kids", "my son and my daughter"),
    ("child", 3): ("our three kids", "my 3 kids", "our three children", "my three girls"),
    ("child", 4): ("our four kids", "my 4 children"),
    ("senior", 1): ("my grandma", "grandpa", "my grandmother", "granny", "my grandfather"),
    ("senior", 2): ("my grandparents", "grandma and grandpa", "my gran and grandad"),
}  # fmt: skip
HOLIDAYS = (
    "christmas|christmas day|christmas eve|xmas|boxing day|new year's day|new year's eve|new year|easter|easter sunday|"
    "easter monday|good friday|public holidays|a public holiday|bank holidays|a bank holiday|thanksgiving|halloween|"
    "independence day|labour day|the holidays|holidays|valentine's day|mother's day|whit monday|carnival|new years|"
    "bank holiday monday|christmas holidays|ascension day|the 1st of may|national day|epiphany|hanukkah|ramadan"
).split("|")
MONTHS = "january february march april may june july august september october november december".split()
NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()

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
    """A time in that hour. Nothing opens or closes within an hour, so its minutes change no answer."""
    half, part = hour % 12 or 12, "am" if hour < 12 else "pm"
    of_day = f"in the {'morning' if hour < 12 else 'afternoon' if hour < 18 else 'evening'}"
    words = [f"{hour}:00", f"{hour}:00", f"{half} {part}", f"{half} {part}", f"{half}{part}", f"{half} {of_day}"]
    words += [f"{hour}.00", f"{hour} o'clock", f"{NUMBER_WORDS[half]} {of_day}", f"{half} o'clock {of_day}"]
    if hour == 12:
        words += ["noon", "midday", "lunchtime"]
    if 13 <= hour <= 17:
        words += [f"{half} o'clock", f"{half}"]
    if rng.random() < 0.25:
        minutes = rng.choice(("30", "30", "15", "45", "10", "20", "50"))
        words = [f"{hour}:{minutes}", f"{hour}:{minutes}", f"{half}:{minutes} {part}", f"{half}:{minutes}{part}"]
        if minutes == "30":
            words += [f"half past {half} {of_day}", f"half past {NUMBER_WORDS[half]} {of_day}", f"{half}.30 {part}"]
        if minutes == "15":
            words.append(f"quarter past {NUMBER_WORDS[half]} {of_day}")
    return rng.choice(words)


def holiday_word(rng):
    """A holiday, a date or a month: days of which the kiosk knows nothing."""
    kind, month, day = rng.random(), rng.choice(MONTHS), rng.randint(1, 31)
    if kind < 0.65:
        return rng.choice(HOLIDAYS)
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")
    nth = f"{day}{ending}"
    return rng.choice(
        (f"{day} {month}", f"{month} {day}", f"the {nth} of {month}", f"{month} {nth}", f"{day}.{rng.randint(1, 12)}.")
    )


def with_article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def number_word(count, rng):
    """The number in letters."""
    if count == 12 and rng.random() < 0.2:
        return "a dozen"
    if count == 6 and rng.random() < 0.05:
        return "half a dozen"
    if count == 2 and rng.random() < 0.05:
        return "a couple of"
    if count < 20:
        return NUMBER_WORDS[count]
    ten, one = TENS[count // 10 - 2], count % 10
    return ten + (rng.choice(("-", "-", " ")) + NUMBER_WORDS[one] if one else "")


def count_word(count, rng):
    return str(count) if rng.random() < 0.6 else number_word(count, rng)


def line_word(what, count, digits, rng):
    if what in GOODS:
        one, many = what, GOODS[what][0]
    else:
        one, many = rng.choice(VISITORS[what] if rng.random() < 0.85 else ESCORTS[what])
        if (what, count) in KIN and rng.random() < 0.12:
            return rng.choice(KIN[what, count])
        if rng.random() < 0.06:
            one, many = f"{what} ticket", f"{what} tickets"
    if count == 1:
        return with_article(one) if rng.random() < 0.4 else f"{'1' if digits else 'one'} {one}"
    return f"{count if digits else number_word(count, rng)} {many}"


def party_words(party, rng):
    digits = rng.random() < 0.6
    mixed = rng.random() < 0.12
    words = [line_word(what, count, digits != (mixed and rng.random() < 0.5), rng) for what, count in party]
    if len(words) == 1:
        return words[0]
    last = rng.choices((" and ", ", ", " + ", " with ", " ", " plus ", " & "), (72, 8, 6, 6, 3, 3, 2))[0]
    return rng.choice((", ", ", ", " and ", " plus ")).join(words[:-1]) + last + words[-1]


def paired(first, second, rng, article=""):
    """Two or more words of a kind as one: 'museum and the aquarium', 'monday or tuesday'."""
    joint = rng.choices((" and ", " or ", " & ", " and also "), (70, 22, 4, 4))[0]
    return f"{first}{joint}{article if rng.random() < 0.8 else ''}{second}"


def slots_for(ask, rng):
    """The words for every slot that a phrasing of this question may have."""
    slots = {"x": lambda rng: count_word(rng.randint(2, 90), rng)}
    if ask.place:
        word = place_word(ask.place, rng)
        slots["p"], slots["is"] = word, "are" if word in PLURAL_WORDS else "is"
    if ask.origin:
        slots["o"] = place_word(ask.origin, rng)
    if ask.day >= 0:
        slots["d"] = day_word(ask.day, rng)
    if ask.hour >= 0:
        slots["t"] = time_word(ask.hour, rng)
        slots["n"] = "an hour" if ask.hour == 1 else f"{count_word(ask.hour, rng)} hours"
    if ask.what in GOODS:
        slots["i"], slots["is_"], slots["i_"] = with_article(ask.what), GOODS[ask.what][0], ask.what
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
    "hello there. ", "good afternoon, ", "good evening! ", "morning! ", "hi kiosk, ", "dear kiosk, ", "pardon me, ", "erm, ",
    "we have just arrived. ", "we came by train. ", "we are from france. ", "my daughter loves animals. ", "i am lost. ",
    "it is my mother's birthday. ", "we are tired. ", "my kids are asking, ", "my boss wants to know, ", "ah ok. ", "cool. ",
    "we don't have much time. ", "i'm planning a trip. ", "i am planning our visit, ", "for my plans, ", "right, ", "hmm, ",
    "not sure if you can help but ", "would you mind telling me, ", "i'd like to know, ", "could you please tell me, ",
    "sorry to bother you, ", "thank you. ", "perfect, thanks. ", "one last thing, ", "ok great, ", "first of all, ", "yo ",
)  # fmt: skip
CLOSERS = (
    " please", ", please", ", thanks", " thank you", ", do you know", ", can you tell me", " if i may ask", ", i wonder",
    " exactly", " then", " by the way", " for us", ", any idea", " pls", ", my friend", " please and thank you",
    ". thanks", ". thank you very much", ". cheers", ". sorry for my english", ", thanks in advance",
    ". we are in a hurry", ". it is our first time here", " if that's ok", " asap", " lol", " :)", "? thanks", "? thank you",
    ". my kids can't wait", ". we have little money", ". we are a bit lost", " or what", ", mate", ", right", " roughly",
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


SHORT_FORMS = (
    "what is: whats/what's|where is: wheres/where's|when is: whens/when's|i am: im/i'm|we are: we're|"
    "do not: dont|don't: dont|can't: cant|i'm: im|i'd: id|you: u/ya|are: r|please: plz/pls|and: &/n/an|"
    "want to: wanna|going to: gonna|tickets: tix/tickts|people: ppl|what: wat/wot|when: wen|"
    "does the: does/dose the|is the: is/is teh|the: teh/th|how much: how mutch|there: ther|to the: to/too the|"
    "would like: 'd like|open: opened/opne|monday: mon|tuesday: tue/tues|wednesday: wed/wensday/wednsday|"
    "thursday: thu/thurs|friday: fri|saturday: sat/saterday|sunday: sun|children: childs/childern|"
    "museum: musem/musuem|aquarium: aquarum/acquarium|planetarium: planetarum|restaurant: restaurent/resturant"
)
CHAT = {long: short.split("/") for long, short in (pair.split(": ") for pair in SHORT_FORMS.split("|"))}


def chat(text, rng):
    """The question as people type on a telephone."""
    for long, short in CHAT.items():
        if rng.random() < 0.4 and f" {long} " in f" {text} ":
            text = f" {text} ".replace(f" {long} ", f" {rng.choice(short)} ", 1).strip()
    return text


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


def dress(text, rng, social):
    """A phrasing as someone types it."""
    if not social:
        chance = rng.random()
        if chance < 0.12:
            text = rng.choice(OPENERS) + text
        if 0.1 < chance < 0.18:
            text += rng.choice(CLOSERS)
    if not social and rng.random() < 0.12:
        text = loosen(text, rng)
    if not social and rng.random() < 0.08:
        text = chat(text, rng)
    for _ in range(rng.choices((0, 1, 2), (86, 11, 3))[0]):
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
