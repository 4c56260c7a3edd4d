"""What was said: the dialect-neutral messages every API is translated to and from."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """Who speaks. `developer` is kept apart from `system` because some templates know both."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """What the model thought before it spoke."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A call the assistant made. `arguments` is the JSON text exactly as generated."""

    call_id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """The answer to one call, in a message of role `tool`."""

    call_id: str
    text: str
    is_error: bool = False


Part = Text | Reasoning | ToolCall | ToolResult


class Sampled(msgspec.Struct, frozen=True):
    """The tokens an assistant message was sampled as, so that a replay prefills the same ones.

    `text` is exactly what `token_ids` decode to, markup included, and a prefix of the raw reply (a reply cut inside
    a character or by a stop string has a tail without ids). Only valid for the tokenizer of that fingerprint.
    """

    token_ids: tuple[int, ...]
    text: str
    tokenizer: str


class Message(msgspec.Struct, frozen=True):
    """One turn of one speaker; parts in the order they were produced."""

    role: Role
    parts: tuple[Part, ...]
    sampled: Sampled | None = None

    @property
    def text(self) -> str:
        """The text parts (tool results included) joined; reasoning and calls are left out."""
        return "".join(p.text for p in self.parts if isinstance(p, Text | ToolResult))

    @property
    def reasoning(self) -> str:
        return "".join(p.text for p in self.parts if isinstance(p, Reasoning))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(p for p in self.parts if isinstance(p, ToolCall))
