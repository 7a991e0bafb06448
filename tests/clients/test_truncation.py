"""What holds of `truncation`, whatever the conversation: hypothesis makes them, for a server with a context of 256 tokens."""
import json
import os
import urllib.error
import urllib.request

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from server import PATIENCE

CONTEXT = 256
# What a prompt may have so that the reply has an eighth of the context.
ROOM = CONTEXT - CONTEXT // 8
# The field of the conversation, and the count of its tokens.
PATHS = {"/v1/chat/completions": ("messages", "prompt_tokens"), "/v1/responses": ("input", "input_tokens")}

# A busy machine is no fault, and every run makes the same conversations.
plenty = settings(deadline=None, derandomize=True, database=None, max_examples=40, suppress_health_check=list(HealthCheck))
paths = some.sampled_from(sorted(PATHS))
# A surrogate alone is no character, and no client can send it.
characters = some.characters(exclude_categories=["Cs"])
said = some.one_of(some.integers(0, 60).map("word ".__mul__), some.text(characters, max_size=40))
exchanges = some.lists(some.tuples(said, said), max_size=8)


def ask(path, talk, **more):
    """The status, the answer's object, and how many exchanges were left out."""
    body = {PATHS[path][0]: talk, "max_tokens": 1, "max_output_tokens": 16, "temperature": 0, **more}
    request = urllib.request.Request(os.environ["KILN_URL"] + path, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer), answer.headers.get("Kiln-Forgotten-Exchanges")
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.load(e), e.headers.get("Kiln-Forgotten-Exchanges")


def message(role, text):
    return {"role": role, "content": text}


def spoken(system, past, question):
    turns = [turn for asked, answered in past for turn in (message("user", asked), message("assistant", answered))]
    return [*([message("system", system)] if system else []), *turns, message("user", question)]


def tokens_of(path, answer):
    return answer["usage"][PATHS[path][1]]


@plenty
@given(paths, some.one_of(some.just(""), said), exchanges, said)
def test_what_is_left_out_is_what_has_to_be(path, system, past, question):
    status, answer, header = ask(path, spoken(system, past, question), truncation="auto")
    if status != 200:
        # The question alone is too long, or the template refuses it: so is it without truncation.
        assert (status, header) == (400, None) and answer["error"]["message"], answer
        assert ask(path, spoken(system, [], question))[0] == 400, answer
        return
    assert header != "0"
    forgotten = int(header or 0)
    assert forgotten <= len(past)
    # The rest is asked as if it were all.
    status, rest, none = ask(path, spoken(system, past[forgotten:], question), truncation="disabled")
    assert (status, none, tokens_of(path, rest)) == (200, None, tokens_of(path, answer))
    # Nothing stays that the reply's room needs, and nothing goes that there is room for.
    assert forgotten == len(past) or tokens_of(path, answer) <= ROOM
    if forgotten:
        status, more, _ = ask(path, spoken(system, past[forgotten - 1 :], question))
        assert status == 400 or tokens_of(path, more) > ROOM, (forgotten, more)


words = some.one_of(some.text(characters, max_size=9), some.sampled_from(["auto", "disabled", "AUTO"]))
json_values = some.recursive(
    some.one_of(some.none(), some.booleans(), some.integers(-9, 9), words),
    lambda inner: some.one_of(some.lists(inner, max_size=2), some.dictionaries(words, inner, max_size=2)),
    max_leaves=3,
)


@plenty
@given(paths, json_values)
def test_another_word_is_refused_by_its_name(path, value):
    status, answer, header = ask(path, [message("user", "When do you open?")], truncation=value)
    if value in (None, "auto", "disabled"):
        assert (status, header) == (200, None), answer
    else:
        assert (status, answer["error"]["param"]) == (400, "truncation"), answer


roles = some.sampled_from(["system", "developer", "user", "assistant", "tool"])


@plenty
@given(paths, some.lists(some.tuples(roles, said), min_size=1, max_size=9))
def test_any_order_of_roles_has_an_answer(path, turns):
    talk = [message(role, text) for role, text in turns]
    status, answer, header = ask(path, talk, truncation="auto")
    assert status in (200, 400), answer
    if status == 400:
        assert header is None and answer["error"]["param"] and answer["error"]["message"], answer
    else:
        assert header is None or 0 < int(header) < len(turns)
        # Truncation refuses nothing that fits, and leaves a conversation that fits as it is.
        status, whole, _ = ask(path, talk)
        assert status == 400 or (tokens_of(path, whole) == tokens_of(path, answer)) == (header is None), (whole, answer)
