"""People whose ages are told, often an age at the border between two prices.

As in people.py, the words and the counts are drawn together, so they agree.
"""

import re

from people import BABY, kind_of, members, of_members
from wording import plain_number
from world import CHILD_TO, FREE_TO, SENIOR_FROM

BORDERS = (FREE_TO - 1, FREE_TO, FREE_TO + 1, CHILD_TO - 1, CHILD_TO, CHILD_TO + 1, SENIOR_FROM - 1, SENIOR_FROM,
           SENIOR_FROM + 1)  # fmt: skip
AGES = {  # whom an age is told of, and which ages they may have
    (35, 92): "dad|mum|father|mother|mom|aunt|uncle|neighbour|boss|mother-in-law|father-in-law|friend|old teacher",
    (20, 88): "husband|wife|partner|fiance|better half|colleague|ex|flatmate",
    (59, 96): "grandma|grandpa|gran|grandad|grandmother|grandfather|granny|nan",
    (2, 70): "brother|sister|cousin|half-sister",
    (1, 40): "son|daughter|nephew|niece|stepson|stepdaughter|godson|goddaughter|youngest|eldest",
    (
        1,
        15,
    ): "boy|girl|little one|little boy|little girl|grandson|granddaughter|kid|grandchild|little brother|little sister",
}
PAIRS = {  # two of them
    (45, 90): "parents|in-laws|parents-in-law|two aunts|two uncles|mum and dad",
    (60, 95): "grandparents|grandma and grandpa|two grandmas",
    (1, 30): "two sons|two daughters|two nephews|two nieces|two children|two kids|son and daughter",
    (1, 16): "two boys|two girls|two grandchildren|two little ones|two grandsons",
}
TWINS = "twins|twin boys|twin girls|twin sons|twin daughters"
MONTHS = "next month|next week|tomorrow|in may|in two weeks|this summer|on sunday|soon|next year|in december".split("|")
JUST = "yesterday|last week|last month|in march|two days ago|today|this morning|on monday".split("|")


def drawn_age(span, rng):
    """An age within the span, half of the time at a border between two prices."""
    edges = [age for age in BORDERS if span[0] <= age <= span[1]]
    return rng.choice(edges) if edges and rng.random() < 0.5 else rng.randint(*span)


def age_word(age, rng):
    return (
        plain_number(age, rng).replace("a dozen", "twelve") if rng.random() < (0.3 if age < 20 else 0.08) else str(age)
    )


def pronoun(name, rng):
    """he or she, and him or her, as the name has it."""
    if re.search(r"dad|father|husband|uncle|brother|nephew|son\b|boy|grandpa|hubby|\bman\b|gentleman", name):
        return "he", "him"
    if re.search(r"mum|mom|mother|wife|aunt|sister|gran|niece|daughter|girl|nan|lady|woman", name):
        return "she", "her"
    return rng.choice((("he", "him"), ("she", "her")))


def of_age(name, age, rng, verb="is"):
    """The name with the age, in one of many ways; the years that are still to come do not count."""
    number, following = age_word(age, rng), age_word(age + 1, rng)
    forms = [f"{name} ({number})", f"{name} ({number})", f"{name} who {verb} {number}", f"{name}, who {verb} {number}",
             f"{name} aged {number}", f"{name}, {number} years old", f"{name} ({number} years)", f"{name} ({number} years old)",
             f"{name}, aged {number}", f"{name} (age {number})", f"{name} of {number}"]  # fmt: skip
    if verb == "is":
        he = pronoun(name, rng)[0]
        bare = name.split(" ", 1)
        forms += [f"{name} ({he}'s {number})", f"{name} ({he} is {number})", f"{name}, {he}'s {number}", f"{name} who's {number}",
                  f"{bare[0]} {number} year old {bare[1]}", f"{bare[0]} {number}-year-old {bare[1]}"] if len(bare) > 1 else []  # fmt: skip
        coming = rng.choice(MONTHS)
        future = [f"{name} (turning {following} {coming})", f"{name}, who will be {following} {coming}",
                  f"{name} who turns {following} {coming}", f"{name} (not {following} yet)", f"{name}, almost {following}",
                  f"{name} (nearly {following})", f"{name}, not quite {following}", f"{name} (still {number})",
                  f"{name}, {following} {coming}", f"{name} (not yet {following})"]  # fmt: skip
        past = rng.choice(JUST)
        recent = [f"{name} who turned {number} {past}", f"{name} (turned {number} {past})", f"{name} (just turned {number})",
                  f"{name}, who has just turned {number}", f"{name} (already {number})", f"{name}, {number} since {past.removeprefix('on ')}"]  # fmt: skip
        if rng.random() < 0.12:
            forms = future
        elif rng.random() < 0.1:
            forms = recent
    else:
        forms += [f"{name}, both {number}", f"{name} (both {number})", f"{name} who are both {number}", f"{name}, they're both {number}",
                  f"{name} (they are {number})", f"{name}, who are both {number}", f"{name}, both aged {number}"]  # fmt: skip
        if rng.random() < 0.15:
            coming = rng.choice(MONTHS)
            forms = [f"{name} (both turning {following} {coming})", f"{name} who will be {following} {coming}",
                     f"{name}, not {following} yet", f"{name}, almost {following}"]  # fmt: skip
    return rng.choice(forms)


