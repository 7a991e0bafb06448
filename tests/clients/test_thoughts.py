"""The clients of OpenAI, Anthropic and Ollama with a model that thinks: an answer and a call behind a thought, whole and streamed."""

import json
import os

import anthropic
import ollama
import openai

URL = os.environ["KILN_URL"]
THOUGHT, ANSWER = "A simple question", "The river moves."
QUESTION = [{"role": "user", "content": "Hello"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
INPUT = {"city": "one"}
FUNCTION = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": CITY}}

openais = openai.OpenAI(base_url=f"{URL}/v1", max_retries=0)
anthropics = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
ollamas = ollama.Client(host=URL)


def chat(**more):
    asked = {"model": "any", "messages": QUESTION, "temperature": 0, "reasoning_effort": "high", **more}
    return openais.chat.completions.create(**asked)


def test_openais_chat():
    whole = chat()
    message = whole.choices[0].message
    assert (message.reasoning_content, message.content) == (THOUGHT, ANSWER)
    assert whole.usage.completion_tokens_details.reasoning_tokens > 0
    deltas = [chunk.choices[0].delta for chunk in chat(stream=True)]
    thought = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert ("".join(thought), "".join(delta.content or "" for delta in deltas)) == (THOUGHT, ANSWER)
    last = chat(reasoning_effort="none").choices[0].message
    assert last.content == ANSWER and not hasattr(last, "reasoning_content")


def test_openais_call():
    called = {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False}
    choice = chat(**called).choices[0]
    assert (choice.message.reasoning_content, choice.finish_reason) == (THOUGHT, "tool_calls")
    assert not choice.message.content and choice.message.tool_calls[0].function.arguments == '{"city":"one"}'
    deltas = [chunk.choices[0].delta for chunk in chat(**called, stream=True)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == THOUGHT
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert "".join(call.function.arguments or "" for call in calls) == '{"city":"one"}'


def respond(**more):
    return {"model": "any", "input": "Hello", "temperature": 0, "reasoning": {"effort": "high"}, **more}


def read(response):
    thought, last = response.output
    assert (thought.type, thought.content[0].text) == ("reasoning", THOUGHT)
    return last


def test_openais_responses():
    assert read(openais.responses.create(**respond())).content[0].text == ANSWER
    with openais.responses.stream(**respond()) as stream:
        events = list(stream)
        last = stream.get_final_response()
    deltas = {"response.reasoning_text.delta": "", "response.output_text.delta": ""}
    for event in events:
        if event.type in deltas:
            deltas[event.type] += event.delta
    assert list(deltas.values()) == [THOUGHT, ANSWER]
    assert read(last).content[0].text == ANSWER
    flat = {"type": "function", "name": "weather", "parameters": CITY, "strict": False}
    called = respond(tools=[flat], tool_choice="required", parallel_tool_calls=False)
    assert read(openais.responses.create(**called)).arguments == '{"city":"one"}'
    with openais.responses.stream(**called) as stream:
        assert read(stream.get_final_response()).arguments == '{"city":"one"}'


def message(**more):
    """Temperature is passed in the body, since later clients name it no more."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    asked = {"model": "claude", "max_tokens": 2000, "messages": QUESTION, "thinking": thinking}
    return {**asked, "extra_body": {"temperature": 0}, **more}


def test_anthropics_messages():
    def read(answer):
        thought, last = answer.content
        assert (thought.type, thought.thinking) == ("thinking", THOUGHT)
        return last

    assert read(anthropics.messages.create(**message())).text == ANSWER
    with anthropics.messages.stream(**message()) as stream:
        thought = "".join(event.thinking for event in stream if event.type == "thinking")
        assert (thought, read(stream.get_final_message()).text) == (THOUGHT, ANSWER)
    tool = {"name": "weather", "description": "The weather.", "input_schema": CITY}
    called = message(tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    whole = anthropics.messages.create(**called)
    assert (read(whole).input, whole.stop_reason) == (INPUT, "tool_use")
    with anthropics.messages.stream(**called) as stream:
        assert read(stream.get_final_message()).input == INPUT
    # The thought goes back with the call, and the model answers by the result.
    result = {"type": "tool_result", "tool_use_id": read(whole).id, "content": "It rains."}
    talk = [*QUESTION, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    assert anthropics.messages.create(**message(messages=talk)).content[-1].text == ANSWER


def test_ollamas_chat():
    options = {"temperature": 0}
    whole = ollamas.chat(model="any", messages=QUESTION, think=True, options=options)
    assert (whole.message.thinking, whole.message.content) == (THOUGHT, ANSWER)
    parts = list(ollamas.chat(model="any", messages=QUESTION, think=True, options=options, stream=True))
    joined = ["".join(getattr(part.message, name) or "" for part in parts) for name in ["thinking", "content"]]
    assert joined == [THOUGHT, ANSWER]
    made = ollamas.generate(model="any", prompt="Hello", think=True, options=options)
    assert (made.thinking, made.response) == (THOUGHT, ANSWER)
    assert not ollamas.chat(model="any", messages=QUESTION, think=False, options=options).message.thinking
    # A form holds the answer behind the thought. The client names no tool that has to be called.
    form = {"type": "object", "properties": {"a": {"enum": [True]}}, "required": ["a"], "additionalProperties": False}
    held = ollamas.chat(model="any", messages=QUESTION, think=True, options=options, format=form).message
    assert (held.thinking, json.loads(held.content)) == (THOUGHT, {"a": True})
