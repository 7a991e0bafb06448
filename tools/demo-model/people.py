"""People as visitors name them: by role or by age, with the speaker or without, and kinds of whom nobody comes.

A family is drawn as members, each with the kind that decides its price. So the words and the counts have one source.
"""

import re
from typing import NamedTuple

from slots import SLOTS
from wording import NUMBER_WORDS, count_word, plain_number
from world import CHILD_TO, FREE_TO, PLURAL, SENIOR_FROM

BABY = "baby"  # up to FREE_TO years: named, but in no sum
CHILD_FROM = FREE_TO + 1

# (kind, how many of them): their names. {my} is my or our, {n} a number, and then the count is drawn.
ROLES = {
    ("adult", 1): (
        "{my} wife|{my} husband|{my} partner|{my} girlfriend|{my} boyfriend|{my} sister|{my} brother|{my} cousin|"
        "{my} neighbour|{my} colleague|{my} boss|{my} aunt|{my} uncle|{my} mum|{my} dad|{my} mother|{my} father|"
        "{my} mother-in-law|{my} father-in-law|{my} sister-in-law|{my} brother-in-law|{my} best friend|{my} mate|"
        "{my} fiancee|{my} better half|{my} mom|{my} auntie|{my} roommate|{my} au pair|the wife|the husband|"
        "the missus|a friend|a mate|"
        "a colleague|another adult|a neighbour|a friend of mine|one parent|one teacher|our guide|an aunt|"
        "an old school friend|one grown-up|their mother|their father|{my} ex|{my} nanny|a babysitter|hubby"
    ),
    ("adult", 2): (
        "{my} parents|mum and dad|{my} mum and dad|{my} mother and father|both {my} parents|{my} wife and her sister|"
        "both {my} sisters|another couple|{my} two brothers|{my} in-laws|{my} parents-in-law|two friends|"
        "a married couple|a young couple|"
        "a couple we met|both neighbours|two colleagues|{my} mum and {my} aunt|{my} sister and her husband|"
        "{my} brother and his wife|{my} uncle and aunt|two mates|{my} two sisters|{my} friend and her husband|"
        "two other grown-ups|a couple of friends|both parents|2 friends of mine"
    ),
    ("adult", 0): (
        "{n} friends|{n} colleagues|{n} neighbours|{my} {n} brothers|{n} mates|{my} {n} sisters|{n} teachers|{n} parents|"
        "{n} other adults|{n} grown-ups|{n} more grown-ups|{n} adults|{n} helpers|{n} ladies|{n} men|{n} mums|{n} dads|"
        "{n} cousins of mine|{n} women|{n} aunts|{n} adult friends|{my} {n} flatmates"
    ),
    ("child", 1): (
        "{my} daughter|{my} son|{my} little one|one kid|{my} nephew|{my} niece|{my} grandson|{my} granddaughter|{my} godson|"
        "{my} boy|{my} girl|her son|a child|the little one|his daughter|{my} youngest|one child|a kid|{my} stepson|"
        "{my} little boy|{my} little girl|{my} grandchild|{my} kid|{my} child|her little boy|a small boy|a schoolkid|"
        "{my} little brother|{my} little sister|their grandchild|their kid"
    ),
    ("child", 2): (
        "{my} twins|the twins|{my} son and daughter|{my} boy and {my} girl|both kids|{my} two kids|both {my} children|"
        "{my} niece and {my} nephew|her twins|{my} two little ones|{my} two sons|{my} two girls|{my} two daughters|"
        "two youngsters|a boy and a girl|a son and a daughter|two little boys|{my} 2 boys|both boys|both girls|"
        "{my} two grandchildren|her two kids|the two little ones|two small children"
    ),
    ("child", 0): (
        "{my} {n} children|{my} {n} kids|the {n} kids|{n} little ones|{my} {n} daughters|{my} {n} sons|{n} nephews|{n} boys|"
        "{my} {n} grandchildren|her {n} kids|{n} youngsters|{n} pupils|{n} girls|{n} children|their {n} kids|{n} kids|"
        "{n} school friends of his|{n} nieces|{n} small kids|{my} {n} little rascals|{my} {n} girls|{my} {n} boys|"
        "{n} schoolchildren|{n} little girls|{my} {n} godchildren"
    ),
    ("senior", 1): (
        "{my} grandma|grandpa|{my} gran|{my} grandmother|{my} mum (a pensioner)|{my} retired father|"
        "{my} dad who is a pensioner|"
        "{my} mother who is retired|{my} retired neighbour|granny|an elderly lady|one senior|{my} grandfather|"
        "a retired uncle|"
        "{my} senior aunt|grandad|{my} great-grandmother|{my} old grandpa|her grandmother|grandma|{my} nan|"
        "one grandparent|"
        "{my} granddad|{my} retired mum|{my} mother (retired)|{my} father (a senior)|a pensioner"
    ),
    ("senior", 2): (
        "{my} grandparents|grandma and grandpa|both grandmas|two pensioners|gran and grandad|the grandparents|"
        "{my} retired parents|two old ladies|{my} parents (both pensioners)|her grandparents|granny and grandpa|"
        "a senior couple|an elderly couple|a retired couple|both {my} grandparents|{my} nan and grandad|"
        "{my} parents (both retired)|two seniors|a pensioner couple"
    ),
    ("senior", 0): (
        "{n} pensioners|{n} retired friends|{n} oaps|{n} seniors|{n} retirees|{n} elderly neighbours|{n} grandparents|"
        "{n} grandmas|{n} elderly ladies|{n} senior citizens|{n} old gentlemen"
    ),
    ("student", 1): (
        "{my} student daughter|{my} brother who studies|a student friend|{my} niece who is a student|{my} cousin (a student)|"
        "{my} son who is at university|{my} flatmate (a student)|one student|{my} daughter (a student)|a college student|"
        "an undergrad|a student|{my} sister (a student)|{my} nephew (a university student)|an exchange student"
    ),
    ("student", 0): (
        "{n} students|{n} student friends|{n} exchange students|{n} uni students|{n} undergrads|{n} college students|"
        "{n} college friends (all students)|{n} university students|{my} {n} students"
    ),
    (BABY, 1): (
        "a baby|{my} baby|a toddler|{my} toddler|an infant|a newborn|{my} newborn|the baby|her baby|a small baby|{my} baby girl|"
        "one baby|one toddler|{my} baby boy|{my} infant son"
    ),
}  # fmt: skip
ROLES = {line: names.split("|") for line, names in ROLES.items()}
# How often each is drawn. Children come with grown-ups most of the time.
OFTEN = {
    ("adult", 1): 20, ("adult", 2): 8, ("adult", 0): 8, ("child", 1): 11, ("child", 2): 8, ("child", 0): 14,
    ("senior", 1): 7, ("senior", 2): 6, ("senior", 0): 4, ("student", 1): 3, ("student", 0): 3, (BABY, 1): 4,
    "aged": 9, "ages": 5,
}  # fmt: skip
BARE = {  # roles as they are jotted down
    ("adult", 1): "wife|husband|mum|dad|mother|father|partner|friend|sister|brother|aunt|uncle|gf|bf|hubby",
    ("child", 1): "son|daughter|kid|child|1 kid|one child|1 child|nephew|niece|grandson|boy|girl",
    ("child", 2): "2 kids|two kids|twins|2 children|two boys|2 girls|two daughters|2 sons",
    ("child", 3): "3 kids|three kids|3 children|three boys",
    ("child", 4): "4 kids|four children|4 children",
    ("senior", 1): "grandma|grandpa|gran|granny|grandad|nan|1 senior|one pensioner",
    ("senior", 2): "grandparents|2 seniors|two pensioners|gran and grandad",
    ("student", 1): "1 student|one student",
    (BABY, 1): "baby|toddler|1 baby|newborn",
}
BARE = {line: names.split("|") for line, names in BARE.items()}
SELF = {  # how the speaker is named in a list; what follows decides the price
    "adult": ("me", "me", "me", "i", "i", "myself"),
    "student": ("me (a student)", "me (student)", "i (student)", "myself (a student)", "me as a student"),
    "senior": ("me (a pensioner)", "me (senior)", "i (retired)", "myself (a pensioner)", "me as a senior"),
}
NAMES_ONLY = SLOTS["name"].split("|")
# The speaker and whoever comes along: first the speaker, or first the others.
ALONG_FIRST = (
    "i'm here with {}|i am here with {}|i'm coming with {}|i come with {}|i've brought {}|i'm with {}|i am with {}|"
    "i'm visiting with {}|i have come with {}|i came with {}|i brought {} along|i'm travelling with {}|"
    "i'm bringing {} along|it's me with {}|it's just me and {}|just me and {}|it's me and {}|me with {}|me plus {}|"
    "i have {} with me|i've got {} with me|myself and {}|me together with {}|there's me and there's {}|i bring {} along|"
    "i'm out with {} today|i am accompanied by {}|me, and then there's {}|myself with {}|i'm on my own with {}|"
    "there is me and {}|i'd be coming with {}|i want to come with {}|i take {} along"
).split("|")
ALONG_LAST = (
    "{} with me|{} and me|{} here with me today|{} plus me|{} and i|{} and myself|{} besides me|{} tagging along with me|"
    "{}, and me|{} + me|{} and of course me|{} and then me|{} here with me|{} in tow and me|{} and also me|"
    "with {} and me|{} as well as me|{} and yours truly"
).split("|")
ALONE = (
    "just me|only me|me alone|me on my own|it's just me|i'm alone|i come alone|i am on my own|it's only me|just myself|"
    "i'm here by myself|me, nobody else|just me, no kids|only me and nobody else|i'm on my own today"
).split("|")
NOBODY = {  # a kind of whom nobody comes, after the list
    "adult": ("no other adults", "without any other grown-ups"),
    "child": ("no kids", "no children", "without kids", "without children", "without any children", "no kids with us",
              "but no children", "zero kids", "the kids stay at home", "0 children", "not a single child"),
    "senior": ("no seniors", "without seniors", "but no pensioners", "0 seniors", "zero seniors", "no senior citizens"),
    "student": ("no students", "without students", "0 students", "none of us students", "zero students"),
}  # fmt: skip
MINE = re.compile(
    r"\bour(?= (?:wife|husband|partner|girlfriend|boyfriend|fiancee|ex|boss|better half|roommate|best friend|mate)\b)"
)
NUMBERED = re.compile(r"(?<!other )(?<!more )\b(?:adults|grown-ups)$")  # the speaker may be one of these
JOINTS = (", ", ", ", ", ", ", ", " and ", " plus ", " + ", ", then ", ", also ")
LAST_JOINTS = (" and ", " and ", " and ", " and ", ", and ", " plus ", ", ", " with ", " and also ", " + ", " & ",
               " as well as ")  # fmt: skip


