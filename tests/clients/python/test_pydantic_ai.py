"""pydantic-ai: agents with tools and typed outputs, over Responses, Chat and Messages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelResponse, NativeOutput, ToolOutput
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIChatModelSettings,
    OpenAICompaction,
    OpenAIResponsesModel,
    OpenAIResponsesModelSettings,
)
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from weather import ANSWER, ASKED, ASKED_OF_ALL, MODEL, PLACE, PLACES, Weather


class Answer(BaseModel):
    why: str
    answer: int


# It would go over HTTP where it cannot use a WebSocket.
pytestmark = pytest.mark.filterwarnings("error:.*cannot open a socket")

# Names it knows: by them it decides what a model can do. The server takes them for its own model.
GPT = "gpt-5"
CLAUDE = "claude-sonnet-4-5"

MODELS = ["responses", "websocket", "chat", "messages"]
ENDS = {"chat": "tool_call", "messages": "tool_call", "responses": "stop", "websocket": "stop"}
THINKING: dict[str, ModelSettings] = {
    "responses": OpenAIResponsesModelSettings(openai_reasoning_effort="low", openai_reasoning_summary="auto"),
    "chat": OpenAIChatModelSettings(openai_reasoning_effort="low"),
    "messages": AnthropicModelSettings(anthropic_thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048),
}


def model_of(kind: str, server_url: str, *, gpt: str = MODEL) -> Model:
    if kind == "messages":
        return AnthropicModel(CLAUDE, provider=AnthropicProvider(base_url=server_url, api_key="none"))
    provider = OpenAIProvider(base_url=f"{server_url}/v1", api_key="none")
    if kind == "chat":
        return OpenAIChatModel(gpt, provider=provider)
    transport = "websocket" if kind == "websocket" else "http"
    return OpenAIResponsesModel(gpt, provider=provider, settings={"openai_transport": transport})


@pytest.fixture(params=MODELS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(kind: str, server_url: str) -> Model:
    return model_of(kind, server_url)


def agent_of(model: Model, weather: Weather) -> Agent[None, str]:
    agent = Agent(model, instructions="Be brief.")

    @agent.tool_plain
    def get_weather(location: str) -> str:
        """The weather somewhere."""
        return weather.get(location)

    return agent


def replies(messages: list[object]) -> list[ModelResponse]:
    return [message for message in messages if isinstance(message, ModelResponse)]


def assert_warm(answers: list[ModelResponse]) -> None:
    """Each request reused all of the one before, its reply included but for the last token of it."""
    assert len({answer.provider_response_id for answer in answers}) == len(answers)
    for first, second in pairwise(answers):
        held = first.usage.input_tokens + first.usage.output_tokens - 1
        assert held <= second.usage.cache_read_tokens < second.usage.input_tokens


@pytest.mark.parametrize(("asked", "places"), [(ASKED, [PLACE]), (ASKED_OF_ALL, PLACES)])
async def test_a_run_with_a_tool(model: Model, kind: str, asked: str, places: list[str]) -> None:
    weather = Weather()
    result = await agent_of(model, weather).run(asked)
    assert sorted(weather.asked) == sorted(places)
    assert result.output.startswith("tool said: ")
    assert result.output.endswith(f"sun over {places[-1]}")
    answers = replies(result.all_messages())
    assert [answer.finish_reason for answer in answers] == [ENDS[kind], "stop"]
    assert_warm(answers)


async def test_a_streamed_run(model: Model) -> None:
    weather = Weather()
    async with agent_of(model, weather).run_stream(ASKED) as result:
        told = "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])
    assert weather.asked == [PLACE]
    assert told == ANSWER
    assert_warm(replies(result.all_messages()))


async def test_a_dialogue(model: Model) -> None:
    agent = agent_of(model, Weather())
    first = await agent.run(ASKED)
    second = await agent.run("and more", message_history=first.all_messages())
    assert second.output == "echo: and more"
    answers = replies(second.all_messages())
    assert len(answers) == 3
    assert_warm(answers)


async def test_an_output_that_is_a_tool(model: Model) -> None:
    agent = Agent(model, output_type=ToolOutput(Answer, name="answer"))
    result = await agent.run('USE_TOOL:answer {"why": "so", "answer": 42}')
    assert result.output == Answer(why="so", answer=42)


async def test_an_output_that_is_a_schema(model: Model) -> None:
    agent = Agent(model, output_type=NativeOutput(Answer))
    result = await agent.run('EMIT:{"why": "so", "answer": 42}')
    assert result.output == Answer(why="so", answer=42)


@pytest.mark.parametrize("kind", list(THINKING))
async def test_thinking_is_apart_and_replayed(server_url: str, kind: str) -> None:
    agent = agent_of(model_of(kind, server_url, gpt=GPT), Weather())
    result = await agent.run(f"THINK:let me see\n{ASKED}", model_settings=THINKING[kind])
    assert result.output == ANSWER
    first, second = replies(result.all_messages())
    thoughts = [part.content.strip() for part in first.parts if part.part_kind == "thinking"]
    assert thoughts == ["let me see"]
    assert_warm([first, second])


async def test_a_dialogue_by_the_id_of_the_last_response(server_url: str) -> None:
    agent = agent_of(model_of("responses", server_url), Weather())
    chained = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    first = await agent.run(ASKED, model_settings=chained)
    second = await agent.run("and more", message_history=first.all_messages(), model_settings=chained)
    assert (first.output, second.output) == (ANSWER, "echo: and more")
    assert_warm(replies(second.all_messages()))


async def test_a_dialogue_that_is_compacted(server_url: str) -> None:
    compaction = OpenAICompaction(message_count_threshold=2)
    agent = Agent(model_of("responses", server_url), instructions="Be brief.", capabilities=[compaction])
    first = await agent.run("hello")
    second = await agent.run("and more", message_history=first.all_messages())
    assert second.output == "echo: and more"
    parts = [part.part_kind for message in second.all_messages() for part in message.parts]
    assert parts.count("compaction") == 1
