"""The messages of a Chat Completions request as the dialogue they tell."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BeforeValidator, Field

from warmlane.api.fields import Block, Content, Lenient, refuse, refuse_given, text_of
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult

_ROLES = {role.value: role for role in Role}


def _as_text(value: object) -> object:
    """Some clients send the arguments as the object they stand for."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


class CalledFunction(Lenient):
    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[str, BeforeValidator(_as_text)]


class WireCall(Lenient):
    id: Annotated[str, Field(min_length=1)]
    type: str = "function"
    function: CalledFunction | None = None


class WireMessage(Lenient):
    role: Annotated[str, Field(json_schema_extra={"enum": list(_ROLES)})]
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: object = None
    tool_calls: list[WireCall] | None = None
    tool_call_id: str | None = None
    function_call: object = None
    audio: object = None
    prefix: bool | None = None


def input_messages(messages: list[WireMessage]) -> tuple[Message, ...]:
    """Raises `InvalidRequest` naming what cannot be said to a model."""
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: WireMessage, path: str) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        if message.role == "function":
            raise refuse(f"{path}.role", "'function' is deprecated and not supported; use tools, and role 'tool'.")
        raise refuse(f"{path}.role", f"must be one of {', '.join(_ROLES)}.")
    refuse_given([(f"{path}.function_call", message.function_call), (f"{path}.audio", message.audio)])
    if message.tool_calls and role is not Role.ASSISTANT:
        raise refuse(f"{path}.tool_calls", "belongs to messages of role 'assistant'.")
    if role is Role.TOOL:
        return _tool_message(message, path)
    if role is Role.ASSISTANT:
        return Message(role, _said(message, path))
    if message.content is None:
        raise refuse(f"{path}.content", "is required.")
    return Message(role, _texts(message.content, path))


def _tool_message(message: WireMessage, path: str) -> Message:
    if not message.tool_call_id:
        raise refuse(f"{path}.tool_call_id", "is required: the id of the call this message answers.")
    if message.content is None:
        raise refuse(f"{path}.content", "is required.")
    text = "".join(part.text for part in _texts(message.content, path))
    return Message(Role.TOOL, (ToolResult(message.tool_call_id, text),))


def _said(message: WireMessage, path: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    reasoning = message.reasoning_content or message.reasoning
    if isinstance(reasoning, str) and reasoning:
        parts.append(Reasoning(reasoning))
    parts += _texts(message.content or [], path)
    if message.content is None and message.refusal:
        parts.append(Text(message.refusal))
    for index, call in enumerate(message.tool_calls or ()):
        where = f"{path}.tool_calls[{index}]"
        if call.type != "function":
            raise refuse(f"{where}.type", "must be 'function'; calls of other types are not supported by this server.")
        if call.function is None:
            raise refuse(f"{where}.function", "is required.")
        parts.append(ToolCall(call.id, call.function.name, call.function.arguments))
    return tuple(parts)


def _texts(blocks: list[Block], path: str) -> tuple[Text, ...]:
    texts = (text_of(block, f"{path}.content[{index}]") for index, block in enumerate(blocks))
    return tuple(Text(text) for text in texts if text)
