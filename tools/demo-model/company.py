"""Who comes and who does not: people who stay away, speakers who count or not, heads of whom some are named, two families.

As in people.py, the words and the counts are drawn together, so they agree.
"""

import re
from typing import NamedTuple

from people import BABY, MINE, NUMBERED, ROLES, Family, joined_words, kind_of, members, of_members, summed
from relatives import age_word, drawn_age, people_by_age, pronoun
from wording import NUMBER_WORDS, VISITORS, count_word, expand, parse, party_words, plain_number, with_article
from world import CATEGORIES

AWAY = tuple(  # what is said of who does not come; {is}, {has}, {does}, {was} and {s} follow the number
    parse(text)
    for text in """
    {is} [all] staying (at home|behind|in the hotel|in bed|outside|in the car|at the campsite|with friends|at the flat)
    stay{s} (at home|behind|in the hotel|in bed|outside|in the car|at the campsite|in the camper|at the cottage|away)
    stayed (at home|behind|in the hotel|in bed|in the car|at the campsite|at the b&b|in town)
    {is} (not|n't) (coming|joining us|coming along|coming in|with us|here today|here|part of it|going in) [today|this time]
    {does}n't (come|join us|come along|go in|want to come|feel like it|want to go) [today|this time|with us]
    (won't|will not) (come|be coming|be there|join us|be joining us|make it|be with us|go in) [today|this time]
    (can't|couldn't|cannot) (come|make it|join us|be here|come along) [today|this time]
    {is} (ill|sick|unwell|not well|in bed with a cold|in hospital|too tired|poorly|asleep|not feeling well|feverish)
    {has} (a cold|the flu|a fever|to work|a bad knee|to study|an exam|other plans|no time|seen it already|a headache)
    {is} (at home|at the hotel|at work|at school|abroad|elsewhere|on a school trip|at a wedding|at the beach|in town|away)
    {is} (waiting outside|watching the bags|looking after the dog|off shopping|taking a nap|having a rest|minding the dog)
    wait{s} (outside|in the car|for us|out here|at the door|on a bench|at the entrance)
    {is} with (grandma|a babysitter|the neighbours|their cousins|friends|their father|my mother|an aunt|grandpa)
    {was} left (at home|with grandma|with the babysitter|with friends|behind|with my sister|at the hotel)
    (give{s} it a miss|skip{s} it|sit{s} this one out|take{s} a day off|dropped out|cancelled|prefer{s} the beach)
    (would rather|prefer{s} to) (sleep|rest|stay outside|go shopping|go swimming|sit in the sun|read a book|stay home)
    {has} (decided not to come|stayed at home|gone home|dropped out|gone shopping|gone swimming|called in sick|left)
    (missed|{has} missed) the (train|bus|flight|ferry)
    (didn't|did not) (want to|want to come|come|come along|come with us|feel well|join us)
    {is} (busy|grounded|hungover|afraid of crowds|too old for this|too small for it|not interested|no fan of parks)
    """.strip().splitlines()  # fmt: skip
    for text in (text.strip(),)
)
LEFT = tuple(
    parse(text)
    for text in (
        "(we|i) left {who} (at home|with grandma|with the babysitter|at the hotel|with friends|behind|in bed|with an aunt)",
        "(we've|i've|we have) left {who} (at home|with the neighbours|with their uncle|at the hotel|in town|with a friend)",
        "{who} (we|i) (left|leave) (at home|at the hotel|with a friend|with grandma)",
        "(we|i) dropped {who} off at (my mother's|a friend's|my sister's|the pool|grandma's)",
        "(we|i) (come|came|are here|go) without {who}".replace(
            "(we|i) (come|came|are here|go)", "we (come|came|are here|go)"
        ),
        "(grandma|a babysitter|my sister|a neighbour) (looks after|is looking after|minds|has|is minding|takes care of) {who}",
        "(we|i) didn't bring {who}",
    )
)
TRAILING = "without {}|but without {}|minus {}|but not {}|leaving out {}|{} excluded|not {}|without {} today|without {} this time"
TRAILING = TRAILING.split("|")
NONE_OF = tuple(  # {a} one of each kind, {many} several
    parse(text)
    for text in """
    (none|not one|nobody|no one) of us is {a}
    (nobody|no one|none) (with us|in our group|among us|here|in our party) is {a}
    there (is|are) no {many} (among us|with us|in our group|coming|in our party|along|here)
    there (isn't|is not) (a single|one) {one} (among us|with us|in our party|coming)
    not (a single|one) {one} (among us|with us|in our group|in the party)
    (we have|we've got|i have|we bring|we've brought) no {many} [with us|along|today]
    (we|i) (don't have|didn't bring|haven't got|haven't brought) any {many} [with us|along|today]
    no {many} (with us|are coming|in our party|this time|today|among us|come along|at all|in sight)
    (there won't be|there will be no|there'll be no) {many}
    none of us are {many}
    neither {neither}
    we are not {many}
    (all without|entirely without|free of) {many}
    {many} (are not coming|aren't coming|we have none|there are none|don't come)
    """.strip().splitlines()  # fmt: skip
    for text in (text.strip(),)
)
WITH_AWAY = (  # a list of people and who stays away
    "{list}, {away}|{list}, {away}|{list} - {away}|{list}. {away}|{list}; {away}|{list} because {away}|{list} as {away}|"
    "{list}, since {away}|{list} ({away})|{away}, so it's [just|only] {list}|{away}, so {list}|{away}, that leaves {list}|"
    "{away}. it's {list}|{away} and so it is [only|just] {list}|since {away}, it's [just|only] {list}|{away}: {list}|"
    "[just|only] {list}, {away}|today it's [only|just] {list}, {away}|it's {list}, {away}|it's {list} today and {away}|"
    "we're {list} and {away}|we are {list}, {away}|we're {list}, and {away}|we have {list}, {away}|there are {list} and {away}|"
    "as {away}, only {list}|{away}, leaving {list}|{list}, though {away}|{list} only, {away}|{list}, nobody else, {away}"
).split("|{")
WITH_AWAY = tuple(parse(text if at == 0 else "{" + text) for at, text in enumerate(WITH_AWAY))