# Words around a list of people that count the speaker once more, and words that count a speaker whom the list leaves out.
TWICE = re.compile(
    r"\b(?:(?:i|we) (?:have|got|bring|take|come with)|(?:i|we)'ve|i am|i ?'m|with me|with us|group|class|school|crew|team|"
    r"club|band|office|choir|taking|bringing|family|book)\b"
)
BESIDES = re.compile(r"\bwith \{|\b(?:we'd|we're|i'd|us|our|my)\b|\b(?:we|i) (?!pay|owe|need|must pay|have to pay)")


class Family(NamedTuple):
    """Whom a visitor names. `clause` is a sentence that counts the speaker; otherwise `words` is a list of people."""

    party: tuple
    words: str
    baby: bool
    clause: bool
    has_self: bool

    def counted_in(self, text):
        """Whether a wording around the list, its slots still open, counts the speaker as the list does."""
        return not TWICE.search(text) and (self.has_self or not BESIDES.search(text))


def aged(rng):
    """(words, kind, 1): somebody named by an age, which decides the price."""
    kind = rng.choices(("child", BABY, "senior", "adult"), (60, 20, 13, 7))[0]
    if kind == BABY and rng.random() < 0.3:
        months = rng.choice((3, 4, 5, 6, 8, 9, 10, 11, 18))
        return f"{{my}} {months} month old{rng.choice((' baby', '', ' son', ' daughter'))}", kind, 1
    age = {
        BABY: rng.randint(1, FREE_TO),
        "child": rng.randint(CHILD_FROM, CHILD_TO),
        "senior": rng.randint(SENIOR_FROM, 92),
        "adult": rng.choice((15, 16, 17, 18, 19, rng.randint(20, 60))),
    }[kind]
    number = plain_number(age, rng) if age < 20 and rng.random() < 0.4 else str(age)
    dash = rng.choice((f"{number} year old", f"{number} year old", f"{number}-year-old"))
    if kind == "senior":
        who = rng.choice(("mum", "dad", "mother", "father", "aunt", "uncle", "neighbour", "friend"))
    elif kind == "adult":
        who = rng.choice(("son", "daughter", "nephew", "niece", "cousin", "brother", "sister"))
    else:
        who = rng.choice(("son", "daughter", "boy", "girl", "nephew", "niece", "grandson", "granddaughter"))
    article = "an" if number in ("8", "11", "18", "eight", "eleven", "eighteen") or number[0] == "8" else "a"
    forms = [f"{{my}} {dash}", f"{{my}} {dash} {who}", f"{{my}} {who} ({number})", f"{{my}} {who} aged {number}",
             f"{article} {dash}", f"{{my}} {who} who is {number}", f"{{my}} {who} of {number}"]  # fmt: skip
    return rng.choice(forms), kind, 1


