"""langchain-openai and langchain-anthropic: tools, streams, typed outputs, and a whole agent of langchain."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from weather import ANSWER, ASKED, ASKED_OF_ALL, MODEL, PLACE, PLACES, Weather

ENDED = {
    "responses": ("status", "completed", "completed"),
    "chat": ("finish_reason", "tool_calls", "stop"),
    "messages": ("stop_reason", "tool_use", "end_turn"),
}


class Answer(BaseModel):
    why: str
    answer: int


@pytest.fixture(params=ENDED)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(dialect: str, server_url: str) -> BaseChatModel:
    if dialect == "messages":
        return ChatAnthropic(model=MODEL, base_url=server_url, api_key="none", max_tokens=500, max_retries=0)
    return openai_model(server_url, use_responses_api=dialect == "responses")


def openai_model(server_url: str, **settings: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=f"{server_url}/v1", api_key="none", max_retries=0, stream_usage=True, **settings
    )


def tool_of(weather: Weather) -> BaseTool:
    @tool
    def get_weather(location: str) -> str:
        """The weather somewhere."""
        return weather.get(location)

    return get_weather


def assert_warm(first: AIMessage, second: AIMessage) -> None:
    """All of the first turn but its last token, which was sampled and never prefilled, was reused."""
    assert first.usage_metadata is not None
    assert second.usage_metadata is not None
    cached = second.usage_metadata["input_token_details"]["cache_read"]
    assert first.usage_metadata["total_tokens"] - 1 <= cached < second.usage_metadata["input_tokens"]


def streamed(model: Any, said: list[Any]) -> AIMessage:
    pieces = list(model.stream(said))
    assert len(pieces) > 2
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert isinstance(whole, AIMessageChunk)
    return whole


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop(model: BaseChatModel, dialect: str, stream: bool) -> None:
    weather = Weather()
    get_weather = tool_of(weather)
    bound = model.bind_tools([get_weather])
    ask = (lambda said: streamed(bound, said)) if stream else bound.invoke
    said: list[Any] = [HumanMessage(ASKED_OF_ALL)]
    first = ask(said)
    said.append(first)
    for call in first.tool_calls:
        result = get_weather.invoke(call)
        assert isinstance(result, ToolMessage)
        said.append(result)
    assert weather.asked == PLACES
    second = ask(said)
    assert "sun over 東京" in second.text
    assert (second.tool_calls, second.id != first.id) == ([], True)
    name, called, stopped = ENDED[dialect]
    assert [answer.response_metadata[name] for answer in (first, second)] == [called, stopped]
    assert_warm(first, second)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent(model: BaseChatModel, stream: bool) -> None:
    weather = Weather()
    agent = create_agent(model, [tool_of(weather)], system_prompt="Be brief.")
    said: Any = {"messages": [{"role": "user", "content": ASKED}]}
    if stream:
        told = ""
        async for piece, _ in agent.astream(said, stream_mode="messages"):
            if isinstance(piece, AIMessageChunk):
                told += piece.text
        assert told == ANSWER
    else:
        _, first, _, second = (await agent.ainvoke(said))["messages"]
        assert second.text == ANSWER
        assert_warm(first, second)
    assert weather.asked == [PLACE]


def test_a_tool_that_must_be_called(model: BaseChatModel) -> None:
    bound = model.bind_tools([tool_of(Weather())], tool_choice="get_weather")
    (call,) = bound.invoke(ASKED).tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"location": PLACE})
    assert call["id"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_typed_output(model: BaseChatModel, method: str) -> None:
    asked = (
        'EMIT:{"why": "so", "answer": 42}' if method == "json_schema" else 'USE_TOOL:Answer {"why": "so", "answer": 42}'
    )
    assert model.with_structured_output(Answer, method=method).invoke(asked) == Answer(why="so", answer=42)


def test_a_dialogue_that_names_the_previous_response(server_url: str) -> None:
    weather = Weather()
    get_weather = tool_of(weather)
    bound = openai_model(server_url, use_responses_api=True, use_previous_response_id=True).bind_tools([get_weather])
    said: list[Any] = [HumanMessage(ASKED)]
    first = bound.invoke(said)
    said += [first, *(get_weather.invoke(call) for call in first.tool_calls)]
    second = bound.invoke(said)
    assert second.text == ANSWER
    assert_warm(first, second)


@pytest.mark.parametrize("name", ["responses", "messages"])
def test_reasoning_is_apart_and_replayed(server_url: str, name: str) -> None:
    if name == "messages":
        model: BaseChatModel = ChatAnthropic(
            model=MODEL,
            base_url=server_url,
            api_key="none",
            max_tokens=2048,
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
    else:
        model = openai_model(server_url, use_responses_api=True, reasoning={"effort": "low", "summary": "auto"})
    said: list[Any] = [HumanMessage("THINK:let me see\nEMIT:done")]
    first = model.invoke(said)
    (thought,) = (block["reasoning"] for block in first.content_blocks if block["type"] == "reasoning")
    assert (thought.strip(), first.text.strip()) == ("let me see", "done")
    second = model.invoke([*said, first, HumanMessage("more")])
    assert second.text == "echo: more"
    assert_warm(first, second)