# What a visitor says of people who were counted and will not come after all.
DROPS = tuple(
    parse(text)
    for text in """
    {does}n't (come|come along|join us|go in|want to) (after all|in the end|)
    (drop{s} out|back{s} out|pull{s} out|cancel{s}|get{s} cold feet|change{s} (his|their) mind|give{s} up|quit{s}|bail{s})
    stay{s} (at home|outside|out|behind|in the hotel|at the hotel|here|in the car) (after all|instead|)
    {is} not coming (after all|in the end|)
    {is}n't coming (after all|in the end|with us|)
    (can't|won't|cannot) (come|make it|join us|be there) (after all|in the end|)
    (wait{s}|would rather wait|prefer{s} to wait) (outside|here|at the fountain|in the car|on the bench)
    {is} (too tired|ill|sick|not well|unwell|worn out|scared) (after all|and stay{s} out|)
    (skip{s} it|give{s} it a miss|sit{s} it out|leave{s} early|go{es} home|go{es} shopping instead|go{es} for a swim)
    (fall{s} ill|get{s} sick|oversleep{s}|miss{es} the bus|{has} no time after all|{has} to leave)
    {has} (dropped out|cancelled|changed (his|their) mind|gone home|decided against it)
    """.strip().splitlines()  # fmt: skip
    for text in (text.strip(),)
)
ONE_OF = {  # somebody of a kind whom the list may hold without a name
    "adult": "my husband|my wife|my friend|my brother|one of the adults|one of the grown-ups|my sister|my partner|one adult",
    "child": "my son|my daughter|one of the kids|one of the children|the eldest|the youngest|the little one|one kid|one child",
    "senior": "grandma|grandpa|my gran|one of the seniors|one of the pensioners|grandad|one senior|my grandmother",
    "student": "one of the students|one student|the student daughter|a student of ours",
}
ONE_OF = {kind: names.split("|") for kind, names in ONE_OF.items()}
ALL_OF = {
    "adult": "the adults|the grown-ups|the other adults|the parents",
    "child": "the kids|the children|our kids|our children|my kids|the little ones|the youngsters|all the children",
    "senior": "the seniors|the pensioners|the grandparents|the old folks|our seniors|the retirees",
    "student": "the students|our students|the undergrads|the student friends",
}
ALL_OF = {kind: names.split("|") for kind, names in ALL_OF.items()}
UNCOUNTED = (  # people whose number or price nobody can tell
    "the kids|our children|my kids|some friends|a few friends|several colleagues|{my} grandchildren|the boys|the girls|"
    "some pensioners|a few students|{my} cousins|{my} nephews|{my} nieces|{my} sisters|{my} brothers|the whole family|"
    "{my} wife's family|a few kids|a bunch of kids|some teenagers|{my} relatives|the neighbours' children|{my} aunts|"
    "a handful of children|some of {my} colleagues|{my} team|half the class|a couple of families|the others|{my} daughters|"
    "everybody else|some more people|a few seniors|{my} mates|her kids|his children|their children|{my} sons"
).split("|")


