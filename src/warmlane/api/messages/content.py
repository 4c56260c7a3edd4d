"""The messages of a Messages request as the dialogue they tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from warmlane.api.fields import Lenient, refuse
from warmlane.api.messages.blocks import Blocks, Citations, Source, WireBlock
from warmlane.api.messages.thoughts import Thoughts
from warmlane.api.signing import Verdict
from warmlane.api.tools import json_text
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult

_ROLES = {role.value: role for role in (Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.DEVELOPER)}

# A line a client puts in front of its system prompt for billing; its value changes, and with it every token after it.
_CLIENT_LINE = re.compile(r"\s*x-anthropic-[a-z0-9-]+:[^\n]*(?:\n+|\Z)")

_LEFT_OUT = {
    "image": "[An image was left out: this model reads text only.]",
    "document": "[A document was left out: this model reads plain text only.]",
}


class WireMessage(Lenient):
    role: Annotated[str, Field(json_schema_extra={"enum": list(_ROLES)})]
    content: Blocks


class DialogueReader:
    """Reads one request. What is left out of the prompt, or taken on trust, is added to `warnings`; volatile client
    lines are left out if `canonicalize` says so, and added to `changes`. `ends` says how long the dialogue was
    after the system prompt, and after each message. All methods raise `InvalidRequest`."""

    def __init__(self, thoughts: Thoughts, *, canonicalize: bool) -> None:
        self._thoughts = thoughts
        self._canonicalize = canonicalize
        self.warnings: list[str] = []
        self.changes: list[str] = []
        self.ends: list[int] = []

    def read(self, system: Sequence[WireBlock] | None, messages: Sequence[WireMessage]) -> tuple[Message, ...]:
        """The whole dialogue, the system prompt first; system messages inside it keep their place. A last message of
        the assistant's without content says nothing."""
        dialogue: list[Message] = []
        if system and (parts := self._system(system, "system")):
            dialogue.append(Message(Role.SYSTEM, parts))
        self.ends = [len(dialogue)]
        for index, message in enumerate(messages):
            dialogue += self._message(message, f"messages[{index}]")
            self.ends.append(len(dialogue))
        if messages[-1].role == Role.ASSISTANT and not dialogue[-1].parts:
            dialogue.pop()
            self.ends[-1] = len(dialogue)
        return tuple(dialogue)

    def _message(self, message: WireMessage, path: str) -> list[Message]:
        role, where = _ROLES.get(message.role), f"{path}.content"
        match role:
            case Role.USER:
                return self._user(message.content, where)
            case Role.ASSISTANT:
                return [Message(role, tuple(self._said(message.content, where)))]
            case Role.SYSTEM | Role.DEVELOPER:
                return [Message(role, self._system(message.content, where))]
            case _:
                raise refuse(f"{path}.role", f"must be one of {', '.join(_ROLES)}.")

    def _system(self, blocks: Sequence[WireBlock], path: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        for index, block in enumerate(blocks):
            where = f"{path}[{index}]"
            text = _text(block, where)
            if self._canonicalize and (kept := without_client_lines(text)) != text:
                self.changes.append(f"{where}: x-anthropic line removed")
                text = kept
            if text:
                parts.append(Text(text))
        return tuple(parts)

    def _user(self, blocks: Sequence[WireBlock], path: str) -> list[Message]:
        """Tool results come first, whatever was written around them: they answer the reply before."""
        results: list[Message] = []
        said: list[Part] = []
        for index, block in enumerate(blocks):
            where = f"{path}[{index}]"
            if block.type == "tool_result":
                results.append(Message(Role.TOOL, (self._result(block, where),)))
                continue
            if _cites(block):
                self.warnings.append(f"{where}.citations")
            if text := _inlined(block, where):
                said.append(Text(text))
        return [*results, Message(Role.USER, tuple(said))] if said or not results else results

    def _said(self, blocks: Sequence[WireBlock], path: str) -> list[Part]:
        parts: list[Part] = []
        for index, block in enumerate(blocks):
            where = f"{path}[{index}]"
            match block.type:
                case "thinking":
                    if thought := self._thought(block, where):
                        parts.append(Reasoning(thought))
                case "redacted_thinking":
                    self.warnings.append(where)
                case "tool_use":
                    parts.append(_call(block, where))
                case _:
                    if text := _text(block, where):
                        parts.append(Text(text))
        return parts

    def _thought(self, block: WireBlock, path: str) -> str:
        thought, verdict = self._thoughts.read(block.thinking or "", block.signature)
        if verdict is not Verdict.GENUINE and (thought or block.signature):
            self.warnings.append(f"{path}.signature: {verdict.value}")
        return thought

    def _result(self, block: WireBlock, path: str) -> ToolResult:
        if not block.tool_use_id:
            raise refuse(f"{path}.tool_use_id", "is required: the id of the tool_use block this one answers.")
        texts = [self._shown(inner, f"{path}.content[{index}]") for index, inner in enumerate(block.content or ())]
        return ToolResult(block.tool_use_id, "\n".join(filter(None, texts)), bool(block.is_error))

    def _shown(self, block: WireBlock, path: str) -> str:
        """A block of a tool's result as text. What a model cannot read is named in its place: the tool chose to send
        it, and refusing it would end the conversation for good."""
        if block.type == "tool_reference":
            if not block.tool_name:
                raise refuse(f"{path}.tool_name", "is required.")
            return block.tool_name
        if block.type == "document" and (text := _document_text(block, path)) is not None:
            return text
        if block.type in ("image", "document"):
            self.warnings.append(f"{path}: {block.type} left out")
            return _LEFT_OUT[block.type]
        return _inlined(block, path)


def without_client_lines(text: str) -> str:
    """System text without the lines a client put in front of it for the vendor's billing."""
    while found := _CLIENT_LINE.match(text):
        text = text[found.end() :]
    return text


def _call(block: WireBlock, path: str) -> ToolCall:
    if not block.id:
        raise refuse(f"{path}.id", "is required.")
    if not block.name:
        raise refuse(f"{path}.name", "is required.")
    if block.input is None:
        raise refuse(f"{path}.input", "is required: an object, empty for a call without arguments.")
    return ToolCall(block.id, block.name, json_text(block.input, f"{path}.input"))


def _cites(block: WireBlock) -> bool:
    """Whether the reply was to quote this block; a text's own citations are a list of what it quoted."""
    return isinstance(block.citations, Citations) and bool(block.citations.enabled)


def _inlined(block: WireBlock, path: str) -> str:
    """A block that can be read as text."""
    if block.type == "search_result":
        return _search_result(block, path)
    if block.type == "document":
        text = _document_text(block, path)
        if text is None:
            raise refuse(f"{path}.source", "must be of type 'text' or 'content'; this model reads plain text only.")
        return text
    return _text(block, path)


def _search_result(block: WireBlock, path: str) -> str:
    texts = [_text(inner, f"{path}.content[{index}]") for index, inner in enumerate(block.content or ())]
    source = block.source if isinstance(block.source, str) else None
    return "\n".join(filter(None, (block.title, source, *texts)))


def _document_text(block: WireBlock, path: str) -> str | None:
    """The text of a document under its title and context; None for one that is not text."""
    source = block.source
    if not isinstance(source, Source):
        raise refuse(f"{path}.source", "is required: an object.")
    if source.type == "text":
        if source.data is None:
            raise refuse(f"{path}.source.data", "is required.")
        texts = [source.data]
    elif source.type == "content" and all(inner.type == "text" for inner in source.content or ()):
        texts = [_text(inner, f"{path}.source.content[{i}]") for i, inner in enumerate(source.content or ())]
    else:
        return None
    return "\n".join(filter(None, (block.title, block.context, *texts)))


def _text(block: WireBlock, path: str) -> str:
    if block.type != "text":
        raise refuse(f"{path}.type", f"content of type {block.type[:64]!r} is not supported by this server.")
    if block.text is None:
        raise refuse(f"{path}.text", "is required.")
    return block.text
