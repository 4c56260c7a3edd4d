"""POST /v1/chat/completions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from support.edge import check_chat, deltas, edge_client, sse_events
from support.fake_turns import MODEL, FakeHost, FakeTurns, Step, outcome, rich_turn, text_turn
from warmlane.conversation.events import Finished, Loading, Started, TextDelta, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Text
from warmlane.conversation.tools import TextFormat, Thinking, TokenLogprob, TopLogprob
from warmlane.conversation.turn import Dialect, StopReason

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def ask(turns: FakeTurns, **fields: Any) -> dict[str, Any]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, **fields})
    assert got.status_code == 200, got.text
    body: dict[str, Any] = got.json()
    ChatCompletion.model_validate(body)
    return body


async def stream(turns: FakeTurns, **fields: Any) -> list[dict[str, Any]]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, "stream": True, **fields})
    assert got.text.endswith("data: [DONE]\n\n")
    chunks = sse_events(got.content, named=False)
    check_chat(chunks)
    return chunks


async def test_a_plain_answer() -> None:
    turns = FakeTurns()
    body = await ask(turns)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hello world", "refusal": None}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert (turns.last.dialect, turns.last.response_id) == (Dialect.CHAT, body["id"])
    assert turns.last.store is False


async def test_the_turn_is_asked_what_the_request_says() -> None:
    turns = FakeTurns()
    await ask(
        turns,
        max_tokens=5,
        max_completion_tokens=7,
        stop="END",
        temperature=0,
        top_p=1,
        top_k=5,
        min_p=0.1,
        seed=-3,
        presence_penalty=2,
        frequency_penalty=-2,
        n=1,
        prompt_cache_key="key-1234",
        response_format={"type": "text"},
        logprobs=False,
        modalities=["text"],
    )
    request, sampling = turns.last, turns.last.sampling
    assert (request.max_output_tokens, request.stop, request.prompt_cache_key) == (7, ("END",), "key-1234")
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 1, 5, 0.1)
    assert (sampling.seed, sampling.presence_penalty, sampling.frequency_penalty) == (-3, 2, -2)
    await ask(turns, max_tokens=5, stop=["a", "b"])
    assert (turns.last.max_output_tokens, turns.last.stop) == (5, ("a", "b"))


USER, ASSISTANT = Role.USER, Role.ASSISTANT


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            [
                {"role": "system", "content": "s"},
                {"role": "developer", "content": [{"type": "text", "text": "d"}]},
                {"role": "user", "content": "q", "name": "ann"},
                {"role": "assistant", "content": None},
                {"role": "assistant", "content": ""},
                {"role": "assistant"},
                {"role": "assistant", "content": None, "refusal": "no", "tool_calls": []},
                {"role": "assistant", "content": "a", "reasoning_content": "hm"},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
            ],
            [
                Message(Role.SYSTEM, (Text("s"),)),
                Message(Role.DEVELOPER, (Text("d"),)),
                Message(USER, (Text("q"),)),
                Message(ASSISTANT, ()),
                Message(ASSISTANT, ()),
                Message(ASSISTANT, ()),
                Message(ASSISTANT, (Text("no"),)),
                Message(ASSISTANT, (Reasoning("hm"), Text("a"))),
                Message(ASSISTANT, (Text("no"),)),
                Message(USER, (Text("b"), Text("c"))),
            ],
        ),
    ],
)
async def test_input_in_all_its_shapes(messages: object, expected: list[Message]) -> None:
    turns = FakeTurns()
    await ask(turns, messages=messages)
    assert list(turns.last.input) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [None]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HI, {"role": "function", "content": "x", "name": "f"}]}, "messages[1].role"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]}, "messages[0].content[0].text"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"temperature": 99}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ""}, "stop[0]"),
        ({"stop": 5}, "stop"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 5}}},
            "response_format.json_schema.schema",
        ),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"reasoning_effort": "much"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
        ({"functions": [{}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {"a": 1}}, "web_search_options"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"system": "be brief"}, "system"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
async def test_a_wrong_or_unsupported_field_is_named(fields: dict[str, Any], param: str) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, **fields})
    assert got.status_code == 400, got.text
    assert got.json()["error"]["param"] == param
    assert (turns.open_permits, turns.requests) == (0, [])


async def test_what_has_no_effect_is_named() -> None:
    fields = {"store": True, "reasoning_effort": "low", "metadata": {"a": "b"}, "tools": [], "user": "u"}
    fields |= {"best_of": 1, "ignore_eos": False, "grammar": "", "chat_template_kwargs": {"top": 1}, "functions": []}
    async with edge_client(FakeTurns()) as client:
        messages = [{"role": "user", "content": "hi", "name": "ann"}]
        got = await client.post(PATH, json={"model": MODEL, "messages": messages, **fields})
    assert got.headers["x-warmlane-warnings"] == (
        "metadata, best_of, ignore_eos, grammar, chat_template_kwargs.top, store, messages[].name"
    )


async def test_what_has_no_effect_within_stream_options_is_named() -> None:
    body = {"model": MODEL, "messages": HI, "stream": True, "stream_options": {"include_usage": True, "later": 1}}
    got = await edge_client(FakeTurns()).post(PATH, json=body)
    assert got.headers["x-warmlane-warnings"] == "stream_options.later"


async def test_a_stream_without_usage() -> None:
    chunks = await stream(FakeTurns())
    assert "".join(deltas(chunks, "content")) == "Hello world"
    assert all("usage" not in chunk for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["warmlane"]["cached_tokens"] == 5


async def test_a_stream_with_usage() -> None:
    chunks = await stream(FakeTurns(), stream_options={"include_usage": True})
    assert [chunk["usage"] is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}
    assert chunks[-1]["warmlane"]["session_cache"] == "hit"


async def test_a_stream_of_everything_equals_the_whole_answer() -> None:
    chunks = await stream(FakeTurns(rich_turn()))
    message = (await ask(FakeTurns(rich_turn())))["choices"][0]["message"]
    assert "".join(deltas(chunks, "content")) == message["content"] == "I'll look."
    assert "".join(deltas(chunks, "reasoning_content")) == message["reasoning_content"] == "let me see"
    assert message["tool_calls"][0] == {
        "id": "call_a",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'},
    }
    calls = [call for batch in deltas(chunks, "tool_calls") for call in batch]
    for index, whole in enumerate(message["tool_calls"]):
        own = [call for call in calls if call["index"] == index]
        assert (own[0]["id"], own[0]["function"]["name"]) == (whole["id"], whole["function"]["name"])
        assert all("id" not in call for call in own[1:])
        assert "".join(call["function"]["arguments"] for call in own) == whole["function"]["arguments"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(StopReason.LENGTH, "length"), (StopReason.STOP_SEQUENCE, "stop"), (StopReason.STOP, "stop")],
)
async def test_finish_reasons(reason: StopReason, expected: str) -> None:
    script = text_turn("x", stop_reason=reason)
    assert (await ask(FakeTurns(script)))["choices"][0]["finish_reason"] == expected
    assert (await stream(FakeTurns(script)))[-1]["choices"][0]["finish_reason"] == expected


async def test_an_empty_reply() -> None:
    assert (await ask(FakeTurns(text_turn())))["choices"][0]["message"]["content"] == ""
    assert list(deltas(await stream(FakeTurns(text_turn())), "content")) == []


TOKENS = (
    TokenLogprob("Hel", -0.5, b"Hel", (TopLogprob("Hel", -0.5, b"Hel"), TopLogprob("\ufffd", float("-inf"), b"\xc3"))),
    TokenLogprob("lo", -1.0, b"lo"),
)
SHOWN = [
    {
        "token": "Hel",
        "logprob": -0.5,
        "bytes": [72, 101, 108],
        "top_logprobs": [
            {"token": "Hel", "logprob": -0.5, "bytes": [72, 101, 108]},
            {"token": "\ufffd", "logprob": -9999.0, "bytes": [195]},
        ],
    },
    {"token": "lo", "logprob": -1.0, "bytes": [108, 111], "top_logprobs": []},
]


async def test_log_probabilities() -> None:
    script: list[Step] = [
        Validated(),
        Started(12, 5),
        TextDelta("Hello", TOKENS),
        Finished(outcome(Text("Hello"), logprobs=TOKENS)),
    ]
    turns = FakeTurns(script)
    body = await ask(turns, logprobs=True, top_logprobs=2)
    assert turns.last.top_logprobs == 2
    assert body["choices"][0]["logprobs"] == {"content": SHOWN, "refusal": None}
    async with edge_client(FakeTurns(script)) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, "stream": True, "logprobs": True})
    chunks = [json.loads(line[6:]) for line in got.text.split("\n") if line.startswith("data: {")]
    told = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert told == [{"content": SHOWN, "refusal": None}]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
async def test_how_many_log_probabilities_are_asked_for(fields: dict[str, Any], asked: int | None) -> None:
    turns = FakeTurns()
    await ask(turns, **fields)
    assert turns.last.top_logprobs == asked


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, Thinking()),
        ({"reasoning_effort": None}, Thinking()),
        ({"reasoning_effort": "none"}, Thinking(enabled=False)),
        ({"reasoning_effort": "high"}, Thinking(enabled=True, effort="high")),
        ({"chat_template_kwargs": {"enable_thinking": False}}, Thinking(enabled=False)),
        (
            {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"},
            Thinking(enabled=False, effort="low"),
        ),
    ],
)
async def test_thinking(fields: dict[str, Any], thinking: Thinking) -> None:
    turns = FakeTurns()
    await ask(turns, **fields)
    assert turns.last.thinking == thinking


SCHEMA = {"type": "object", "properties": {"why": {"type": "string"}, "answer": {"type": "string"}}}


@pytest.mark.parametrize(
    ("response_format", "expected"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, TextFormat()),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, TextFormat(name="a")),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
            TextFormat(schema=compact(SCHEMA), name="a", strict=True),
        ),
    ],
)
async def test_structured_output(response_format: object, expected: TextFormat | None) -> None:
    turns = FakeTurns()
    await ask(turns, response_format=response_format)
    assert turns.last.text_format == expected


@pytest.mark.parametrize("first", [[], [Loading()]])
async def test_what_the_model_cannot_do_is_told_with_the_answer(first: list[Step]) -> None:
    """In a header; in a stream that had begun before it was known, in the last chunk."""
    said = "tools.f.parameters.pattern"
    script = [*first, Validated((said,)), *text_turn("x")[1:]]
    async with edge_client(FakeTurns(script)) as client:
        whole = await client.post(PATH, json={"model": MODEL, "messages": HI, "store": True})
        streamed = await client.post(PATH, json={"model": MODEL, "messages": HI, "store": True, "stream": True})
    assert whole.headers["x-warmlane-warnings"] == f"store, {said}"
    late = sse_events(streamed.content, named=False)[-1]["warmlane"].get("warnings")
    if first:
        assert (streamed.headers["x-warmlane-warnings"], late) == ("store", [said])
    else:
        assert (streamed.headers["x-warmlane-warnings"], late) == (f"store, {said}", None)


async def test_an_alias_is_answered_by_the_model_it_stands_for() -> None:
    turns = FakeTurns()
    async with edge_client(turns, host=FakeHost(aliases={"gpt-x": MODEL})) as client:
        got = await client.post(PATH, json={"model": "gpt-x", "messages": HI})
    assert (got.status_code, got.json()["model"], turns.last.model) == (200, MODEL, MODEL)
