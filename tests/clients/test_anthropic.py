"""Anthropic's Python client."""

import os

import anthropic
import pytest

client = anthropic.Anthropic(base_url=os.environ["KILN_URL"], api_key="none", max_retries=0)
ASKED = {"model": "claude", "max_tokens": 12, "temperature": 0, "messages": [{"role": "user", "content": "Who are you?"}]}
TOOL = {
    "name": "hours",
    "description": "When the museum is open.",
    "input_schema": {"type": "object", "properties": {"open": {"type": "boolean"}}, "required": ["open"]},
}


def asked(**more):
    """Temperature is set for every request. It is passed in the body, since later clients name it no more."""
    body = {**ASKED, **more}
    temperature = body.pop("temperature")
    return {**body, "extra_body": {"temperature": temperature}}


def test_a_message_streams_what_it_is_whole():
    whole = client.messages.create(**asked())
    assert whole.content[0].text and whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.output_tokens > 0
    with client.messages.stream(**asked()) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == whole.content[0].text == last.content[0].text
    assert last.stop_reason == whole.stop_reason and last.usage.output_tokens == whole.usage.output_tokens


def test_a_stop_sequence_ends_a_message():
    text = client.messages.create(**asked()).content[0].text
    cut = client.messages.create(**asked(stop_sequences=[text[3:6]]))
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", text[3:6])
    assert cut.content[0].text == text.split(text[3:6])[0]


def test_a_tool_is_called_and_its_result_read():
    choice = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "hours"}, "max_tokens": 60}
    called = client.messages.create(**asked(**choice))
    call = called.content[0]
    assert (called.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "hours")
    assert isinstance(call.input["open"], bool)
    with client.messages.stream(**asked(**choice)) as stream:
        assert stream.get_final_message().content[0].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It is open."}
    talk = [*ASKED["messages"], {"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    assert client.messages.create(**asked(messages=talk, system="Be brief.")).content[0].text


def test_tokens_are_counted_as_they_are_used():
    count = client.messages.count_tokens(model="claude", messages=ASKED["messages"]).input_tokens
    usage = client.messages.create(**asked()).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_are_those_of_the_client():
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(**asked(max_tokens=0))