KINSHIP = re.compile(r"\b(?:my|our)\b")
# Words for several people, one of whom may be somebody who is named after them.
SEVERAL = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|both|couple|kids|children|twins|boys|girls|parents|"
    r"grandparents|in-laws|friends|mates|mum and dad|son and daughter|teenagers)\b"
)


class Absent(NamedTuple):
    words: str
    many: bool
    kind: str  # "" where there may be several


def verb_forms(text, many):
    """The clause with its verbs in the singular or the plural."""
    forms = {"is": "are", "has": "have", "does": "do", "was": "were", "s": "", "es": ""}
    one = {"s": "s", "es": "es"}
    text = re.sub(r"\{(is|has|does|was|s|es)\}", lambda m: forms[m[1]] if many else one.get(m[1], m[1]), text)
    text = text.replace("are n't", "aren't").replace("is n't", "isn't")
    return text.replace("his mind", "their mind") if many else text


def absentee(rng):
    """Somebody who might have come."""
    if rng.random() < 0.2:
        kind = rng.choice(CATEGORIES)
        return Absent(rng.choice(ALL_OF[kind]), True, kind)
    if rng.random() < 0.08:
        words = rng.choice(
            ("the rest of the family", "the others", "everybody else", "the other family", "the rest of us")
        )
        return Absent(words, words in ("the others",), "")
    kind, count = rng.choice([line for line in ROLES if line[1]])
    names = [name for name in ROLES[kind, count] if name.startswith(("{my}", "the ", "grand", "both", "mum ", "gran"))]
    name = rng.choice(names or ["{my} friend"])
    return Absent(MINE.sub("my", name.replace("{my}", rng.choice(("my", "my", "our")))), count > 1, kind)


def away(who, rng):
    """A clause that says that they do not come."""
    if rng.random() < 0.2:
        return expand(rng.choice(LEFT), rng).replace("{who}", who.words)
    return who.words + " " + verb_forms(expand(rng.choice(AWAY), rng), who.many).strip()


def none_of(kinds, rng):
    """A clause that says that nobody is of these kinds."""
    ones, manys = zip(*(rng.choice(VISITORS[kind]) for kind in kinds))
    either = rng.choice((" or ", " or "))
    text = expand(rng.choice(NONE_OF), rng)
    if "{neither}" in text:
        if len(kinds) < 2:
            return f"no {manys[0]}"
        return text.replace("{neither}", " nor ".join(manys))
    if "{many} " in text and text.startswith("{many}"):
        either = " and "
    text = text.replace("{many}", either.join(manys))
    return text.replace("{a}", either.join(map(with_article, ones))).replace("{one}", either.join(ones))


def small_party(rng):
    """A few visitors of one to three kinds."""
    kinds = rng.sample(CATEGORIES, rng.choices((1, 2, 3), (35, 50, 15))[0])
    if "adult" not in kinds and rng.random() < 0.6:
        kinds[0] = "adult"
    return tuple((kind, rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5, rng.randint(4, 9)))) for kind in kinds)


def numbered_words(party, rng):
    """The party in numbers alone: no word of it tells whose relative somebody is, or whether the speaker is one of them."""
    while True:
        words = party_words(party, rng)
        if not re.search(r"\b(?:my|our|me|i|us)\b", words):
            return words


def listed_people(rng):
    """(party, words, baby, the kinds named) of a list without a verb; the words count the speaker if he is to be counted."""
    if rng.random() < 0.55:
        party = small_party(rng)
        return party, numbered_words(party, rng), False, dict(party)
    while True:
        people = of_members(people_by_age(rng) if rng.random() < 0.3 else members(rng), rng)
        if not people.clause and (people.has_self or "my " not in people.words and "our " not in people.words):
            return people.party, people.words, people.baby, dict(people.party)


