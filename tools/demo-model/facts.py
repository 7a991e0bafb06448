"""Whether a freely worded question was answered: every fact it asks for, and no number beside them.

A question of free.json, blind.json, fresh.json, unseen.json or late.json has `facts`, strings that its answer must hold,
and perhaps `also`, further strings that it may hold: the steps of a sum, or hours that go with a yes.
"""

import re

NUMBER = r"\d+(?::\d\d)?"


def holds(answer, fact):
    """Whether the fact stands in the answer, as whole words and numbers: 10 does not stand in 10:00 or 110."""
    return re.search(rf"(?<!\w)(?<!\d:){re.escape(fact.lower())}(?!\w|:\d)", answer.lower()) is not None


def faults(entry, answer):
    """What is wrong with the answer, as a list of short texts; empty if it is right."""
    missing = [f"lacks {fact!r}" for fact in entry["facts"] if not holds(answer, fact)]
    known = set(re.findall(NUMBER, " ".join([*entry["facts"], *entry.get("also", ())])))
    return missing + [f"holds {number}" for number in re.findall(NUMBER, answer) if number not in known]
