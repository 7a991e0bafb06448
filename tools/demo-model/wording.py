"""From a question to the words that a visitor types: phrasings and their slots, case and marks, slips of the finger."""

import re
from functools import lru_cache
from typing import NamedTuple

import phrases
import strangers
from slots import SLOTS
from world import CATEGORIES, DAYS, GOODS

PLACE_WORDS = {
    "park": ("park", "park", "park", "alder park", "whole park"),
    "aquarium": ("aquarium",) * 12 + ("fish aquarium",),
    "planetarium": ("planetarium",) * 12 + ("planetarium building",),
    "museum": ("museum",) * 12 + ("park museum", "museum building"),
    "greenhouse": ("greenhouse", "greenhouse", "greenhouse", "glasshouse", "hothouse", "green house"),
    "castle tower": ("castle tower", "castle tower", "tower", "castle", "old tower", "castle's tower"),
    "boat house": (
        "boat house",
        "boat house",
        "boathouse",
        "boat hire",
        "boat rental",
        "boat-house",
        "rowing boat hire",
    ),
    "mini golf": (
        "mini golf",
        "mini golf",
        "minigolf",
        "mini golf course",
        "crazy golf",
        "mini-golf",
        "putting course",
    ),
    "cafe": ("cafe", "cafe", "coffee shop", "coffee house", "cafeteria", "caf\u00e9", "coffee bar", "park cafe"),
    "restaurant": ("restaurant", "restaurant", "restaurant", "diner", "park restaurant"),
    "gift shop": ("gift shop", "gift shop", "shop", "souvenir shop", "giftshop", "souvenir store", "gift store"),
    "playground": ("playground", "playground", "play area", "kids playground", "play ground", "children's playground"),
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
        "lavatory",
        "gents",
        "public toilet",
        "men's room",
    ),
    "car park": ("car park", "car park", "car park", "parking lot", "carpark", "parking area"),
    "train station": ("train station", "train station", "station", "railway station"),
    "bus stop": ("bus stop", "bus stop", "bus", "bus station"),
    "first aid post": ("first aid post", "first aid", "first aid station", "first-aid post", "first aid room"),
    "lockers": ("lockers", "lockers", "locker", "luggage lockers", "left luggage"),
    "cash machine": (
        "cash machine",
        "cash machine",
        "atm",
        "cash point",
        "cashpoint",
        "money machine",
        "cash dispenser",
    ),
    "picnic area": ("picnic area", "picnic area", "picnic place", "picnic spot", "picnic tables", "picnic ground"),
}
PLURAL_WORDS = ("toilets", "lockers", "restrooms", "luggage lockers", "picnic tables", "gents")
VISITORS = {
    "adult": (
        ("adult", "adults"), ("adult", "adults"), ("adult", "adults"), ("grown-up", "grown-ups"),
        ("grownup", "grownups"),
        ("grown up", "grown ups"),
    ),
    "child": (("child", "children"), ("child", "children"), ("kid", "kids"), ("kid", "kids"),
        ("youngster", "youngsters"),
              ("youngster", "youngsters"), ("schoolkid", "schoolkids")),
    "senior": (
        ("senior", "seniors"), ("senior", "seniors"), ("pensioner", "pensioners"), ("retiree", "retirees"),
        ("senior citizen", "senior citizens"), ("retired person", "retired people"), ("oap", "oaps"),
    ),
    "student": (
        ("student", "students"), ("student", "students"), ("student", "students"), ("uni student", "uni students"),
        ("undergrad", "undergrads"), ("college student", "college students"),
    ),
}  # fmt: skip
ESCORTS = {  # words for visitors that fit a group only
    "adult": (
        ("teacher", "teachers"), ("teacher", "teachers"), ("parent", "parents"), ("adult person", "adult persons"),
        ("grown up", "grown ups"), ("carer", "carers"), ("mum", "mums"), ("dad", "dads"), ("woman", "women"),
        ("coach", "coaches"), ("colleague", "colleagues"), ("adult visitor", "adult visitors"), ("man", "men"),
        ("friend", "friends"), ("neighbour", "neighbours"), ("guide", "guides"), ("lady", "ladies"),
        ("leader", "leaders"), ("big one", "big ones"), ("full-price adult", "full-price adults"),
    ),
    "child": (
        ("pupil", "pupils"), ("pupil", "pupils"), ("little one", "little ones"), ("school child", "school children"),
        ("boy", "boys"), ("girl", "girls"), ("schoolkid", "schoolkids"), ("schoolchild", "schoolchildren"),
        ("young child", "young children"), ("scout", "scouts"), ("grandchild", "grandchildren"), ("son", "sons"),
        ("daughter", "daughters"), ("niece", "nieces"), ("nephew", "nephews"), ("first grader", "first graders"),
        ("small kid", "small kids"), ("little girl", "little girls"), ("grandson", "grandsons"),
        ("small one", "small ones"), ("minor", "minors"),
    ),
    "senior": (
        ("grandparent", "grandparents"), ("oap", "oaps"), ("elderly person", "elderly people"),
        ("old age pensioner", "old age pensioners"), ("elderly lady", "elderly ladies"), ("granny", "grannies"),
        ("grandma", "grandmas"), ("grandad", "grandads"), ("retired teacher", "retired teachers"), ("elder", "elders"),
    ),
    "student": (
        ("college student", "college students"), ("university student", "university students"),
        ("exchange student", "exchange students"), ("undergraduate", "undergraduates"), ("law student", "law students"),
        ("foreign student", "foreign students"), ("student friend", "student friends"),
    ),
}  # fmt: skip
PARTNERS = (
    "wife|husband|girlfriend|boyfriend|partner|friend|sister|brother|colleague|cousin|neighbour|best friend"
).split("|")
KIN = {  # visitors whom people name without a number
    ("adult", 1): ("me", "me", "myself", "my wife", "my husband", "one parent", "my sister"),
    ("adult", 2): ("mum and dad", "both parents", "a couple", "me and a friend", "me and my best mate", "me and the wife",
                   *(both for one in PARTNERS for both in (f"me and my {one}", f"my {one} and me", f"my {one} and i"))),
    ("adult", 3): ("me and two friends", "my two friends and i", "me and my 2 brothers", "three friends of mine"),
    ("adult", 4): ("me and three friends", "two couples", "my three colleagues and i"),
    ("child", 1): ("my son", "my daughter", "our daughter", "our little one", "my little boy", "our kid", "my little girl",
                   "an 8 year old", "a 6-year-old", "my ten year old son", "our grandson", "my niece", "my nephew", "our boy"),
    ("child", 2): ("our twins", "our two kids", "my two boys", "both our kids", "my son and my daughter", "my two girls",
                   "the twins", "my two sons", "our two daughters", "my kids (5 and 8)", "our two grandchildren",
                   "two boys", "two little girls", "my 2 kids", "our kids aged 6 and 9"),
    ("child", 3): ("our three kids", "my 3 kids", "our three children", "my three girls", "three boys", "my three sons",
                   "our 3 little ones", "the three kids"),
    ("child", 4): ("our four kids", "my 4 children", "four boys", "our four grandchildren", "my four girls"),
    ("child", 5): ("our five kids", "my 5 children", "five little ones"),
    ("senior", 1): ("my grandma", "grandpa", "my grandmother", "granny", "my grandfather", "our grandad", "my old grandma"),
    ("senior", 2): ("my grandparents", "grandma and grandpa", "my gran and grandad", "our grandparents"),
}  # fmt: skip
SERVED = {  # how goods are named besides, for one and for many
    "coffee": (("cup of coffee", "cups of coffee"),),
    "tea": (("cup of tea", "cups of tea"),),
    "juice": (("glass of juice", "glasses of juice"),),
    "hot chocolate": (
        ("cup of hot chocolate", "cups of hot chocolate"),
        ("mug of hot chocolate", "mugs of hot chocolate"),
    ),
    "soup": (("bowl of soup", "bowls of soup"), ("plate of soup", "plates of soup")),
    "cake": (("piece of cake", "pieces of cake"), ("slice of cake", "slices of cake")),
    "ice cream": (("ice cream cone", "ice cream cones"), ("ice-cream", "ice-creams")),
    "postcard": (("post card", "post cards"), ("picture postcard", "picture postcards")),
    "map": (("park map", "park maps"), ("map of the park", "maps of the park"), ("visitor map", "visitor maps")),
    "magnet": (("fridge magnet", "fridge magnets"), ("souvenir magnet", "souvenir magnets")),
    "mug": (("souvenir mug", "souvenir mugs"), ("coffee mug", "coffee mugs"), ("tea mug", "tea mugs")),
    "umbrella": (("brolly", "brollies"), ("rain umbrella", "rain umbrellas")),
    "shirt": (
        ("t-shirt", "t-shirts"),
        ("tshirt", "tshirts"),
        ("tee shirt", "tee shirts"),
        ("park shirt", "park shirts"),
    ),
}
DOGS = (
    "poodle|labrador|beagle|terrier|bulldog|german shepherd|husky|chihuahua|pug|collie|spaniel|golden retriever|rottweiler|"
    "greyhound|corgi|dalmatian|doggy|pooch|puppy|sheepdog|mutt|yorkie|schnauzer|boxer|hound|great dane|sausage dog|doggie"
).split("|")  # fmt: skip
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
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    return tuple(Phrasing(line, parse(line.lstrip("* ")), line.startswith("*")) for line in lines)