def nameless(age, rng):
    """Somebody of whom nothing but the age is known."""
    number = age_word(age, rng)
    small = age <= CHILD_TO
    who = rng.choice(
        ("boy", "girl", "child", "kid") if small else ("man", "woman", "lady", "gentleman", "visitor", "person")
    )
    article = (
        "an"
        if number[0] == "8" or number in ("11", "18", "eight", "eleven", "eighteen") or number.startswith("eight")
        else "a"
    )
    if small and age > FREE_TO:
        who = rng.choice((who, who, "schoolboy", "schoolgirl"))
    return rng.choice(
        (f"a {who} of {number}", f"{article} {number}-year-old", f"{article} {number} year old {who}", f"a {who} aged {number}",
         f"somebody aged {number}", f"one {who} of {number}", f"a {who} ({number})", f"someone who is {number}")
    )  # fmt: skip


def person(rng):
    """[(words, kind, 1)] of somebody whose age is told."""
    if rng.random() < 0.15:
        age = drawn_age((1, 88), rng)
        return [(nameless(age, rng), kind_of(age), 1)]
    if rng.random() < 0.06:
        months = rng.choice((2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 18, 20))
        number = age_word(months, rng)
        form = rng.choice(
            (
                "{my} baby of {} months",
                "{my} {} month old",
                "a baby ({} months)",
                "{my} {}-month-old girl",
                "a {} months old boy",
            )
        )
        return [(form.replace("{}", number), BABY, 1)]
    if rng.random() < 0.06:
        daughter = rng.choice(("daughter", "son", "niece", "nephew", "sister", "brother", "cousin"))
        age = rng.randint(18, 27)
        forms = (f"{{my}} {daughter} ({age}, a student)", f"{{my}} {daughter} who is {age} and a student",
                 f"{{my}} {daughter} (student, {age})", f"a student of {age}", f"a {age} year old student")  # fmt: skip
        return [(rng.choice(forms), "student", 1)]
    span = rng.choice(tuple(AGES))
    owner = rng.choice(("{my}", "{my}", "{my}", "{my}", "his", "her", "the", "their"))
    age = drawn_age(span, rng)
    return [(of_age(f"{owner} {rng.choice(AGES[span].split('|'))}", age, rng), kind_of(age), 1)]


def pair(rng):
    """[(words, kind, count), ...] of two people whose ages are told."""
    if rng.random() < 0.25:
        age = drawn_age((1, 17), rng)
        name = rng.choice(("{my}", "the", "her", "{my}")) + " " + rng.choice(TWINS.split("|"))
        return [(of_age(name, age, rng, "are"), kind_of(age), 2)]
    span = rng.choice(tuple(PAIRS))
    name = rng.choice(("{my}", "{my}", "{my}", "his", "her")) + " " + rng.choice(PAIRS[span].split("|"))
    if rng.random() < 0.4:
        age = drawn_age(span, rng)
        return [(of_age(name, age, rng, "are"), kind_of(age), 2)]
    if rng.random() < 0.1 and span[0] == 1:
        edge = rng.choice((2, FREE_TO, FREE_TO + 1))
        return [(f"two {rng.choice(('kids', 'children', 'boys', 'girls'))} under {age_word(edge, rng)}", BABY, 2)]
    years = [drawn_age(span, rng), drawn_age(span, rng)]
    if years[0] == years[1]:
        years[1] += 1
    first, second = (age_word(age, rng) for age in years)
    form = rng.choice(("{} ({} and {})", "{}, {} and {}", "{} aged {} and {}", "{} who are {} and {}", "{} ({} & {})", "{}, {} and {} years old",
                       "{}, aged {} and {}", "{} ({}, {})", "{}, who are {} and {}", "{} of {} and {}"))  # fmt: skip
    return [(form.format(name, first, second), kind_of(years[0]), 1), ("", kind_of(years[1]), 1)]


def people_by_age(rng):
    """[(words, kind, count), ...] of people most of whom have an age."""
    entries = []
    for _ in range(rng.choices((1, 2, 3), (30, 50, 20))[0]):
        chance = rng.random()
        entries += person(rng) if chance < 0.55 else pair(rng) if chance < 0.8 else first_named(members(rng))
    return entries


def first_named(entries):
    """The first entry with words and those that belong to it."""
    following = (at for at, (words, _, _) in enumerate(entries) if at and words)
    return entries[: next(following, len(entries))]


def relatives(rng):
    """A family most of whose members have an age."""
    return of_members(people_by_age(rng), rng)