def some_absent(rng):
    """A sentence of who comes and of who does not; None where nobody could tell who is counted."""
    party, words, baby, known = listed_people(rng)
    if not party:
        return None
    if rng.random() < 0.1:
        return less_some(party, words, baby, rng)
    absent = [kind for kind in CATEGORIES if kind not in known]
    if absent and rng.random() < 0.3:
        clause = none_of(rng.sample(absent, min(len(absent), rng.choice((1, 1, 2)))), rng)
    else:
        who = absentee(rng)
        apart = not who.many and KINSHIP.search(words) and not SEVERAL.search(words)
        if not who.kind or who.kind in known and not apart or who.kind == BABY and baby or who.words in words:
            return None
        if rng.random() < 0.2:
            clause = rng.choice(TRAILING).format(who.words)
            between = rng.choice((", ", " ", " - ")) if clause.startswith(("without", "but", "minus")) else ", "
            return Family(party, words + between + clause, baby, True, True)
        clause = away(who, rng)
    form = expand(rng.choice(WITH_AWAY), rng)
    return Family(party, form.replace("{list}", words).replace("{away}", clause), baby, True, True)


def less_some(party, words, baby, rng):
    """A list of which some do not come, so that they are taken off."""
    change = dropped(party, rng)
    if not change or baby:
        return None
    left, clause = change
    but = rng.choice((", but {}", " but {}", " - but {}", ". but {}", ", however {}"))
    start = rng.choice(
        ("we'd be {}", "we would be {}", "there were to be {}", "we wanted to be {}", "we were going to be {}", "we'd planned for {}",
         "it should have been {}", "it would be {}")
    )  # fmt: skip
    return Family(left, start.format(words) + but.format(clause), False, True, True)


def dropped(party, rng):
    """(what is left of the party, a clause of who drops out); None where that leaves nobody, or leaves it open who it is."""
    at = rng.randrange(len(party))
    kind, had = party[at]
    chance, one, many = rng.random(), *rng.choice(VISITORS[kind])
    if chance < 0.45:
        gone, who, plural = had, rng.choice(ALL_OF[kind]) if had > 1 else f"the {one}", had > 1
        if who in ("the other adults", "the parents") or who == "the grandparents" and had > 2:
            return None
        if had == 1 and rng.random() < 0.5 and kind != "adult":
            who = rng.choice([name for name in ONE_OF[kind] if not name.startswith("one ")])
    elif chance < 0.75 and had > 1:
        gone, who, plural = 1, rng.choice(ONE_OF[kind]), False
    elif had > 2:
        gone = rng.randint(2, min(had - 1, 5))
        number = plain_number(gone, rng) if rng.random() < 0.6 else str(gone)
        who, plural = rng.choice((f"{number} of the {many}", f"{number} {many}", f"{number} of our {many}")), True
    else:
        return None
    left = [(kind, had - gone)] if had > gone else []
    left = (*party[:at], *left, *party[at + 1 :])
    if not left:
        return None
    if gone == had and rng.random() < 0.12 and plural:
        return left, f"none of {who} " + verb_forms(
            rng.choice(("come{s}", "want{s} to come", "{is} coming", "join{s} us")), False
        )
    return left, who + " " + verb_forms(expand(rng.choice(DROPS), rng), plural).strip()


# -- the speaker ---------------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """Whom the speaker takes along or sends: a list without the speaker, its party, and how many they are."""

    party: tuple
    words: str
    baby: bool
    heads: int
    one: bool


def others(rng):
    """People without the speaker; None where a number may hold the speaker, or where nobody would take them along."""
    entries = people_by_age(rng) if rng.random() < 0.5 else members(rng)
    texts = [text for text, _, _ in entries if text]
    if any(NUMBERED.search(text) for text in texts):
        return None
    party, baby = summed(entries)
    words = MINE.sub("my", joined_words(texts, rng).replace("{my}", rng.choice(("my", "my", "our"))))
    heads = sum(count for _, _, count in entries)
    return Taken(party, words, baby, heads, heads == 1) if heads < 10 else None


def all_of_us(heads, rng):
    """The heads as one names them together, the speaker among them."""
    number = plain_number(heads, rng) if rng.random() < 0.7 else str(heads)
    both = ["both of us", "the two of us", "us both"] if heads == 2 else []
    return rng.choice(
        [f"the {number} of us", f"the {number} of us", f"all {number} of us", f"us {number}", "all of us", "us all",
         f"the {number} of us together", "all of us, me included", f"{number} of us in all", *both, *both]
    )  # fmt: skip


def only_them(taken, rng):
    """The heads without the speaker."""
    number = plain_number(taken.heads, rng)
    them = pronoun(taken.words, rng)[1] if taken.one else "them"
    many = [] if taken.one else [f"the {number} of them", f"just the {number} of them", f"those {number}"]
    return rng.choice(
        [f"just {them}", f"only {them}", f"{them} alone", f"{them} without me", f"{them}, not for me", *many, *many]
    )