def ages(rng):
    """[(words, kind, count), ...]: two or three children by their ages in one breath, the smallest perhaps free."""
    count, old = rng.choice((2, 2, 2, 3, 3)), rng.random() < 0.2
    first = 1 if rng.random() < 0.3 else 12 if old and rng.random() < 0.5 else CHILD_FROM
    years = sorted(rng.sample(range(first, (17 if old else CHILD_TO) + 1), count))
    if rng.random() < 0.3:
        years.reverse()
    word = rng.random() < 0.25
    names = [NUMBER_WORDS[year] if word else str(year) for year in years]
    listed = ", ".join(names[:-1]) + rng.choice((" and ", " and ", " & ")) + names[-1]
    many = "two" if count == 2 else "three"
    text = rng.choice(
        (f"{{my}} kids ({listed})", f"{{my}} {many} kids aged {listed}", f"kids aged {listed}", f"children of {listed}",
         f"{{my}} children, aged {listed}", f"{many} kids ({listed})", f"{{my}} kids, {listed} years old",
         f"{{my}} {many} children who are {listed}", f"{{my}} boys ({listed})", f"{{my}} girls aged {listed}")
    )  # fmt: skip
    small, tall = sum(year < CHILD_FROM for year in years), sum(year > CHILD_TO for year in years)
    if tall == count and rng.random() < 0.5:
        text = rng.choice(
            (f"{many} teenagers ({listed})", f"{{my}} teenagers aged {listed}", f"{many} teens of {listed}")
        )
    return [(text, "child", count - small - tall), ("", BABY, small), ("", "adult", tall)]


