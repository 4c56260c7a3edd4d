"""POST /v1/messages and /v1/messages/count_tokens: the wire request as a `TurnRequest`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from warmlane.api.fields import (
    Block,
    CacheSalt,
    Content,
    Lenient,
    MaxTokens,
    StopList,
    Temperature,
    TopK,
    TopP,
    refuse,
    refuse_foreign,
    refuse_given,
)
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text
from warmlane.conversation.turn import Sampling

_ROLES = {role.value: role for role in (Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.DEVELOPER)}

# A line a client puts in front of its system prompt for billing; its value changes, and with it every token after it.
_CLIENT_LINE = re.compile(r"\s*x-anthropic-[a-z0-9-]+:[^\n]*(?:\n+|\Z)")


class WireMessage(Lenient):
    role: str
    content: Content


class ThinkingOptions(Lenient):
    type: Literal["enabled", "adaptive", "disabled", "between_tools"]


class OutputConfig(Lenient):
    format: Block | None = None
    effort: object = None


class ToolChoice(Lenient):
    type: str


class DiagnosticsOptions(Lenient):
    previous_message_id: Annotated[str, Field(max_length=256)] | None = None


class MessagesRequest(Lenient):
    """The body, as both endpoints take it. `object` fields are not supported, or not acted on."""

    model: str
    messages: Annotated[list[WireMessage], Field(min_length=1)]
    system: Content | None = None
    stream: bool | None = None
    max_tokens: MaxTokens | None = None
    stop_sequences: StopList | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    thinking: ThinkingOptions | None = None
    metadata: dict[str, object] | None = None
    cache_control: object = None
    cache_salt: CacheSalt | None = None
    service_tier: str | None = None
    tools: list[object] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    output_format: object = None
    diagnostics: DiagnosticsOptions | None = None
    mcp_servers: list[object] | None = None


def check_supported(request: MessagesRequest) -> None:
    """Refuse what would change the answer and is not done here. Raises `InvalidRequest`."""
    refuse_foreign(request)
    refuse_given(
        [
            ("tools", request.tools),
            ("mcp_servers", request.mcp_servers),
            ("output_format", request.output_format),
            ("output_config.format", request.output_config and request.output_config.format),
        ]
    )
    if request.tool_choice and request.tool_choice.type not in ("auto", "none"):
        raise refuse("tool_choice", "must be of type 'auto' or 'none', as no tools are given.")


def warnings_of(request: MessagesRequest) -> list[str]:
    """The top-level fields that are accepted and have no effect."""
    ignored = list(request.unknown)
    if request.thinking and request.thinking.type != "disabled":
        ignored.append("thinking")
    if request.output_config and request.output_config.effort is not None:
        ignored.append("output_config.effort")
    return ignored


def sampling_of(request: MessagesRequest) -> Sampling:
    return Sampling(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)


def input_messages(request: MessagesRequest, warnings: list[str]) -> tuple[Message, ...]:
    """The whole dialogue, the system prompt first; system messages inside it keep their place.

    What is left out of the prompt on purpose is added to `warnings`. A reply that is to be continued is refused: the
    model would begin another one behind it.
    """
    if request.messages[-1].role == Role.ASSISTANT:
        raise refuse(
            f"messages[{len(request.messages) - 1}].role",
            "the last message must not be the assistant's; continuing a reply is not supported by this server.",
        )
    messages = []
    if request.system:
        system = _system_parts(request.system, "system", warnings)
        if system:
            messages.append(Message(Role.SYSTEM, system))
    for index, message in enumerate(request.messages):
        messages.append(_message(message, f"messages[{index}]", warnings))
    return tuple(messages)


def without_client_lines(text: str) -> str:
    """System text without the lines a client put in front of it for the vendor's billing."""
    while found := _CLIENT_LINE.match(text):
        text = text[found.end() :]
    return text


def _message(message: WireMessage, path: str, warnings: list[str]) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise refuse(f"{path}.role", f"must be one of {', '.join(_ROLES)}.")
    where = f"{path}.content"
    if role in (Role.SYSTEM, Role.DEVELOPER):
        return Message(role, _system_parts(message.content, where, warnings))
    parts: list[Part] = []
    for index, block in enumerate(message.content):
        part = _part(block, role, f"{where}[{index}]", warnings)
        if part is not None:
            parts.append(part)
    return Message(role, tuple(parts))


def _system_parts(blocks: list[Block], path: str, warnings: list[str]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for index, block in enumerate(blocks):
        where = f"{path}[{index}]"
        text = _text(block, where)
        kept = without_client_lines(text)
        if kept != text:
            warnings.append(f"{where}: x-anthropic line removed")
        if kept:
            parts.append(Text(kept))
    return tuple(parts)


def _part(block: Block, role: Role, path: str, warnings: list[str]) -> Part | None:
    """One block of a user or assistant message; None for one that says nothing."""
    if role is Role.ASSISTANT and block.type == "thinking":
        return Reasoning(block.thinking) if block.thinking else None
    if role is Role.ASSISTANT and block.type == "redacted_thinking":
        warnings.append(path)
        return None
    text = _text(block, path)
    return Text(text) if text else None


def _text(block: Block, path: str) -> str:
    if block.type != "text":
        raise refuse(f"{path}.type", f"content of type {block.type[:64]!r} is not supported by this server.")
    if block.text is None:
        raise refuse(f"{path}.text", "is required.")
    return block.text
