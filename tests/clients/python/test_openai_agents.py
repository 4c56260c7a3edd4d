"""openai-agents: whole runs of an agent with a function tool, over Responses and over Chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Literal

import openai
import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    SQLiteSession,
    Tool,
    function_tool,
)
from pydantic import BaseModel

from weather import ANSWER, ASKED, ASKED_OF_ALL, MODEL, PLACE, PLACES, Weather

UNTRACED = RunConfig(tracing_disabled=True)


class Answer(BaseModel):
    why: str
    answer: int


@pytest.fixture
async def client(openai_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=openai_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def responses(client: openai.AsyncOpenAI) -> Model:
    return OpenAIResponsesModel(model=MODEL, openai_client=client)


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIResponsesWSModel, OpenAIChatCompletionsModel])
async def model(request: pytest.FixtureRequest, client: openai.AsyncOpenAI) -> AsyncIterator[Model]:
    model = request.param(model=MODEL, openai_client=client)
    yield model
    await model.close()


def tool_of(weather: Weather) -> Tool:
    @function_tool
    def get_weather(location: str) -> str:
        """The weather somewhere."""
        return weather.get(location)

    return get_weather


def assert_warm(result: RunResult | RunResultStreaming) -> None:
    """Each request reused all of the one before, its reply included but for the last token of it."""
    for first, second in pairwise(result.raw_responses):
        held = first.usage.total_tokens - 1
        assert held <= second.usage.input_tokens_details.cached_tokens < second.usage.input_tokens


@pytest.mark.parametrize(("asked", "places"), [(ASKED, [PLACE]), (ASKED_OF_ALL, PLACES)])
async def test_a_run_with_a_tool(model: Model, asked: str, places: list[str]) -> None:
    weather = Weather()
    agent = Agent(name="Forecaster", instructions="Be brief.", model=model, tools=[tool_of(weather)])
    result = await Runner.run(agent, asked, run_config=UNTRACED)
    assert sorted(weather.asked) == sorted(places)
    assert result.final_output.startswith("tool said: ")
    assert result.final_output.endswith(f"sun over {places[-1]}")
    assert len(result.raw_responses) == 2
    assert_warm(result)


async def test_a_streamed_run(model: Model) -> None:
    weather = Weather()
    # Over Chat it does not ask other servers than the vendor's for usage.
    settings = ModelSettings(include_usage=True)
    agent = Agent(name="Forecaster", model=model, model_settings=settings, tools=[tool_of(weather)])
    result = Runner.run_streamed(agent, ASKED, run_config=UNTRACED)
    told, items = "", []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            told += event.data.delta
        elif event.type == "run_item_stream_event":
            items.append(event.item.type)
    assert items == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert weather.asked == [PLACE]
    assert told == result.final_output == ANSWER
    assert_warm(result)


async def test_a_tool_that_asks_for_another_tool(model: Model) -> None:
    weather = Weather()

    @function_tool
    def where_am_i() -> str:
        return f"Then {ASKED}"

    agent = Agent(name="Forecaster", model=model, tools=[where_am_i, tool_of(weather)])
    result = await Runner.run(agent, "USE_TOOL:where_am_i {}", run_config=UNTRACED)
    assert weather.asked == [PLACE]
    assert result.final_output == ANSWER
    assert len(result.raw_responses) == 3
    assert_warm(result)


async def test_a_typed_output(model: Model) -> None:
    agent = Agent(name="Thinker", model=model, output_type=Answer)
    result = await Runner.run(agent, 'EMIT:{"why": "so", "answer": 42}', run_config=UNTRACED)
    assert result.final_output == Answer(why="so", answer=42)


async def test_a_handoff(model: Model) -> None:
    weather = Weather()
    forecaster = Agent(name="forecaster", model=model, tools=[tool_of(weather)])
    desk = Agent(name="desk", model=model, handoffs=[forecaster])
    first = await Runner.run(desk, "USE_TOOL:transfer_to_forecaster {}", run_config=UNTRACED)
    assert first.last_agent is forecaster
    said = [*first.to_input_list(), {"role": "user", "content": ASKED}]
    second = await Runner.run(first.last_agent, said, run_config=UNTRACED)
    assert second.final_output == ANSWER


async def test_a_dialogue_kept_by_the_client(model: Model) -> None:
    session = SQLiteSession("dialogue")
    agent = Agent(name="Echo", model=model)
    first = await Runner.run(agent, "hello there", session=session, run_config=UNTRACED)
    second = await Runner.run(agent, "and more", session=session, run_config=UNTRACED)
    assert (first.final_output, second.final_output) == ("echo: hello there", "echo: and more")
    before, after = (result.raw_responses[0].usage for result in (first, second))
    assert after.input_tokens_details.cached_tokens >= before.total_tokens - 1


async def test_a_dialogue_kept_by_the_server(responses: Model, client: openai.AsyncOpenAI) -> None:
    session = OpenAIConversationsSession(openai_client=client)
    weather = Weather()
    agent = Agent(name="Forecaster", model=responses, tools=[tool_of(weather)])
    first = await Runner.run(agent, ASKED, session=session, run_config=UNTRACED)
    second = await Runner.run(agent, "and more", session=session, run_config=UNTRACED)
    assert (first.final_output, second.final_output) == (ANSWER, "echo: and more")
    kinds = [item.get("type", "message") for item in await session.get_items()]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message", "message"]
    before, after = first.raw_responses[-1].usage, second.raw_responses[0].usage
    assert after.input_tokens_details.cached_tokens >= before.total_tokens - 1
    await session.clear_session()


async def test_a_dialogue_by_the_id_of_the_last_response(responses: Model) -> None:
    weather = Weather()
    agent = Agent(name="Forecaster", model=responses, tools=[tool_of(weather)])
    first = await Runner.run(agent, ASKED, auto_previous_response_id=True, run_config=UNTRACED)
    assert first.final_output == ANSWER
    assert_warm(first)
    assert len({response.response_id for response in first.raw_responses}) == 2
    second = await Runner.run(agent, "more", previous_response_id=first.last_response_id, run_config=UNTRACED)
    assert second.final_output == "echo: more"


@pytest.mark.parametrize("mode", ["input", "previous_response_id"])
async def test_a_dialogue_that_is_compacted(
    responses: Model,
    client: openai.AsyncOpenAI,
    mode: Literal["input", "previous_response_id"],
) -> None:
    kept = SQLiteSession("compacted")
    session = OpenAIResponsesCompactionSession("compacted", kept, client=client, model="gpt-4.1", compaction_mode=mode)
    agent = Agent(name="Echo", model=responses)
    for said in ("hello", "and more"):
        await Runner.run(agent, said, session=session, run_config=UNTRACED)
    await session.run_compaction({"force": True})
    kinds = [item.get("type", "message") for item in await kept.get_items()]
    assert kinds == ["message", "message", "compaction"]
    last = await Runner.run(agent, "last", session=session, run_config=UNTRACED)
    assert last.final_output == "echo: last"


async def test_runs_side_by_side_do_not_mix(model: Model) -> None:
    weather = Weather()
    agent = Agent(name="Forecaster", model=model, tools=[tool_of(weather)])
    places = [f"place {n}" for n in range(6)]
    asked = [f'USE_TOOL:get_weather {{"location": "{place}"}}' for place in places]
    results = await asyncio.gather(*(Runner.run(agent, one, run_config=UNTRACED) for one in asked))
    assert [result.final_output for result in results] == [f"tool said: sun over {place}" for place in places]