def members(rng):
    """[(words, kind, count), ...] of whoever comes with the speaker; an entry without words belongs to the one before."""
    lines = rng.choices(tuple(OFTEN), tuple(OFTEN.values()), k=rng.choices((1, 2, 3, 4), (30, 42, 22, 6))[0])
    out = []
    for line in dict.fromkeys(lines):
        if line == "aged":
            out.append(aged(rng))
        elif line == "ages":
            out += ages(rng)
        else:
            kind, count = line
            number = count or rng.choice((2, 2, 3, 3, 3, 4, 4, 5, 6, 7, rng.randint(8, 15)))
            word = count_word(number, rng).replace("a couple of", "two").replace("a pair of", "two")
            names = [name for name in ROLES[line] if number < 7 or not name.startswith(("{my}", "her", "their"))]
            out.append((rng.choice(names).replace("{n}", word), kind, number))
    return out


def kind_of(age):
    """The kind of visitor that an age makes."""
    if age < CHILD_FROM:
        return BABY
    return "child" if age <= CHILD_TO else "adult" if age < SENIOR_FROM else "senior"


def told_ages(rng):
    """Everybody with an age, in sentences: 'mum is 70, i'm 40 and the boy is 9'."""
    roles = {"mum": (30, 85), "dad": (30, 85), "my wife": (25, 80), "my husband": (25, 80), "the boy": (1, 16),
             "my son": (1, 30), "my daughter": (1, 30), "the girl": (1, 16), "grandma": (65, 92), "grandpa": (65, 92),
             "my sister": (16, 60), "my brother": (16, 60), "the little one": (1, 8), "my friend": (18, 75)}  # fmt: skip
    names = rng.sample(tuple(roles), rng.choice((1, 2, 2, 3)))
    entries = [(name, rng.randint(*roles[name])) for name in names]
    entries.insert(rng.choice((0, len(entries))), ("i", rng.randint(18, 80)))
    link = rng.random() < 0.6
    am, verb = ("'m", "'s") if link else (" am", " is")
    texts = [f"{name}{am if name == 'i' else verb} {age}" for name, age in entries]
    party, baby = summed([(name, kind_of(age), 1) for name, age in entries])
    return Family(party, ", ".join(texts[:-1]) + rng.choice((" and ", ", ", " and ")) + texts[-1], baby, True, True)


