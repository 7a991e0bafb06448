"""What visitors pay with: how much, for a bill, and how they name it."""

from wording import plain_number

NOTES = (5, 10, 20, 50, 100, 200)
NAMES = {
    5: ("a fiver",),
    10: ("a tenner", "a ten"),
    20: ("a twenty",),
    50: ("a fifty",),
    100: ("a hundred", "a hundred euros"),
}
PLURALS = {5: "fives", 10: "tens", 20: "twenties", 50: "fifties", 100: "hundreds"}


def spelt(amount, rng):
    """The amount in letters."""
    if amount < 100:
        return plain_number(amount, rng)
    hundreds, rest = divmod(amount, 100)
    text = ("one", "two", "three", "four")[hundreds - 1] + " hundred"
    return text + (" and " + plain_number(rest, rng) if rest else "")


def two_notes(rng):
    """(amount, words) of two notes or of some of one kind."""
    if rng.random() < 0.5:
        note, count = rng.choice(((5, 2), (10, 2), (10, 3), (20, 2), (20, 3), (50, 2), (50, 3), (100, 2)))
        number = rng.choice((str(count), ("two", "three")[count - 2]))
        return note * count, rng.choice(
            (f"{number} {PLURALS[note]}", f"{number} {note}s", f"{number} {note} euro notes")
        )
    one, other = rng.sample((5, 10, 20, 50, 100), 2)
    name = "{}" if rng.random() < 0.5 else "{} euro note"
    return one + other, f"a {name.format(one)} and a {name.format(other)}"


def money_words(amount, rng):
    """The amount as it is said, as a noun."""
    words = [f"{amount} euros", f"{amount} euros", f"{amount} euro", f"{amount}\u20ac", f"\u20ac{amount}", f"{amount} eur",
             f"{spelt(amount, rng)} euros", f"{amount}", f"{spelt(amount, rng)}"]  # fmt: skip
    if amount in NOTES:
        spelled = spelt(amount, rng).removeprefix("one ")
        article = "an" if spelled[0] in "aeiou" else "a"
        words += [f"a {amount}", f"a {amount} euro note", f"a {amount}-euro note", f"a {amount} euro bill",
                  f"{article} {spelled} euro note", f"a {amount} note", f"one {amount} euro note", f"my {amount} euro note",
                  f"{article} {spelled}-euro note"]  # fmt: skip
        words += NAMES.get(amount, ()) * 2
    return rng.choice(words)


def payment(due, rng):
    """(amount, words): what a visitor pays a bill of `due` euros with; most of the time it is enough."""
    chance = rng.random()
    enough = [note for note in NOTES if note >= due]
    short = [note for note in NOTES if note < due]
    if chance < 0.08:
        return two_notes(rng)
    if chance < 0.42 and enough:
        amount = enough[0]
    elif chance < 0.55 and enough:
        amount = rng.choice(enough)
    elif chance < 0.75 and short:
        amount = rng.choice(short[-2:])
    elif chance < 0.80:
        amount = due
    elif chance < 0.92:
        amount = max(2, due + rng.randint(-9, 12))
    else:
        amount = rng.choice((15, 25, 30, 40, 60, 70, 75, 80, 90, 120, 150, rng.randint(5, 150)))
    return amount, money_words(amount, rng)