def expand(tree, rng):
    """One wording of a phrasing, its slots left open."""
    out = []
    for part in tree:
        if isinstance(part, str):
            out.append(part)
        elif part[0] == "slot":
            out.append("{" + part[1] + "}")
        else:
            out.append(expand(rng.choice(part[1]), rng))
    return "".join(out)


FREE_SLOTS = {name: parse(f"({text})") for name, text in SLOTS.items()}


def spoken(text, rng):
    """The text with words for the slots of slots.py, and for those in them; what is asked for stays open."""
    while any(name in FREE_SLOTS for name in re.findall(r"\{(\w+)\}", text)):
        text = re.sub(r"\{(\w+)\}", lambda m: expand(FREE_SLOTS[m[1]], rng) if m[1] in FREE_SLOTS else m[0], text)
    return text


def filled(text, rng, slots):
    """The text with words for its slots."""

    def word(match):
        value = slots[match[1]]
        return value(rng) if callable(value) else value

    return re.sub(r"\{(\w+)\}", word, text)


@lru_cache(maxsize=None)
def slots_in(text):
    """The names of a phrasing's slots, and of the slots in those."""
    names = set(re.findall(r"\{(\w+)\}", text))
    return frozenset(names.union(*(slots_in(SLOTS[name]) for name in names if name in SLOTS)))


