"""Ollama's Python client."""

import json
import os

import ollama
import pytest

client = ollama.Client(host=os.environ["KILN_URL"])
OPTIONS = {"temperature": 0, "num_predict": 12}
QUESTION = [{"role": "user", "content": "Who are you?"}]


def test_chat_streams_what_it_answers_whole():
    whole = client.chat(model="demo", messages=QUESTION, options=OPTIONS)
    assert whole.message.content and whole.done and whole.eval_count > 0
    parts = list(client.chat(model="demo", messages=QUESTION, options=OPTIONS, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_generate():
    whole = client.generate(model="demo", prompt="Who are you?", options=OPTIONS)
    parts = list(client.generate(model="demo", prompt="Who are you?", options=OPTIONS, stream=True))
    assert whole.response and "".join(part.response for part in parts) == whole.response


def test_a_format_is_kept():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    text = client.chat(model="demo", messages=QUESTION, options={**OPTIONS, "num_predict": 40}, format=schema).message.content
    assert isinstance(json.loads(text)["n"], int)


def test_tags_and_show():
    names = [model.model for model in client.list().models]
    assert any(name.startswith("demo") for name in names), names
    assert client.show("demo").details.family == "gemma3"


def test_errors_are_texts():
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat(model="demo", messages=QUESTION, options={"temperature": -5})
    assert caught.value.status_code == 400 and "temperature" in caught.value.error
