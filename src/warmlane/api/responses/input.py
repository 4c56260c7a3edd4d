"""`input`: the items of a request as messages.

What one reply was made of comes back as several items (reasoning, message, calls) and is one message again, so that the
tokens it was sampled as are found. Items of types that say nothing to a model here are skipped, and named.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from warmlane.api.fields import Block, Content, Lenient, parse, path_of, refuse, text_of
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.sealed import SealedReasoning, SealedSummary, Seals
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Sampled, Text, ToolCall, ToolResult

SUMMARY_OPENING = "A summary of what was said before this message:\n\n"

_ROLES = {role.value: role for role in (Role.SYSTEM, Role.DEVELOPER, Role.USER, Role.ASSISTANT)}
_TEXT_TYPES = frozenset({"input_text", "output_text", "text"})
_TOLD = frozenset({"annotations", "logprobs", "id", "status"})
"""What a part may have from the response it was told in."""

_COMPACTIONS = frozenset({"compaction", "compaction_summary"})
COMPACTION_TRIGGER = "compaction_trigger"

CallId = Annotated[str, Field(min_length=1, max_length=256)]


class Typed(Lenient):
    """An item before its type is known; one without is a message. Ids, status and phase are not looked at."""

    type: str | None = None


class MessageItem(Lenient):
    role: str | None = None
    content: Content | None = None


class ReasoningItem(Lenient):
    content: Content | None = None
    summary: list[Block] | None = None
    encrypted_content: object = None


class CallItem(Lenient):
    call_id: CallId
    name: Annotated[str, Field(min_length=1)]
    arguments: str


class CustomCallItem(Lenient):
    call_id: CallId
    name: Annotated[str, Field(min_length=1)]
    input: str


class ResultItem(Lenient):
    call_id: CallId
    output: Content


class CompactionItem(Lenient):
    encrypted_content: object = None


@dataclass(frozen=True, slots=True)
class InputRead:
    """`ignored` are the paths of what has no effect; `compacts`: the client asks for a summary instead of an answer."""

    messages: tuple[Message, ...]
    ignored: tuple[str, ...] = ()
    compacts: bool = False


def read_input(items: Sequence[JsonObject], seals: Seals, *, given_in: str = "input") -> InputRead:
    """Raises `InvalidRequest` that names the item; `given_in` is the field that holds them."""
    reader = _Reader(seals)
    for index, item in enumerate(items):
        reader.take(item, (given_in, index))
    reader.end_reply()
    return InputRead(tuple(reader.messages), tuple(reader.ignored), reader.compacts)


@dataclass(slots=True)
class _Reader:
    """`parts` are those of the assistant's message that is open; `spoke`: its text was an item already."""

    seals: Seals
    messages: list[Message] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    compacts: bool = False
    parts: list[Part] = field(default_factory=list)
    spoke: bool = False
    sampled: Sampled | None = None

    def take(self, item: JsonObject, at: tuple[int | str, ...]) -> None:
        kind = parse(Typed, item, at=at).type or "message"
        match kind:
            case "message":
                self._message(parse(MessageItem, item, at=at), path_of(at))
            case "reasoning":
                self._reasoning(parse(ReasoningItem, item, at=at), path_of(at))
            case "function_call":
                call = parse(CallItem, item, at=at)
                self.parts.append(ToolCall(call.call_id, call.name, call.arguments))
            case "custom_tool_call":
                custom = parse(CustomCallItem, item, at=at)
                arguments = json.dumps({"input": custom.input}, ensure_ascii=False)
                self.parts.append(ToolCall(custom.call_id, custom.name, arguments))
            case "function_call_output" | "custom_tool_call_output":
                self._result(parse(ResultItem, item, at=at), path_of(at))
            case "item_reference":
                raise refuse(f"{path_of(at)}.id", "no item of this id is stored; send the item itself.")
            case _ if kind in _COMPACTIONS:
                self._compaction(parse(CompactionItem, item, at=at), path_of(at))
            case _ if kind == COMPACTION_TRIGGER:
                self.compacts = True
            case _:
                self.ignored.append(f"{path_of(at)} ({kind[:64]})")

    def end_reply(self) -> None:
        """The assistant's message that is open, if any, is whole."""
        if self.parts or self.spoke:
            self.messages.append(Message(Role.ASSISTANT, tuple(self.parts), self.sampled))
        self.parts, self.spoke, self.sampled = [], False, None

    def _message(self, item: MessageItem, path: str) -> None:
        role = _role(item, path)
        if role is not Role.ASSISTANT or self.spoke:
            self.end_reply()
        if item.content is None and role is not Role.ASSISTANT:
            raise refuse(f"{path}.content", "is required.")
        blocks: list[str] = []
        for n, block in enumerate(item.content or ()):
            where = f"{path}.content[{n}]"
            blocks.append(text_of(block, where, types=_TEXT_TYPES))
            self.ignored += [f"{where}.{name}" for name in block.unknown if name not in _TOLD]
        texts = [Text(text) for text in blocks if text]
        if role is Role.ASSISTANT:
            self.parts += texts
            self.spoke = True
        else:
            self.messages.append(Message(role, tuple(texts)))

    def _reasoning(self, item: ReasoningItem, path: str) -> None:
        """Our own sealed reasoning says what was thought; else the raw reasoning if the item carries it, else its
        summary."""
        if self.spoke or any(isinstance(part, ToolCall) for part in self.parts):
            self.end_reply()
        sealed = self.seals.open(item.encrypted_content)
        if isinstance(sealed, SealedReasoning):
            self.sampled = self.sampled or sealed.sampled
            texts: list[str | None] = [sealed.text]
        else:
            if item.encrypted_content is not None:
                self.ignored.append(f"{path}.encrypted_content")
            texts = [block.text for block in item.content or item.summary or ()]
        self.parts += [Reasoning(text) for text in texts if text]

    def _result(self, item: ResultItem, path: str) -> None:
        self.end_reply()
        texts: list[str] = []
        for n, block in enumerate(item.output):
            where = f"{path}.output[{n}]"
            if block.type in _TEXT_TYPES:
                texts.append(text_of(block, where, types=_TEXT_TYPES))
            else:
                self.ignored.append(f"{where} ({block.type[:64]})")
                texts.append(f"[{block.type[:64]} not shown]")
        self.messages.append(Message(Role.TOOL, (ToolResult(item.call_id, "\n".join(texts)),)))

    def _compaction(self, item: CompactionItem, path: str) -> None:
        self.end_reply()
        sealed = self.seals.open(item.encrypted_content)
        if not isinstance(sealed, SealedSummary):
            raise refuse(f"{path}.encrypted_content", "was not made by this server for this key, or was changed.")
        self.messages.append(Message(Role.USER, (Text(SUMMARY_OPENING + sealed.text),)))


def _role(item: MessageItem, path: str) -> Role:
    if item.role is None:
        raise refuse(f"{path}.role", "is required.")
    role = _ROLES.get(item.role)
    if role is None:
        raise refuse(f"{path}.role", f"must be one of {', '.join(_ROLES)}.")
    return role