GROUPS = {
    "named": {intent: phrasings(text) for intent, text in phrases.NAMED.items()},
    "park": {intent: phrasings(text) for intent, text in phrases.PARK.items()},
    "it": {intent: phrasings(text) for intent, text in phrases.IT.items()},
    "bit": {what: phrasings(text) for what, text in phrases.ELLIPSIS.items()},
    "plain": {intent: phrasings(text) for intent, text in phrases.PLAIN.items()},
    "refuse": {"refuse": phrasings(strangers.TOPICS)},
    "lead": {what: phrasings(text) for what, text in phrases.LEADS.items()},
    "asks": {what: phrasings(text) for what, text in phrases.ASKS.items()},
    "purpose": {intent: phrasings(text) for intent, text in phrases.PURPOSED.items()},
}
PURPOSES = phrases.PURPOSES


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
    return rng.choices((name, name + "s", name[:3], "a " + name), (86, 5, 5, 4))[0]


def part_of_day(hour, rng):
    """When in the day the hour is, if one is given."""
    if hour < 0:
        return rng.choice(("morning", "afternoon", "evening", "night"))
    return "morning" if hour < 12 else "afternoon" if hour < 17 else rng.choice(("evening", "night"))


def time_word(hour, rng):
    """A time in that hour. Nothing opens or closes within an hour, so its minutes change no answer."""
    half, part = hour % 12 or 12, "am" if hour < 12 else "pm"
    of_day = f"in the {'morning' if hour < 12 else 'afternoon' if hour < 18 else 'evening'}"
    words = [f"{hour}:00", f"{hour}:00", f"{half} {part}", f"{half} {part}", f"{half}{part}", f"{half} {of_day}"]
    words += [f"{hour}.00", f"{NUMBER_WORDS[half]} {of_day}", f"{half} o'clock {of_day}", f"{hour}:00 hrs"]
    words += [f"{half} {part} sharp", f"{NUMBER_WORDS[half]} {part}", f"{half} {of_day}"]
    if hour not in (6, 7, 8):  # which of the two?
        words.append(f"{hour} o'clock")
    if hour < 12:
        words += [f"{half} o'clock {of_day}", f"{NUMBER_WORDS[half]} am"]
    if hour >= 18:
        words += [f"{half} at night", f"{half} o'clock at night", f"{half} pm at night"]
    if hour == 12:
        words += ["noon", "midday", "lunchtime"]
    if 13 <= hour <= 17:
        words += [f"{half} o'clock", f"{half}", NUMBER_WORDS[half], f"{NUMBER_WORDS[half]} o'clock"]
    if 10 <= hour <= 11:
        words += [f"{NUMBER_WORDS[half]} o'clock", NUMBER_WORDS[half]]
    if rng.random() < 0.25:
        minutes = rng.choice(("30", "30", "15", "45", "10", "20", "50"))
        words = [f"{hour}:{minutes}", f"{hour}:{minutes}", f"{half}:{minutes} {part}", f"{half}:{minutes}{part}"]
        if minutes == "30":
            words += [f"half past {half} {of_day}", f"half past {NUMBER_WORDS[half]} {of_day}", f"{half}.30 {part}"]
        if minutes == "45":
            later = (hour + 1) % 12 or 12
            words += [f"quarter to {later} {of_day}", f"a quarter to {NUMBER_WORDS[later]} {of_day}"]
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
    return ("an " if word[0] in "aeiou8" or word.startswith(("11 ", "18 ")) else "a ") + word


