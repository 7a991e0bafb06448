"""What the kiosk of Alder Park knows, and the one right answer to every question about it.

A question is an `Ask`: an intent and its arguments, independent of wording. `answer(ask)` is a pure function, so an
exact-match evaluation means something: for each question there is exactly one string that is right.
"""

from typing import NamedTuple

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CATEGORIES = ("adult", "child", "senior", "student")
PLURAL = {"adult": "adults", "child": "children", "senior": "seniors", "student": "students"}


class Ask(NamedTuple):
    """One question. `party` is ((what, how many), ...) in the order in which the visitor named them.

    `origin` is where a route starts, or the place that `place` is compared with. The intent "both" is two questions in
    one, `parts`. `paid` is the money, in euros, that a bill is paid with, and `parts` what is paid for if it was named before.
    """

    intent: str
    place: str = ""
    day: int = -1
    hour: int = -1
    what: str = ""
    party: tuple = ()
    origin: str = ""
    parts: tuple = ()
    paid: int = 0


class Place(NamedTuple):
    """`hours` is one (opens, closes) or None per weekday; `prices` follow CATEGORIES, () is free, None is no attraction.

    `leg` leads here from the fountain in the park's middle, `back` from here to the fountain, `minutes` is that walk.
    """

    hours: tuple
    prices: tuple
    leg: str
    back: str
    minutes: int


def week(*spans):
    """week((5, (10, 17)), (2, (10, 18))) is five days of 10 to 17 and two of 10 to 18."""
    return tuple(hours for days, hours in spans for _ in range(days))


SHUT = None
PLACES = {
    "park": Place(week((7, (6, 22))), (), "", "", 0),
    "museum": Place(week((1, SHUT), (4, (10, 17)), (2, (10, 18))), (9, 5, 7, 6), "red path north", "south", 3),
    "aquarium": Place(week((4, (9, 18)), (1, (9, 20)), (2, (9, 18))), (12, 7, 10, 8), "blue path east", "west", 4),
    "planetarium": Place(week((2, SHUT), (3, (14, 21)), (2, (11, 22))), (11, 6, 9, 8), "silver path west", "east", 6),
    "greenhouse": Place(week((5, (8, 16)), (2, (9, 17))), (6, 3, 5, 4), "green path south", "north", 5),
    "castle tower": Place(week((2, SHUT), (5, (11, 16))), (5, 2, 4, 3), "stone steps north", "south", 9),
    "boat house": Place(week((5, (12, 19)), (1, (10, 20)), (1, (10, 19))), (10, 5, 8, 7), "lake path east", "west", 7),
    "mini golf": Place(
        week((1, (13, 20)), (1, SHUT), (3, (13, 20)), (2, (11, 21))), (8, 4, 6, 5), "yellow path west", "east", 8
    ),
    "cafe": Place(week((5, (8, 18)), (2, (9, 19))), (), "red path north", "south", 2),
    "restaurant": Place(week((1, SHUT), (6, (12, 22))), (), "lake path east", "west", 6),
    "gift shop": Place(week((6, (10, 18)), (1, SHUT)), (), "blue path east", "west", 1),
    "playground": Place(week((7, (7, 21))), (), "yellow path west", "east", 3),
    "toilets": Place((), None, "red path north", "south", 1),
    "car park": Place((), None, "brown path south", "north", 8),
    "train station": Place((), None, "brown path south", "north", 12),
    "bus stop": Place((), None, "brown path south", "north", 4),
    "first aid post": Place((), None, "green path south", "north", 2),
    "lockers": Place((), None, "blue path east", "west", 2),
    "cash machine": Place((), None, "silver path west", "east", 2),
    "picnic area": Place((), None, "green path south", "north", 6),
}
OPENING = tuple(name for name, place in PLACES.items() if place.hours)  # places with opening hours
PAYING = tuple(name for name, place in PLACES.items() if place.prices)  # places with tickets
REACHED = tuple(name for name, place in PLACES.items() if place.leg)  # places with a way to them
PLURAL_PLACES = ("toilets", "lockers")
KIOSK_MINUTES = 2  # from the kiosk to the fountain
PARKING = 2  # euros per hour
FREE_TO, CHILD_TO, SENIOR_FROM = 3, 14, 65  # years of age: nothing, then the child price, and from then on the senior price

