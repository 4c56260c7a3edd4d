"""POST /v1/messages and /v1/messages/count_tokens: the wire request, and what of it is not a message or a tool."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from warmlane.api.beginnings import check_beginning
from warmlane.api.fields import (
    CacheSalt,
    Lenient,
    MaxTokens,
    ModelName,
    StopList,
    Temperature,
    TopK,
    TopP,
    refuse,
    refuse_foreign,
    refuse_given,
)
from warmlane.api.messages.blocks import Blocks, CacheControl
from warmlane.api.messages.content import WireMessage
from warmlane.api.messages.tools import ChoiceSpec, OutputFormat, ToolSpec, read_format
from warmlane.conversation.messages import Message
from warmlane.conversation.tools import TextFormat, Thinking
from warmlane.conversation.turn import Sampling
from warmlane.errors import InvalidRequest, ThreadsUnsupported


class ThinkingOptions(Lenient):
    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: MaxTokens | None = None
    display: str | None = None


class OutputConfig(Lenient):
    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class DiagnosticsOptions(Lenient):
    previous_message_id: Annotated[str, Field(max_length=256)] | None = None


class MessagesRequest(Lenient):
    """The body, as both endpoints take it. `object` fields are not supported; their values are never read."""

    model: ModelName
    messages: Annotated[list[WireMessage], Field(min_length=1)]
    system: Blocks | None = None
    stream: bool | None = None
    max_tokens: MaxTokens | None = None
    stop_sequences: StopList | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    thinking: ThinkingOptions | None = None
    metadata: dict[str, object] | None = None
    cache_control: CacheControl | None = None
    cache_salt: CacheSalt | None = None
    service_tier: str | None = None
    tools: list[ToolSpec] | None = None
    tool_choice: ChoiceSpec | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    diagnostics: DiagnosticsOptions | None = None
    mcp_servers: list[object] | None = None
    thread: object = None
    compaction: object = None


class CreateMessageRequest(MessagesRequest):
    """The body of a turn."""

    max_tokens: MaxTokens


def check_supported(request: MessagesRequest) -> None:
    """Refuse what would change the answer and is not done here. Raises `InvalidRequest`."""
    refuse_foreign(request)
    if request.thread is not None:
        raise ThreadsUnsupported
    refuse_given([("mcp_servers", request.mcp_servers), ("compaction", request.compaction)])


def check_continued(request: MessagesRequest, last: Message) -> None:
    """Refuse what no reply can go on from, the assistant's message that the dialogue ends with. Raises
    `InvalidRequest`."""
    check_beginning(last, f"messages[{len(request.messages) - 1}]")
    if request.thinking is not None and request.thinking.type != "disabled":
        raise refuse("thinking", "must be disabled, or left out, where a reply is continued: it does not think first.")
    if last.text != last.text.rstrip():
        raise InvalidRequest("messages: final assistant content cannot end with trailing whitespace", param="messages")


def warnings_of(request: MessagesRequest) -> list[str]:
    """The fields that are accepted and have no effect."""
    ignored = list(request.unknown)
    if request.thinking:
        ignored += [f"thinking.{name}" for name in request.thinking.unknown]
        if request.thinking.type == "disabled" and request.thinking.budget_tokens is not None:
            ignored.append("thinking.budget_tokens")
    if request.diagnostics:
        ignored += [f"diagnostics.{name}" for name in request.diagnostics.unknown]
    if request.thinking and request.thinking.display not in (None, "summarized", "omitted"):
        ignored.append("thinking.display")
    if request.output_config:
        ignored += [f"output_config.{name}" for name in request.output_config.unknown]
    return ignored


def sampling_of(request: MessagesRequest) -> Sampling:
    return Sampling(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)


def thinking_of(request: MessagesRequest) -> Thinking:
    """A request that does not ask for thinking gets none, as from the vendor: its client may read the first block as
    the answer. Where the model may decide, its template does."""
    effort = request.output_config.effort if request.output_config else None
    asked = request.thinking
    if asked is None or asked.type == "disabled":
        return Thinking(enabled=False, effort=effort)
    if asked.type == "enabled":
        return Thinking(enabled=True, effort=effort, budget_tokens=asked.budget_tokens)
    return Thinking(effort=effort, budget_tokens=asked.budget_tokens)


def text_format_of(request: MessagesRequest) -> TextFormat | None:
    """The format of `output_config`, else the one of its older name. Raises `InvalidRequest`."""
    if request.output_config and request.output_config.format:
        return read_format(request.output_config.format, "output_config.format")
    return read_format(request.output_format, "output_format")
