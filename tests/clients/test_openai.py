"""OpenAI's Python client, over TCP and over the Unix socket."""

import json
import math
import os

import httpx
import openai
import pytest

URL, SOCKET = os.environ["KILN_URL"], os.environ["KILN_SOCKET"]
QUESTION = [{"role": "user", "content": "Who are you?"}]


@pytest.fixture(params=["tcp", "unix"])
def client(request):
    if request.param == "tcp":
        return openai.OpenAI(base_url=f"{URL}/v1", max_retries=0)
    transport = httpx.HTTPTransport(uds=SOCKET)
    return openai.OpenAI(base_url="http://localhost/v1", max_retries=0, http_client=httpx.Client(transport=transport))


def ask(client, **options):
    options = {"model": "any", "messages": QUESTION, "temperature": 0, "max_tokens": 16, **options}
    return client.chat.completions.create(**options)


def test_chat(client):
    answer = ask(client)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert ask(client).choices[0].message.content == choice.message.content
    assert ask(client).usage.prompt_tokens_details.cached_tokens > 0


def test_streams_add_up_to_the_answer(client):
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices for chunk in chunks if chunk.usage] == [[]]
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1
    finished = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert finished[-1] == whole.choices[0].finish_reason and not any(finished[:-1])


def test_a_stream_that_is_left_does_not_hold_up_the_next(client):
    with ask(client, stream=True, max_tokens=1000) as stream:
        next(iter(stream))
    assert ask(client).choices[0].message.content


def test_several_choices_with_a_seed(client):
    # The demo model is sure of its answers: words that it never saw make it waver.
    options = {"temperature": 2, "n": 3, "seed": 7, "max_tokens": 8, "extra_body": {"top_k": 0, "ignore_eos": True}}
    once, again = [client.completions.create(model="demo", prompt="zq", **options) for _ in range(2)]
    texts = [choice.text for choice in once.choices]
    assert texts == [choice.text for choice in again.choices]
    assert [choice.index for choice in once.choices] == [0, 1, 2] and len(set(texts)) > 1


def test_logprobs(client):
    content = ask(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    for token in content:
        assert len(token.top_logprobs) == 3 and token.top_logprobs[0].token == token.token
        assert token.logprob <= 0 and math.isclose(token.logprob, token.top_logprobs[0].logprob)
        assert token.bytes is None or bytes(token.bytes).decode(errors="replace") is not None


def test_stop_and_length(client):
    whole = ask(client).choices[0].message.content
    stop = whole[4:8]
    stopped = ask(client, stop=[stop]).choices[0]
    assert stopped.message.content == whole.split(stop)[0] and stopped.finish_reason == "stop"
    cut = ask(client, max_completion_tokens=2, max_tokens=openai.omit)
    assert cut.choices[0].finish_reason == "length" and cut.usage.completion_tokens == 2


def test_a_schema_is_kept(client):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}, "kind": {"enum": ["a", "b"]}},
        "required": ["name", "age", "kind"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    for temperature in (0, 1.5):
        answer = ask(client, response_format=form, temperature=temperature, seed=3, max_tokens=80)
        person = json.loads(answer.choices[0].message.content)
        assert set(person) == {"name", "age", "kind"} and person["kind"] in ("a", "b")
        assert isinstance(person["name"], str) and len(person["name"]) <= 8
    # The demo model ends no string by itself, and so may meet the limit.
    plain = ask(client, response_format={"type": "json_object"}, max_tokens=60).choices[0]
    assert plain.message.content.lstrip().startswith("{") and plain.finish_reason in ("stop", "length")
    assert plain.finish_reason == "length" or isinstance(json.loads(plain.message.content), dict)


def test_tools(client):
    # The demo model knows no cities, and would not end a name by itself.
    city = {"type": "string", "maxLength": 12}
    parameters = {"type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": parameters}}]
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    options = {"messages": messages, "tools": tools, "tool_choice": "required", "max_tokens": 80}
    message = ask(client, **options).choices[0]
    call = message.message.tool_calls[0]
    assert message.finish_reason == "tool_calls" and call.function.name == "weather" and call.id
    assert set(json.loads(call.function.arguments)) == {"city"}
    streamed = {}
    for chunk in ask(client, stream=True, **options):
        for part in chunk.choices[0].delta.tool_calls or []:
            streamed.setdefault(part.index, ["", ""])
            streamed[part.index][0] += part.function.name or ""
            streamed[part.index][1] += part.function.arguments or ""
    assert streamed == {0: ["weather", call.function.arguments]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    told = messages + [message.message.model_dump(exclude_none=True), result]
    assert ask(client, messages=told, tools=tools, tool_choice="none").choices[0].message.content


def test_errors(client):
    for options, param in [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"n": 0}, "n"),
        ({"logit_bias": {"5": 200}}, "logit_bias"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0]"),
    ]:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, **options)
        assert caught.value.param.startswith(param), (options, caught.value)
        assert caught.value.type == "invalid_request_error" and caught.value.body["message"]
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": "word " * 5000}])
    assert caught.value.code == "context_length_exceeded" and "2048" in str(caught.value)
    with pytest.raises(openai.NotFoundError):
        client.get("/nothing", cast_to=object)


def test_models(client):
    models = list(client.models.list())
    assert {"demo", "gpt-4o"} <= {model.id for model in models}
    assert client.models.retrieve("demo").model_extra["max_model_len"] == 2048


def test_completions(client):
    answer = client.completions.create(model="demo", prompt="Hello", max_tokens=5, temperature=0)
    chunks = client.completions.create(model="demo", prompt="Hello", max_tokens=5, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == answer.choices[0].text
    two = client.completions.create(model="demo", prompt=["Hello", "Who"], max_tokens=3, temperature=0, echo=True)
    assert [choice.index for choice in two.choices] == [0, 1]
    assert two.choices[0].text.startswith("Hello") and two.choices[1].text.startswith("Who")


def test_responses(client):
    answer = client.responses.create(model="demo", input="Who are you?", temperature=0, max_output_tokens=16)
    assert answer.output_text == ask(client).choices[0].message.content
    events = list(client.responses.create(model="demo", input="Who are you?", temperature=0, max_output_tokens=16, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == answer.output_text
    terminal = {"response.completed", "response.incomplete", "response.failed"}
    assert [event.type in terminal for event in events] == [False] * (len(events) - 1) + [True]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="demo", input="x", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