def fits_one(text):
    """Whether no verb in the wording tells that several people come."""
    return not re.search(r"\{kin\} (?:want|go|are|visit|pay|would)|\(?do \{kin\}", text)


def own_kind(rng):
    """(words that say who the speaker is, its kind): most of the time an adult, who says nothing."""
    if rng.random() < 0.75:
        return "", "adult"
    if rng.random() < 0.3:
        return rng.choice(("i'm a student", "i am a student", "i study", "i'm at university")), "student"
    age = drawn_age((16, 85), rng)
    form = rng.choice(("i'm {}", "i am {}", "i'm {} years old", "i'm {} myself", "being {} myself"))
    return form.format(age_word(age, rng)), kind_of(age)


# -- heads and families --------------------------------------------------------------------------------------------------


def heads(rng):
    """A sentence that says how many people there are, and who some of them are; the others are the rest."""
    total = rng.randint(3, 9)
    kinds = rng.sample(CATEGORIES[1:], rng.choices((1, 2), (75, 25))[0])
    counts = [rng.randint(1, max(1, min(4, total - 2))) for _ in kinds]
    rest = total - sum(counts)
    if rest < 1:
        return None
    digits = rng.random() < 0.5

    def number(count):
        return str(count) if digits else plain_number(count, rng)

    names = [rng.choice(VISITORS[kind])[count > 1] for kind, count in zip(kinds, counts)]
    adults = rng.choice(VISITORS["adult"])[rest > 1]
    party = (*zip(kinds, counts), ("adult", rest))
    chance = rng.random()
    group = rng.choice(("{} of us", "there are {} of us", "we are {}", "we're {} people", "{} people", "a family of {}", "a group of {}",
                        "{} visitors", "we'd be {}", "{} tickets", "there's {} of us"))  # fmt: skip
    start = group.format(number(total))
    if chance < 0.1 and total % 2 == 0 and len(kinds) == 1:
        half = total // 2
        name = rng.choice(VISITORS[kinds[0]])[1]
        ends = (
            f"half of us {name} and half grown-ups",
            f"half {name}, half adults",
            f"one half {name}, the other half adults",
        )
        return Family(((kinds[0], half), ("adult", half)), f"{start}, {rng.choice(ends)}", False, True, True)
    if chance < 0.3:
        named = joined_words([f"{number(count)} {name}" for count, name in zip(counts, names)], rng)
        but = rng.choice(
            (
                ", all adults except {}",
                ", all of them adults but {}",
                ", everyone an adult except {}",
                ", all grown-ups apart from {}",
            )
        )
        return Family((("adult", rest), *zip(kinds, counts)), start + but.format(named), False, True, True)
    them = rng.choice(("of them", "of us", "of whom")) if "ticket" not in start else "of them for"
    verb = {"of whom": True, "of us": rng.random() < 0.6, "of them": rng.random() < 0.15}.get(them, False)
    parts = []
    for at, (count, name) in enumerate(zip(counts, names)):
        be = (" is" if count == 1 else " are") if verb else ""
        one = with_article(name) if count == 1 and be else name
        parts.append(f"{number(count)}{' ' + them + be if at == 0 else be} {one}")
    text = rng.choice((" and ", " and ", ", ")).join(parts)
    if rng.random() < 0.3 and "ticket" not in start:
        text = rng.choice(("including", "among them", "counting", "among us", "and that includes")) + " "
        text += joined_words([f"{number(count)} {name}" for count, name in zip(counts, names)], rng)
    elif chance < 0.65:
        others = "the others" if rest > 1 else "the other one"
        ends = [f"the rest {adults}", f"{others} {'are ' if rest > 1 else 'is '}{adults if rest > 1 else with_article(adults)}",
                f"the rest are {adults}" if rest > 1 else f"the last one is {with_article(adults)}", f"and the rest {adults}",
                f"the remaining {number(rest)} {adults}"]  # fmt: skip
        text += rng.choice((", ", ", ", " and ", "; ")) + rng.choice(ends)
        text = text.replace("and and", "and")
    return Family(party, start + rng.choice((", ", ", ", " - ", ": ")) + text, False, True, True)