GOODS = {  # name: (plural, price, where it is sold)
    "coffee": ("coffees", 3, "cafe"),
    "tea": ("teas", 2, "cafe"),
    "juice": ("juices", 4, "cafe"),
    "hot chocolate": ("hot chocolates", 4, "cafe"),
    "sandwich": ("sandwiches", 6, "cafe"),
    "soup": ("soups", 7, "cafe"),
    "cake": ("cakes", 5, "cafe"),
    "ice cream": ("ice creams", 3, "cafe"),
    "postcard": ("postcards", 1, "gift shop"),
    "map": ("maps", 2, "gift shop"),
    "magnet": ("magnets", 4, "gift shop"),
    "mug": ("mugs", 8, "gift shop"),
    "umbrella": ("umbrellas", 11, "gift shop"),
    "shirt": ("shirts", 15, "gift shop"),
}

FIXED = {  # intents without arguments
    "refuse": "I am sorry, I do not know that. I can help with opening hours, the way and prices in Alder Park.",
    "greet": "Hello and welcome to Alder Park! How can I help you?",
    "thanks": "You are welcome. Enjoy your visit!",
    "bye": "Goodbye, and have a nice day!",
    "who": "I am the visitor kiosk of Alder Park, a small computer program.",
    "can": "I can tell you opening hours, the way and prices for all places in Alder Park. Just ask.",
    "mood": "I am fine, thank you. How can I help you?",
    "okay": "Good. What else would you like to know?",
    "today": "I do not know today's date. Please name a day of the week.",
    "see": "In Alder Park you can visit the museum, the aquarium, the planetarium, the greenhouse, the castle tower, "
    "the boat house and mini golf.",
    "eat": "You can eat at the cafe and at the restaurant.",
    "kids": "Children like the playground, the aquarium and mini golf.",
    "free": "The park and the playground are free.",
    "cheapest": "The castle tower is the cheapest: 5 euros for adults and 2 euros for children.",
    "dearest": "The aquarium has the highest price: 12 euros for adults and 7 euros for children.",
    "nearest": "The nearest attraction is the museum: it is 5 minutes from here.",
    "farthest": "The farthest attraction is the castle tower: it is 11 minutes from here.",
    "fountain": "The fountain is in the middle of the park, 2 minutes from here.",
    "rain": "When it rains, the museum, the aquarium and the planetarium are a good choice.",
    "menu": "The cafe has coffee, tea, juice, hot chocolate, sandwiches, soup, cake and ice cream.",
    "goods": "The gift shop sells postcards, maps, magnets, mugs, umbrellas and shirts.",
    "wifi": "Yes, Wi-Fi is free everywhere in the park. The network is called AlderPark and needs no password.",
    "dogs": "Dogs are welcome on a lead in the park, but not inside the buildings.",
    "wheelchair": "All buildings can be reached without steps, except the castle tower.",
    "park_car": "Walk to the fountain, then take the brown path south to the car park. It takes 10 minutes.",
    "fish": "You can see fish in the aquarium. Take the blue path east from the fountain.",
    "parking": f"Parking costs {PARKING} euros per hour.",
    "pay": "You can pay by card or in cash.",
    "lost": "Please ask at the lost property desk in the gift shop.",
    "lostchild": "Please go to the first aid post at once. The staff there will help you find your child.",
    "emergency": "In an emergency call 112. The first aid post is on the green path south of the fountain.",
    "photos": "You may take photos everywhere, but without flash in the museum and the aquarium.",
    "smoking": "Smoking is not allowed in the park.",
    "bikes": "Please leave bicycles and scooters at the main gate.",
    "stroller": "Strollers are welcome everywhere except in the castle tower.",
    "tour": "Guided tours start at the fountain every day at 11:00 and 15:00.",
    "feeding": "The fish in the aquarium are fed every day at 10:30 and 14:30.",
    "show": "The star shows in the planetarium start at 15:00, 17:00 and 19:00.",
    "group": "Groups of 10 or more people get 20 percent off all tickets.",
    "toddler": f"Children up to {FREE_TO} years enter free everywhere.",
    "ages": f"Children up to {FREE_TO} years enter free. The child price is for {FREE_TO + 1} to {CHILD_TO} years, the "
    f"senior price from {SENIOR_FROM} years on.",
    "for_what": "Please tell me what you would like to pay for.",
    "split": "I can only add up a bill, not split it.",
    "buy": "You can buy tickets here at the kiosk or at the door of each attraction.",
    "refund": "Tickets can be returned on the day of purchase here at the kiosk.",
    "phone": "You can call the park office on 555 0142.",
    "charge": "You can charge your phone at the lockers.",
    "language": "I am sorry, I only speak English.",
    "age": "Alder Park was opened in 1907.",
    "again": "Please tell me what you would like to know about Alder Park.",
    "holiday": "I only know the hours of ordinary weekdays, not of holidays or dates. Please call the park office on "
    "555 0142.",
    "people": "Please tell me how many adults, children, seniors and students you are.",
    "many": "I can answer for two places or days at a time. Please ask again with one or two.",
    "hundreds": "I can only count up to 99. For more please call the park office on 555 0142.",
}

