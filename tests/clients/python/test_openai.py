"""openai-python: Responses (streamed, parsed, in the background, on a WebSocket) and Chat, with a tool that runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.responses import FunctionToolParam, Response
from pydantic import BaseModel

from weather import ANSWER, ASKED, ASKED_OF_ALL, DESCRIPTION, MODEL, PLACE, PLACES, SCHEMA, Weather

FLAT: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": DESCRIPTION,
    "parameters": SCHEMA,
    "strict": True,
}
NESTED: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": DESCRIPTION, "parameters": SCHEMA, "strict": True},
}


class Answer(BaseModel):
    why: str
    answer: int


EMITTED = 'EMIT:{"why": "so", "answer": 42}'
PARSED = Answer(why="so", answer=42)


@pytest.fixture
def client(openai_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=openai_url, api_key="none", max_retries=0) as client:
        yield client


def results(answer: Response, tool: Weather) -> list[Any]:
    """Run every call of a response."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": tool.get(**json.loads(item.arguments)),
        }
        for item in answer.output
        if item.type == "function_call"
    ]


def assert_warm(first: Response, second: Response) -> None:
    """All of the first turn but its last token, which was sampled and never prefilled, was reused."""
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.input_tokens + second.usage.output_tokens
    assert first.usage.total_tokens - 1 <= second.usage.input_tokens_details.cached_tokens < second.usage.input_tokens


def test_a_streamed_tool_loop_that_names_the_previous_response(client: openai.OpenAI) -> None:
    tool = Weather()
    with client.responses.stream(model=MODEL, input=ASKED, tools=[FLAT]) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        first = stream.get_final_response()
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", "".join(deltas))
    with client.responses.stream(
        model=MODEL, input=results(first, tool), previous_response_id=first.id, tools=[FLAT]
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        second = stream.get_final_response()
    assert tool.asked == [PLACE]
    assert text == second.output_text == ANSWER
    assert (second.status, second.previous_response_id) == ("completed", first.id)
    assert second.id != first.id
    assert_warm(first, second)


def test_a_tool_loop_that_stores_nothing(client: openai.OpenAI) -> None:
    tool = Weather()
    said: list[Any] = [{"role": "user", "content": ASKED_OF_ALL}]
    first = client.responses.create(model=MODEL, input=said, tools=[FLAT], store=False)
    said += [item.to_dict() for item in first.output] + results(first, tool)
    second = client.responses.create(model=MODEL, input=said, tools=[FLAT], store=False)
    assert tool.asked == PLACES
    assert "東京" in second.output_text
    assert_warm(first, second)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)


def test_parse(client: openai.OpenAI) -> None:
    assert client.responses.parse(model=MODEL, input=EMITTED, text_format=Answer).output_parsed == PARSED
    with client.responses.stream(model=MODEL, input=EMITTED, text_format=Answer) as stream:
        assert stream.get_final_response().output_parsed == PARSED
    parsed = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": EMITTED}], response_format=Answer
    )
    assert parsed.choices[0].message.parsed == PARSED


def test_a_stored_response_is_retrieved_listed_and_deleted(client: openai.OpenAI) -> None:
    made = client.responses.create(model=MODEL, input="hello", metadata={"who": "me"})
    again = client.responses.retrieve(made.id)
    assert (again.output, again.usage, again.metadata) == (made.output, made.usage, {"who": "me"})
    (item,) = client.responses.input_items.list(made.id).data
    assert item.type == "message"
    assert item.content[0].type == "input_text"
    assert item.content[0].text == "hello"
    counted = client.responses.input_tokens.count(model=MODEL, input="hello")
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_background_response_is_waited_for_and_streamed_again(client: openai.OpenAI) -> None:
    queued = client.responses.create(model=MODEL, input="SLOW:5 EMIT:" + "word " * 20, background=True)
    assert queued.status == "queued"
    with client.responses.retrieve(queued.id, stream=True, starting_after=1) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(2, 2 + len(events)))
    assert events[-1].type == "response.completed"
    done = client.responses.retrieve(queued.id)
    assert (done.status, done.output_text) == ("completed", "word " * 20)
    assert events[-1].response.output == done.output


def test_a_background_response_is_cancelled(client: openai.OpenAI) -> None:
    queued = client.responses.create(model=MODEL, input="SLOW:1000 EMIT:" + "x" * 300, background=True)
    deadline = time.monotonic() + 60
    while client.responses.retrieve(queued.id).status == "queued":
        assert time.monotonic() < deadline
    assert client.responses.cancel(queued.id).status == "cancelled"
    assert client.responses.retrieve(queued.id).status == "cancelled"


def finished(connection: Any) -> Response:
    for event in connection:
        assert event.type != "error", event
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response  # type: ignore[no-any-return]
    raise AssertionError("the connection ended before the response")


def test_a_tool_loop_on_one_websocket(client: openai.OpenAI) -> None:
    tool = Weather()
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input=ASKED, tools=[FLAT], store=False)
        first = finished(connection)
        connection.response.create(
            model=MODEL, input=results(first, tool), previous_response_id=first.id, tools=[FLAT], store=False
        )
        second = finished(connection)
    assert tool.asked == [PLACE]
    assert (second.status, second.previous_response_id) == ("completed", first.id)
    assert second.output_text == ANSWER
    assert_warm(first, second)


def test_a_mistake_on_a_websocket_is_told_and_the_connection_goes_on(client: openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="x", previous_response_id="resp_unknown")
        told: Any = connection.recv()
        assert (told.type, told.error.code) == ("error", "previous_response_not_found")
        connection.response.steer(input="x", previous_response_id="resp_unknown")
        told = connection.recv()
        assert (told.type, told.status) == ("error", 400)
        connection.response.create(model=MODEL, input="hello")
        assert finished(connection).output_text == "echo: hello"


def test_a_chat_with_a_tool(client: openai.OpenAI) -> None:
    tool = Weather()
    said: list[Any] = [{"role": "user", "content": ASKED_OF_ALL}]
    first = client.chat.completions.create(model=MODEL, messages=said, tools=[NESTED])
    reply = first.choices[0]
    assert reply.finish_reason == "tool_calls"
    calls = reply.message.tool_calls or []
    said.append(reply.message.to_dict())
    for call in calls:
        assert call.type == "function"
        result = tool.get(**json.loads(call.function.arguments))
        said.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert tool.asked == PLACES
    with client.chat.completions.stream(
        model=MODEL, messages=said, tools=[NESTED], stream_options={"include_usage": True}
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        second = stream.get_final_completion()
    assert text == second.choices[0].message.content
    assert text.endswith("sun over 東京")
    assert second.choices[0].finish_reason == "stop"
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert first.usage.total_tokens - 1 <= cached < second.usage.prompt_tokens


async def test_the_asynchronous_client(openai_url: str) -> None:
    async with openai.AsyncOpenAI(base_url=openai_url, api_key="none", max_retries=0) as client:
        async with client.responses.stream(model=MODEL, input="hello") as stream:
            text = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        assert "".join(text) == "echo: hello"
        async with client.responses.connect() as connection:
            await connection.response.create(model=MODEL, input="over the socket")
            async for event in connection:
                if event.type == "response.completed":
                    assert event.response.output_text == "echo: over the socket"
                    break
            else:
                raise AssertionError("no response came")
        assert {model.id async for model in client.models.list()} == {MODEL}