def jotted(rng):
    """[(words, kind, count), ...] as somebody in a hurry types them."""
    lines = rng.sample(tuple(BARE), rng.choices((1, 2, 3), (35, 45, 20))[0])
    return [(rng.choice(BARE[line]), *line) for line in lines]


def summed(entries):
    """The party in the order in which its kinds are named, and whether a baby is with it."""
    party = {}
    for _, kind, count in entries:
        if count:
            party[kind] = party.get(kind, 0) + count
    baby = party.pop(BABY, 0) > 0
    return tuple(party.items()), baby


def joined_words(texts, rng):
    if len(texts) == 1:
        return texts[0]
    return rng.choice(JOINTS).join(texts[:-1]) + rng.choice(LAST_JOINTS) + texts[-1]


def family(rng):
    """People named one by one, most of them without a number."""
    if rng.random() < 0.02:
        return Family((("adult", 1),), rng.choice(ALONE), False, True, True)
    if rng.random() < 0.04:
        return told_ages(rng)
    bare = rng.random() < 0.14
    return of_members(jotted(rng) if bare else members(rng), rng, bare)


def of_members(entries, rng, bare=False):
    """The family of these people, perhaps with the speaker, as a list or as a sentence."""
    role = rng.random()
    has_self = role < 0.72
    numbered = any(NUMBERED.search(text) for text, _, _ in entries)
    clause = has_self and not bare and not numbered and role > 0.36
    if clause:
        first = rng.random() < 0.6
        form = rng.choice(ALONG_FIRST if first else ALONG_LAST)
        entries.insert(0 if first else len(entries), ("", "adult", 1))
    elif has_self:
        kind = "adult" if bare or rng.random() < 0.88 else rng.choice(("student", "senior"))
        name = rng.choice(("me", "me", "myself", "i") if bare else SELF[kind])
        at = rng.choice((0, len(entries), len(entries), rng.randint(0, len(entries))))
        while at < len(entries) and not entries[at][0]:
            at += 1
        entries.insert(at, (name, kind, 1))
    texts = [text for text, _, _ in entries if text]
    if bare and rng.random() < 0.4:
        words = rng.choice((" ", " + ", "/", ", ")).join(texts)
    else:
        words = joined_words(texts, rng)
    party, baby = summed(entries)
    heads = sum(count for _, _, count in entries)
    known = dict(party)
    absent = [kind for kind in NOBODY if kind not in known and not (kind == "child" and baby)]
    if absent and rng.random() < 0.09:
        words += rng.choice((", ", ", ", " and ", " - ")) + rng.choice(NOBODY[rng.choice(absent)])
        words = (
            words.replace(" and without", " without").replace(" and but", " but").replace(" and the kids", ", the kids")
        )
    if clause:
        words = form.format(words)
    elif has_self and heads > 1 and not baby and rng.random() < 0.1:
        number = str(heads) if rng.random() < 0.5 else plain_number(heads, rng)
        words = (
            rng.choice(("{} of us: ", "{} people: ", "we're {}: ", "the {} of us, ", "family of {}: ")).format(number)
            + words
        )
    words = words.replace("{my}", rng.choice(("my", "my", "our")))
    return Family(party, MINE.sub("my", words), baby, clause, has_self)


def newcomer(rng):
    """(words, kind, how many) of whoever comes along after all."""
    chance = rng.random()
    if chance < 0.08:
        words, kind, count = rng.choice(("me", "myself", "me", "i")), "adult", 1
    elif chance < 0.25:
        words, kind, count = aged(rng)
    else:
        kind, count = rng.choice([line for line in ROLES if line[1]])
        words = rng.choice(ROLES[kind, count])
    return MINE.sub("my", words.replace("{my}", rng.choice(("my", "my", "our")))), kind, count


def nobody_at_all(rng):
    """A list of kinds none of which comes."""
    kinds = rng.sample(tuple(PLURAL), rng.choice((1, 2, 2)))
    return joined_words([f"{rng.choice(('0', 'zero', 'no'))} {PLURAL[kind]}" for kind in kinds], rng)