WHICH_PLACE = "Which place do you mean? Please name it, for example the museum."


def titled(name):
    """'the museum'; mini golf takes no article."""
    return name if name == "mini golf" else "Alder Park" if name == "park" else "the " + name


def capital(text):
    return text[0].upper() + text[1:]


def span(hours):
    return f"from {hours[0]}:00 to {hours[1]}:00"


def runs_of(hours):
    """[(first day, last day, hours), ...]: neighbouring days of equal hours joined."""
    runs = []
    for day, slot in enumerate(hours):
        if runs and runs[-1][2] == slot:
            runs[-1][1] = day
        else:
            runs.append([day, day, slot])
    return runs


def listed(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def days_named(first, last):
    if first == last:
        return DAYS[first]
    return f"{DAYS[first]}{' and ' if last == first + 1 else ' to '}{DAYS[last]}"


def shut_days(place):
    return [DAYS[day] for day, slot in enumerate(PLACES[place].hours) if slot is None]


def all_hours(place):
    hours, name, shut = PLACES[place].hours, titled(place), shut_days(place)
    if len(set(hours)) == 1:
        return capital(f"{name} is open every day {span(hours[0])}.")
    parts = [f"{days_named(a, b)} {span(slot)}" for a, b, slot in runs_of(hours) if slot]
    text = capital(f"{name} is open {', '.join(parts)}.")
    return text + (f" It is closed on {listed(shut)}." if shut else "")


def day_hours(ask):
    """hours, opens, closes, is_open and is_open_at of one place on one day."""
    slot, name, day = PLACES[ask.place].hours[ask.day], titled(ask.place), DAYS[ask.day]
    asked_yes_no = ask.intent in ("is_open", "is_open_at")
    if slot is None:
        text = f"{name} is closed on {day}."
        return "No, " + text if asked_yes_no else capital(text)
    if ask.intent == "opens":
        return capital(f"{name} opens at {slot[0]}:00 on {day}.")
    if ask.intent == "closes":
        return capital(f"{name} closes at {slot[1]}:00 on {day}.")
    if ask.intent == "is_open_at" and not slot[0] <= ask.hour < slot[1]:
        return f"No, {name} is only open {span(slot)} on {day}."
    text = f"{name} is open {span(slot)} on {day}."
    return "Yes, " + text if asked_yes_no else capital(text)


def weekend(place):
    saturday, sunday = PLACES[place].hours[5:]
    name = titled(place)
    if saturday == sunday:
        return capital(f"{name} is open {span(saturday)} on Saturday and Sunday.")
    if sunday is None:
        return capital(f"{name} is open {span(saturday)} on Saturday and closed on Sunday.")
    return capital(f"{name} is open {span(saturday)} on Saturday and {span(sunday)} on Sunday.")


def way(ask):
    place, name = PLACES[ask.place], titled(ask.place)
    if ask.intent == "route":
        start = PLACES[ask.origin]
        return (
            f"From {titled(ask.origin)} walk {start.back} to the fountain, then take the {place.leg} to {name}. "
            f"It takes {start.minutes} + {place.minutes} = {start.minutes + place.minutes} minutes."
        )
    if ask.intent == "return":
        one_way = KIOSK_MINUTES + place.minutes
        return f"To {name} and back it takes {one_way} + {one_way} = {2 * one_way} minutes."
    if ask.intent == "distance":
        return f"It is a walk of {KIOSK_MINUTES + place.minutes} minutes from here to {name}."
    return (
        f"Walk to the fountain, then take the {place.leg} to {name}. It takes {KIOSK_MINUTES + place.minutes} minutes."
    )


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def prices(place):
    cost = PLACES[place].prices
    if not cost:
        return f"Entry to {titled(place)} is free."
    return capital(
        f"{titled(place)} costs {cost[0]} euros for adults, {cost[1]} for children, {cost[2]} for seniors "
        f"and {cost[3]} for students."
    )


def euros(amount):
    return "1 euro" if amount == 1 else f"{amount} euros"


def unit_price(what, place):
    return GOODS[what][1] if what in GOODS else PLACES[place].prices[CATEGORIES.index(what)]


def counted(what, count):
    return f"{count} {what if count == 1 else GOODS[what][0] if what in GOODS else PLURAL[what]}"


LARGE = 10  # the count from which a sum is large


def is_large(party):
    """Whether the sum is too much for one glance. It is then added up a step at a time, in the text."""
    return len(party) > 3 or any(count >= LARGE for _, count in party)


def added(amounts):
    """'207 + 85 = 292, 292 + 40 = 332 euros', one addition at a time."""
    total, steps = amounts[0], []
    for amount in amounts[1:]:
        steps.append(f"{total} + {amount} = {total + amount}")
        total += amount
    return ", ".join(steps) + " euros"


def cost(ask):
    """What a bill, or a time of parking, comes to, in euros."""
    if ask.intent == "parked":
        return ask.hour * PARKING
    if ask.place and not PLACES[ask.place].prices:
        return 0
    return sum(unit_price(what, ask.place) * count for what, count in ask.party)


def bill(ask):
    """The sum, worked out line by line as on a receipt, before any discount."""
    if ask.place and not PLACES[ask.place].prices:
        return f"Entry to {titled(ask.place)} is free."
    lines, amounts = [], []
    for what, count in ask.party:
        price = unit_price(what, ask.place)
        amounts.append(price * count)
        lines.append(f"{counted(what, count)}: {count} x {price} = {euros(price * count)}")
    text = "; ".join(lines) + "."
    if ask.place:
        text = capital(titled(ask.place)) + ": " + text
    if len(lines) == 1:
        return text
    return text + f" Together {added(amounts) if is_large(ask.party) else euros(sum(amounts))}."


def is_group(ask):
    """Whether the group discount is named after the sum."""
    return ask.intent in ("bill", "change") and ask.place in PAYING and any(count >= LARGE for _, count in ask.party)


def settled(paid, due):
    """Whether the money is enough for what is due, and what comes back or is missing."""
    money = f"{euros(paid)} {'is' if paid == 1 else 'are'}"
    if paid == due:
        return f"{money} exactly enough: you get nothing back."
    if paid > due:
        return f"{money} enough: you get {paid} - {due} = {euros(paid - due)} back."
    return f"{money} not enough: you need {due} - {paid} = {euros(due - paid)} more."


def change(ask):
    """A bill and the money that it is paid with. The sum of a group is before the discount, so nothing is settled."""
    due = cost(ask)
    if not due:
        return bill(ask)
    return f"{bill(ask)} {FIXED['group'] if is_group(ask) else settled(ask.paid, due)}"


def both(ask):
    """Two answers, one after the other, and the sum of two bills."""
    texts = [bill(part) if part.intent == "bill" else answer(part) for part in ask.parts]
    if all(part.intent in ("bill", "items") and cost(part) for part in ask.parts):
        texts.append(f"Both together {added([cost(part) for part in ask.parts])}.")
    if any(is_group(part) for part in ask.parts):
        texts.append(FIXED["group"])
    return " ".join(texts)


def parked(hours):
    return f"Parking for {hours} {'hour' if hours == 1 else 'hours'}: {hours} x {PARKING} = {euros(hours * PARKING)}."


def change_parked(ask):
    return f"{parked(ask.hour)} {settled(ask.paid, ask.hour * PARKING)}"


def homeward(ask):
    """From a place to the fountain, or on to the kiosk."""
    place = PLACES[ask.place]
    walk = f"From {titled(ask.place)} walk {place.back} to the fountain"
    if ask.intent == "to_fountain":
        return f"{walk}. It takes {place.minutes} minute{'' if place.minutes == 1 else 's'}."
    total = place.minutes + KIOSK_MINUTES
    return f"{walk}, then on to the kiosk. It takes {place.minutes} + {KIOSK_MINUTES} = {total} minutes."


def cheaper(ask):
    what = ask.what or "adult"
    first, second = (unit_price(what, place) for place in (ask.place, ask.origin))
    text = f"For {PLURAL[what]}, {titled(ask.place)} costs {euros(first)} and {titled(ask.origin)} {euros(second)}"
    if first == second:
        return text + ", which is the same."
    low = ask.place if first < second else ask.origin
    return f"{text}, so {titled(low)} is {euros(abs(first - second))} cheaper."


def nearer(ask):
    first, second = (KIOSK_MINUTES + PLACES[place].minutes for place in (ask.place, ask.origin))
    text = f"It is {first} minutes from here to {titled(ask.place)} and {second} to {titled(ask.origin)}"
    if first == second:
        return text + ", which is the same."
    return f"{text}, so the way to {titled(ask.place if first < second else ask.origin)} is shorter."


def one_price(ask):
    if ask.what in GOODS:
        return f"{capital(article(ask.what))} costs {euros(GOODS[ask.what][1])} at the {GOODS[ask.what][2]}."
    if not PLACES[ask.place].prices:
        return f"Entry to {titled(ask.place)} is free."
    return (
        f"{capital(article(ask.what))} ticket for {titled(ask.place)} costs {euros(unit_price(ask.what, ask.place))}."
    )


def open_places(day, hour=-1):
    """Which places but the park itself are open on that day, at that hour if one is given."""
    slots = {place: PLACES[place].hours[day] for place in OPENING if place != "park"}
    return [titled(place) for place, slot in slots.items() if slot and (hour < 0 or slot[0] <= hour < slot[1])]


def open_on(ask):
    return f"On {DAYS[ask.day]} you can visit {listed(open_places(ask.day))}."


def open_at(ask):
    places, day = open_places(ask.day, ask.hour), DAYS[ask.day]
    if places:
        return f"On {day} at that time you can visit {listed(places)}."
    first, last = PLACES["park"].hours[ask.day]
    return f"On {day} at that time {'only Alder Park itself is open' if first <= ask.hour < last else 'all is closed'}."


def closed_on(ask):
    shut = [titled(place) for place in OPENING if PLACES[place].hours[ask.day] is None]
    if not shut:
        return f"No place is closed on {DAYS[ask.day]}."
    return capital(f"{listed(shut)} {'is' if len(shut) == 1 else 'are'} closed on {DAYS[ask.day]}.")


def closed_days(ask):
    shut = shut_days(ask.place)
    return capital(f"{titled(ask.place)} is {'closed on ' + listed(shut) if shut else 'open every day'}.")


def about(ask):
    return f"What would you like to know about {titled(ask.place)}: opening hours, the way or prices?"


def add(ask):
    (_, a), (_, b) = ask.party
    return f"{a} plus {b} is {a + b}."


HANDLERS = {
    "hours": lambda ask: all_hours(ask.place),
    "at_time": lambda ask: all_hours(ask.place),  # without a day, all of them
    "weekend": lambda ask: weekend(ask.place),
    "closed_days": closed_days,
    "prices": lambda ask: prices(ask.place),
    "price": one_price,
    "item": one_price,
    "bill": lambda ask: bill(ask) + (" " + FIXED["group"] if is_group(ask) else ""),
    "items": bill,
    "change": change,
    "change_parked": change_parked,
    "settled": lambda ask: settled(ask.paid, sum(map(cost, ask.parts))),
    "to_kiosk": homeward,
    "to_fountain": homeward,
    "add": add,
    "parked": lambda ask: parked(ask.hour),
    "cheaper": cheaper,
    "nearer": nearer,
    "open_on": open_on,
    "open_at": open_at,
    "closed_on": closed_on,
    "about": about,
    "both": both,
}
HANDLERS |= dict.fromkeys(("route", "way", "distance", "return"), way)
HANDLERS |= dict.fromkeys(("day", "opens", "closes", "is_open", "is_open_at"), day_hours)
# Intents with arguments but without a place.
PLACELESS = (
    "item",
    "items",
    "add",
    "parked",
    "change",
    "change_parked",
    "settled",
    "open_on",
    "open_at",
    "closed_on",
    "both",
)


def answer(ask):
    """The one right answer to `ask`."""
    if ask.intent in FIXED:
        return FIXED[ask.intent]
    if not ask.place and ask.intent not in PLACELESS:
        return WHICH_PLACE
    return HANDLERS[ask.intent](ask)