def families(rng):
    """Two families, or couples with their children, counted together."""
    chance = rng.random()
    each, couples = rng.randint(1, 3), rng.choice((2, 2, 3))

    def kids(count):
        name = rng.choice(("kid", "child", "boy", "girl"))
        name = {"child": "children"}.get(name, name + "s") if count > 1 else name
        return f"{count_word(count, rng).replace('a couple of', 'two').replace('a pair of', 'two')} {name}"

    number = rng.choice((str(couples), NUMBER_WORDS[couples]))
    if chance < 0.12:
        return Family(
            (("adult", 2 * couples),),
            rng.choice(("we are {} couples", "{} couples", "it's {} couples")).format(number),
            False,
            True,
            True,
        )
    if chance < 0.35:
        form = rng.choice(("{} couples with {} each", "{} couples, each with {}", "we are {} couples and each has {}", "{} families, each with two adults and {}",
                           "{} families of two adults and {} each"))  # fmt: skip
        return Family(
            (("adult", 2 * couples), ("child", each * couples)), form.format(number, kids(each)), False, True, True
        )
    if chance < 0.5:
        total = rng.randint(2, 6)
        form = rng.choice(
            (
                "{} couples and {} in all",
                "{} couples with {} altogether",
                "we're {} couples and {} between us",
                "{} couples plus {}",
            )
        )
        return Family((("adult", 2 * couples), ("child", total)), form.format(number, kids(total)), False, True, True)
    ours, theirs = (small_family(rng) for _ in range(2))
    party, _ = summed([("", kind, count) for kind, count in (*ours, *theirs)])
    first, second = numbered_words(ours, rng), numbered_words(theirs, rng)
    other = rng.choice(("my sister's family", "our friends", "the neighbours", "my brother's family", "the other family", "the smiths",
                        "my cousin's family", "our neighbours"))  # fmt: skip
    form = rng.choice(
        ("we are {}, {o} are {}", "our family ({}) and {o} ({})", "we're {} and {o} are {}", "{} in our family, {} in {o2}", "us: {}, {o}: {}",
         "my family is {}, and then {o}, {}", "two families, one with {}, the other with {}", "one family of {} and another of {}",
         "we ({}) and {o} ({}) together", "we come as two families: {} and {}")
    )  # fmt: skip
    text = form.replace("{o}", other).replace("{o2}", "the other").format(first, second)
    return Family(party, text, False, True, True)


def small_family(rng):
    kinds = rng.choice(
        (
            ("adult", "child"),
            ("adult", "child"),
            ("adult", "child"),
            ("adult",),
            ("adult", "senior"),
            ("adult", "child", "senior"),
        )
    )
    return tuple((kind, rng.randint(1, 3 if kind == "child" else 2)) for kind in kinds)


def uncounted(rng):
    """A list of people of whom some have no number, so that the kiosk has to ask."""
    if rng.random() < 0.12:  # is the one who stays away among them?
        party = (("adult", rng.randint(2, 3)), (rng.choice(CATEGORIES[1:]), rng.randint(1, 4)))
        who = Absent(
            rng.choice(("my wife", "my husband", "my brother", "my sister", "my dad", "one adult")), False, "adult"
        )
        return numbered_words(party, rng) + rng.choice((", but ", " but ", ", though ", ", only ")) + away(who, rng)
    entries = members(rng)[: rng.choice((0, 1, 1, 1, 2))]
    texts = [text for text, _, _ in entries if text]
    texts.insert(rng.randint(0, len(texts)), rng.choice(UNCOUNTED))
    if rng.random() < 0.6:
        texts.insert(rng.choice((0, len(texts))), "me")
    words = joined_words(texts, rng).replace("{my}", rng.choice(("my", "my", "our")))
    if rng.random() < 0.15:
        words = rng.choice(
            ("{n} of us, some of them kids", "{n} of us and a few of us are seniors", "{n} people, some adults and some children",
             "{n} of us, not all of them adults", "two families", "a couple and their kids", "we and the kids", "the whole family except my wife",
             "{n} people, most of them children", "about {n} of us with kids", "my wife and our kids", "adults and children, {n} in all",
             "four or five of us", "two or three adults and a few kids", "maybe {n} people")
        ).replace("{n}", str(rng.randint(4, 9)))  # fmt: skip
    elif rng.random() < 0.12:
        words = rng.choice(
            ("me and my mum who is over 60", "my dad (in his sixties) and me", "me and my nephew, a teenager", "my aunt, somewhere past sixty, and me",
             "my son, who is about 15, and me", "me with a child of three or four", "my parents, in their sixties, and me", "two kids, one maybe 3, and me",
             "me and my uncle, 64 or 65", "a teenager and me", "two teenagers and two adults", "my teenage daughter and i")
        )  # fmt: skip
    return MINE.sub("my", words)