def number_word(count, rng):
    """The number in letters."""
    if count == 12 and rng.random() < 0.2:
        return "a dozen"
    if count == 6 and rng.random() < 0.05:
        return "half a dozen"
    if count == 24 and rng.random() < 0.1:
        return "two dozen"
    if count == 2 and rng.random() < 0.05:
        return rng.choice(("a couple of", "a pair of"))
    if count < 20:
        return NUMBER_WORDS[count]
    ten, one = TENS[count // 10 - 2], count % 10
    return ten + (rng.choice(("-", "-", " ")) + NUMBER_WORDS[one] if one else "")


def plain_number(count, rng):
    """The number in letters, as it stands by itself or after an article."""
    return number_word(count, rng).replace("a couple of", "two").replace("a pair of", "two")


def count_word(count, rng):
    return str(count) if rng.random() < 0.6 else number_word(count, rng)


def line_word(what, count, digits, rng, kin=0.12):
    if what in GOODS:
        one, many = what, GOODS[what][0]
        if what in SERVED and rng.random() < 0.15:
            one, many = rng.choice(SERVED[what])
    else:
        one, many = rng.choice(VISITORS[what] if rng.random() < 0.8 else ESCORTS[what])
        if (what, count) in KIN and rng.random() < kin:
            return rng.choice(KIN[what, count])
        if rng.random() < 0.06:
            one, many = f"{what} ticket", f"{what} tickets"
        elif rng.random() < 0.03:
            many = one  # as in haste
    if count == 1:
        return with_article(one) if rng.random() < 0.4 else f"{'1' if digits else 'one'} {one}"
    return f"{count if digits else number_word(count, rng)} {many}"


def listed_short(party, rng):
    """The party as people write a list: without any word or mark between, or with the number behind or multiplied."""
    digits, style = rng.random() < 0.75, rng.random()
    if style < 0.35:
        between = rng.choice((" ", " ", " ", "/", " / ", " + ", "; ", " & "))
        return between.join(line_word(what, count, digits, rng, 0) for what, count in party)
    mark = rng.choice((", ", " ", " / ", "; ", " + ", "/", " & ", " and ", " - ", ". ", "\n"))
    pairs = []
    for what, count in party:
        one, many = (what, GOODS[what][0]) if what in GOODS else rng.choice(VISITORS[what])
        pairs.append((one if rng.random() < 0.1 or count == 1 and rng.random() < 0.5 else many, str(count), many, one))
    if style < 0.8:  # the name before the number
        form = rng.choice(("{0}: {1}", "{0}: {1}", "{0} {1}", "{0} {1}", "{0} x{1}", "{0} x {1}", "{0} ({1})",
                           "{0} = {1}", "{0} - {1}", "{1}x {0}", "{0}:{1}"))  # fmt: skip
        if form == "{0} {1}" and mark in (" ", " - "):
            mark = ", "  # or nobody can tell which number is whose
        return mark.join(form.format(name, number) for name, number, _, _ in pairs)
    form = rng.choice(("{1}x {2}", "{1} x {2}", "{1}x{2}", "{1}* {2}", "{1} times {3}", "({1}) {2}"))
    return mark.join(form.format(*pair[:2], pair[3] if pair[1] == "1" else pair[2], pair[3]) for pair in pairs)


def kin_words(party, rng):
    """The party named by kinship alone, or None where there is no such word."""
    if any(line not in KIN for line in party):
        return None
    words = [rng.choice(KIN[line]) for line in party]
    if len(words) > 1 and words[-1] in ("me", "myself") and rng.random() < 0.6:
        words[-1] = "i"
    return (", ".join(words[:-1]) + " and " if len(words) > 1 else "") + words[-1]


def party_words(party, rng):
    style = rng.random()
    if style < (0.2 if len(party) > 1 else 0.08):
        return listed_short(party, rng)
    if style > 0.94 and (words := kin_words(party, rng)):
        return words
    if len(party) == 1 and party[0][1] > 2 and party[0][0] in VISITORS and style > 0.88:
        return all_of_a_kind(*party[0], rng)
    if len(party) == 1 and party[0][0] in GOODS and party[0][1] > 1 and style > 0.92:
        return one_each(*party[0], rng)
    digits = rng.random() < 0.6
    mixed = rng.random() < 0.12
    words = [line_word(what, count, digits != (mixed and rng.random() < 0.5), rng) for what, count in party]
    if len(words) == 1:
        return words[0]
    last = rng.choices((" and ", ", ", " + ", " with ", " ", " plus ", " & ", ", and ", " as well as ", " along with ",
                        " together with ", " accompanied by "), (64, 8, 6, 6, 3, 5, 2, 2, 1, 1, 1, 1))[0]  # fmt: skip
    text = rng.choice((", ", ", ", " and ", " plus ", " ", " + ", ", then ")).join(words[:-1]) + last + words[-1]
    total = sum(count for _, count in party)
    if party[0][0] in VISITORS and 0.2 < style < 0.27 and total < 100:  # how many they are, before who they are
        number = str(total) if rng.random() < 0.6 else plain_number(total, rng)
        heads = rng.choice(
            ("people", "people", "of us", "of us", "persons", "visitors", "heads", "in our group", "guests")
        )
        text = number + " " + heads + rng.choice((": ", ", ", " - ", ", namely ", ", that is ", " (")) + text
        text += ")" if " (" in text and rng.random() < 0.8 else ""
    return text


def with_none(party, rng):
    """The party with a kind or two of which nobody comes, or which nobody wants: '2 adults, 0 children'."""
    kinds = [what for what in (CATEGORIES if party[0][0] in VISITORS else GOODS) if what not in dict(party)]
    absent = rng.sample(kinds, min(len(kinds), rng.choice((1, 1, 1, 2))))
    if not absent:
        return party_words(party, rng)
    if rng.random() < 0.3:  # after the others
        names = [GOODS[what][0] if what in GOODS else rng.choice(VISITORS[what])[1] for what in absent]
        form = rng.choice((" without {}", ", without {}", ", no {}", " and no {}", " but no {}", ", without any {}",
                           " (no {})", ", but without {}", " - no {}", ", zero {}", " and zero {}", ", not any {}"))  # fmt: skip
        return party_words(party, rng) + form.format(" or ".join(names))
    lines = list(party)
    for what in absent:
        lines.insert(rng.randint(0, len(lines)), (what, 0))
    words = party_words(tuple(lines), rng)
    if rng.random() < 0.15:
        words = re.sub(r"(?<=[:=] )0\b", rng.choice(("none", "none", "nil", "zero")), words)
    no = rng.random() < 0.35
    return re.sub(r"\b(?:0|zero) (?=[a-z])", lambda m: "no " if no else m[0], words)


def what_they_are(party, rng):
    """The party as a sentence that says what how many of them are."""
    digits, clauses = rng.random() < 0.5, []
    us = rng.choice((" of us", " of us", " of them", ""))
    for at, (what, count) in enumerate(party):
        one, many = rng.choice(VISITORS[what])
        number = str(count) if digits else plain_number(count, rng)
        of_us = us if at == 0 or rng.random() < 0.2 else ""
        if count == 0:
            clauses.append(
                rng.choice((f"none of us is {with_article(one)}", f"no one is {with_article(one)}", f"none are {many}",
                            f"nobody is {with_article(one)}", f"there are no {many}"))
            )  # fmt: skip
            continue
        clauses.append(f"{number}{of_us} {'is ' + with_article(one) if count == 1 else 'are ' + many}")
    joint = rng.choice((" and ", ", ", " and ", ", and ", "; ", ", while "))
    return ", ".join(clauses[:-1]) + (joint if len(clauses) > 1 else "") + clauses[-1]


def one_each(what, count, rng):
    """A thing for each of so many people."""
    number = count_word(count, rng).replace("a couple of", "two").replace("a pair of", "two")
    form = rng.choice(("{0} each for {1} of us", "{0} each for {1} people", "{0} for each of the {1} of us",
                       "{2} for {1}", "{2} for {1} people", "{0} for each of my {1} guests", "{2} for the {1} of us"))  # fmt: skip
    return form.format(with_article(what), number, what)


def all_of_a_kind(what, count, rng):
    """So many people, and then what all of them are."""
    number, many = count_word(count, rng), rng.choice(VISITORS[what])[1]
    heads = rng.choice(("people", "of us", "members", "visitors", "guests", "persons", "heads", "travellers"))
    joint = rng.choice(
        (", all ", ", all of them ", ", all of us ", ", every one of them ", ": all ", " - all ", ", only ")
    )
    if "every one" in joint:
        many = rng.choice([with_article(one) for one, _ in VISITORS[what]])
    return f"{number} {heads}{joint}{many}".replace(" of us, all of them", " of us, all of us")


def changed_words(what, count, rng):
    """So many further visitors or goods of a kind."""
    one, many = (what, GOODS[what][0]) if what in GOODS else rng.choice(VISITORS[what])
    if count == 1:
        return rng.choice(
            (f"another {one}", f"one more {one}", f"1 more {one}", f"one extra {one}", f"one additional {one}")
        )
    number = count_word(count, rng)
    number = number if not number.endswith(" of") else str(count)
    return rng.choice(
        (f"{number} more {many}", f"{number} more {many}", f"another {number} {many}", f"{number} extra {many}",
         f"{number} additional {many}", f"{number} further {many}")
    )  # fmt: skip


def fewer_words(what, count, rng):
    """So many visitors or goods of a kind less."""
    one, many = (what, GOODS[what][0]) if what in GOODS else rng.choice(VISITORS[what])
    name, number = (one, "one") if count == 1 else (many, str(count))
    return rng.choice(
        (f"{number} {name} less", f"{number} {name} fewer", f"{number} fewer {name}", f"{number} less {name}")
    )


def paired(first, second, rng, article=""):
    """Two or more words of a kind as one: 'museum and the aquarium', 'monday or tuesday'."""
    joints = (" and ", " or ", " & ", " and also ", " as well as ", " plus ", " and then ", ", and ", " and later ")
    joint = rng.choices(joints, (61, 18, 4, 3, 4, 3, 3, 2, 2))[0]
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
    slots["dog"] = rng.choice(DOGS)
    if ask.what in GOODS:
        one, many = ask.what, GOODS[ask.what][0]
        if ask.what in SERVED and rng.random() < 0.2:
            one, many = rng.choice(SERVED[ask.what])
        slots["i"], slots["is_"], slots["i_"] = with_article(one), many, one
    elif ask.what:
        one, many = rng.choice(VISITORS[ask.what])
        if ask.what in ("child", "senior") and rng.random() < 0.08:
            age = rng.randint(4, 14) if ask.what == "child" else rng.randint(65, 90)
            age = plain_number(age, rng) if age < 15 and rng.random() < 0.4 else str(age)
            one, many = f"{age} year old", f"{age} year olds"
        slots["a"], slots["c"], slots["c1"] = with_article(one), many, one
    if ask.intent == "add":
        slots["x"], slots["y"] = (str(number) for _, number in ask.party)
    elif ask.party:
        words = with_none if rng.random() < 0.07 else party_words
        slots["party"] = slots["items"] = words(ask.party, rng)
        if ask.party[0][0] in VISITORS:
            absent = [what for what in CATEGORIES if what not in dict(ask.party)]
            none = ((rng.choice(absent), 0),) if absent and rng.random() < 0.1 else ()
            slots["are"] = what_they_are(ask.party + none, rng)
    return slots


# -- other words for the same --------------------------------------------------------------------------------------------

US = {"i": "me", "we": "us"}
SYNONYMS = tuple(
    (re.compile(pattern), others.split("|"))
    for pattern, others in (
        (r"^(i|we) (?:want|would like) to\b", r"\1'd love to|\1'd like to|\1 wish to"),
        (r"^(i|we) (?:want|would like) to (visit|see|go)\b", r"\1 plan to \2|\1 hope to \2|\1 intend to \2|\1 mean to \2"),
        (r"\b(?:can|could|would) you tell me\b", "could you let me know|do you happen to know|do you know|i'd like to know"),
        (r"\bvisit the\b", "check out the|have a look at the|look at the|explore the|drop by the|stop by the|pop into the"),
        (r"\bsee the\b", "visit the|look at the|check out the|take a look at the|have a look around the"),
        (r"\bgo to the\b", "head to the|come to the|head over to the|walk over to the|pop over to the"),
        (r"\bhow do (i|we) get to\b", r"how do \1 reach|how can \1 get to|how might \1 get to|how do \1 make it to"),
        (r"\bwhere is the\b", "whereabouts is the|where do i find the|where might i find the|where can one find the"),
        (r"\bhow much is the\b", "what's the price of the|how much do you want for the|how much do they charge for the"),
        (r"\bwhat does the (\{p\}) cost\b", r"what would the \1 cost|how much does the \1 cost|what is the \1 going to cost"),
        (r"\bwhen does the\b", "at what hour does the|when exactly does the|by what time does the"),
        (r"\bwhen is the\b", "when exactly is the|at what times is the|at which hours is the"),
        (r"\bis the \{p\} open\b", "will the {p} be open|would the {p} be open|is the {p} going to be open"),
        (r"\bhow far is\b", "how far away is|how long a walk is|about how far is|how far off is"),
        (r"\bopening hours\b", "opening times|business hours|visiting hours|hours of opening"),
        (r"\bdo (i|we) have to pay\b", r"must \1 pay|do \1 need to pay|have \1 got to pay|will \1 have to pay"),
        (r"^(?:can|could|may) we\b", "is it possible for us to|are we allowed to|would we be able to|is there a way for us to"),
        (r"^(?:can|could|may) i\b", "is it possible for me to|am i allowed to|would i be able to|is there a way for me to"),
        (r"\bwhat is\b", "what's|whats"),
        (r"\bwhich way is the\b", "in which direction is the|what direction is the"),
        (r"\bhow long does it take\b", "how much time does it take|how many minutes does it take|how long would it take"),
        (r"\bdo you know\b", "do you happen to know|any chance you know|would you know"),
    )
)  # fmt: skip


def plain(text):
    """A wording without marks and spacing."""
    return " ".join(re.sub(r"[^a-z0-9{}_' -]", " ", text).split())


HELD_WORDINGS = frozenset(
    plain(way)
    for group in GROUPS.values()
    for options in group.values()
    for option in options
    if option.held
    for way in wordings(option.tree)
)


def rephrased(text, rng):
    """The wording with some of its words exchanged, unless that makes it one that is held out."""
    rules = [rule for rule in SYNONYMS if rule[0].search(text)]
    if not rules:
        return text
    pattern, others = rng.choice(rules)
    other = pattern.sub(rng.choice(others), text, count=1)
    return text if plain(other) in HELD_WORDINGS else other


COMPANY = (
    "my wife and i", "my husband and i", "my girlfriend and i", "my boyfriend and i", "my friend and i", "my kids and i",
    "me and my wife", "me and my mates", "me and my daughter", "my son and i", "my family and i", "my mother and i", "the kids",
    "my partner and i", "the two of us", "our little group", "my class", "me and the kids", "my parents",
)  # fmt: skip


def with_company(text, rng):
    """The question of somebody who names who comes along. It changes no answer but that to a question of prices."""
    who = rng.choice(COMPANY)
    text, times = re.subn(r"\b(can|could|may|do|should|must) (?:i|we)\b", rf"\1 {who}", text, count=1)
    if not times:
        text = re.sub(r"^(?:i|we) (want|would like|plan|would love|hope) to\b", rf"{who} \1 to", text, count=1)
    return text


def corrected(right, wrong, rng, article=""):
    """The wrong word first, and then the right one."""
    turn = rng.choice(
        (", sorry, ", ", no, ", ", i mean ", ", er, ", ", no wait, ", ", sorry, i mean ", " or rather ", "... no, ")
    )
    return f"{wrong}{turn}{article}{right}"


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
    "sorry to bother you, ", "thank you. ", "hey there, ", "hi there! ", "hello! ", "good day. ", "dear alder park, ",
    "could you be so kind, ", "a quick one: ", "another thing: ", "and another thing, ", "by the way, ", "just wondering, ",
    "out of curiosity, ", "my kids want to know, ", "my husband asks: ", "we came all the way from london. ", "help me out: ",
    "i hope you can help. ", "it's such a lovely park. ", "what a nice day! ", "we love it here. ", "my feet are killing me. ",
    "the kids are getting impatient. ", "we are here on holiday. ", "i'm here with my family. ", "we've been walking all day. ",
    "we got a bit delayed. ", "i forgot to ask: ", "sorry, one more: ", "before i forget, ", "last question, ", "next question: ",
    "i'm asking for a friend: ", "we are visiting relatives. ", "this is my first time here. ", "i've got a question, ",
    "i'd rather ask first: ", "just to be sure: ", "to be on the safe side, ", "we want to avoid queues. ", "okay then, ",
    "perfect, thanks. ", "one last thing, ", "ok great, ", "first of all, ", "yo ",
)  # fmt: skip
CLOSERS = (
    " please", ", please", ", thanks", " thank you", ", do you know", ", can you tell me", " if i may ask", ", i wonder",
    " exactly", " then", " by the way", " for us", ", any idea", " pls", ", my friend", " please and thank you",
    ". thanks", ". thank you very much", ". cheers", ". sorry for my english", ", thanks in advance",
    ". we are in a hurry", ". it is our first time here", " if that's ok", " asap", " lol", " :)", "? thanks", "? thank you",
    ". my kids can't wait", ". we have little money", ". we are a bit lost", " or what", ", mate", ", right", " roughly",
    ", can you check", ", could you tell us", "? i can't find it anywhere", "? my wife wants to know", "? just asking",
    ", thank you so much", "! thanks", "? cheers", ", if you know", ", do you happen to know", "? it would help a lot",
    ". the kids are excited", ". we are looking forward to it", ". i'd like to plan our day", "? asking for a friend",
    "? many thanks", ", kindly", "? ta", "? we'd like to plan ahead",
)  # fmt: skip
FILLERS = ("just", "maybe", "actually", "also", "please", "really", "perhaps", "usually", "normally", "like", "then")
LOOSE = frozenset("the is are of a an do does can i we at on for please it there be you me my".split())
SYSTEM = (
    "You are a helpful assistant.", "You are the kiosk of Alder Park.", "Answer briefly.", "You are a friendly guide.",
    "Be polite and short.", "You are a pirate.", "You help visitors.", "Answer in one sentence.",
)  # fmt: skip
ASKING = tuple("what when where which who how is are can could may do does will would on at from until".split())


NEAR = {}  # the letters beside each letter on a keyboard
for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm"):
    for left, right in zip(row, row[1:]):
        NEAR[left], NEAR[right] = NEAR.get(left, "") + right, NEAR.get(right, "") + left


def slip(text, rng):
    """One mistyped word: a letter lost, doubled, swapped or missed; numbers and short words stay as they are."""
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    at = rng.choice(long)
    word = words[at]
    spot = rng.randrange(1, len(word) - 1)
    if rng.random() < 0.1 and at + 1 < len(words):  # a space lost
        return " ".join((*words[:at], word + words[at + 1], *words[at + 2 :]))
    near = NEAR.get(word[spot], word[spot])
    words[at] = rng.choice(
        (
            word[:spot] + rng.choice(near) + word[spot + 1 :],
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
        if chance < 0.19:
            text = rng.choice(OPENERS) + text
        if 0.16 < chance < 0.27:
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
