"""Compaction: a dialogue becomes a summary of it, written by the model, sealed, and carried by the client.

The turn that writes the summary is the dialogue with an instruction behind it, so that what is warm of the one is warm
for the other. It leaves no session and no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import structs

from warmlane.api.responses.drafts import RESPONSE_PREFIX, Kind, Seal, item_id
from warmlane.api.responses.input import SUMMARY_OPENING
from warmlane.api.responses.items import InputMessageItem, InputText
from warmlane.api.responses.render import wire_usage
from warmlane.api.responses.sealed import SealedSummary
from warmlane.api.responses.wire import CompactionItem, FunctionCallItem, ResponseUsage
from warmlane.conversation.messages import Message, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Thinking, ToolChoice, ToolMode
from warmlane.conversation.turn import Outcome, TurnRequest
from warmlane.errors import EngineFault

SUMMARY_MAX_TOKENS = 2048

INSTRUCTION = (
    "Stop here. Write a summary of this conversation for an assistant that will go on with it and sees nothing else of "
    "it: what the user wants, what was decided and done, what was found (names, paths and values exactly), what is "
    "still open and what comes next. Write the summary alone."
)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What to send as the next input: the user's messages, the summary (which takes up earlier ones), and the calls
    that wait for their results.

    `created_at` is in Unix seconds.
    """

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    output: tuple[InputMessageItem | CompactionItem | FunctionCallItem, ...]
    usage: ResponseUsage


def summary_turn(turn: TurnRequest) -> TurnRequest:
    """The turn that summarises what `turn` would have answered."""
    asked = Message(Role.USER, (Text(INSTRUCTION),))
    return structs.replace(
        turn,
        input=(*_settled(turn.input), asked),
        store=False,
        max_output_tokens=min(turn.max_output_tokens or SUMMARY_MAX_TOKENS, SUMMARY_MAX_TOKENS),
        tool_choice=ToolChoice(mode=ToolMode.NONE),
        text_format=None,
        thinking=Thinking(enabled=False),
        top_logprobs=None,
    )


def compaction_item(response_id: str, outcome: Outcome, seal: Seal, *, index: int = 0) -> CompactionItem:
    """Raises `EngineFault` if the model wrote no summary."""
    summary = outcome.message.text.strip()
    if not summary:
        raise EngineFault("The model wrote no summary.")
    return CompactionItem(item_id(response_id, Kind.COMPACTION, index), seal(SealedSummary(summary)))


def compacted(turn: TurnRequest, outcome: Outcome, seal: Seal, *, created_at: int) -> Compacted:
    """The answer of POST /v1/responses/compact; `turn` is the one that was asked to be compacted."""
    said = (message.text for message in turn.input if message.role is Role.USER)
    users = [text for text in said if text and not text.startswith(SUMMARY_OPENING)]
    digits = turn.response_id.removeprefix(RESPONSE_PREFIX)
    kept = [InputMessageItem(f"msg_{digits}{n:04x}", "user", (InputText(text),)) for n, text in enumerate(users)]
    calls = [
        FunctionCallItem(
            item_id(turn.response_id, Kind.CALL, len(kept) + 1 + n),
            "completed",
            call.call_id,
            call.name,
            call.arguments,
        )
        for n, call in enumerate(_open_calls(turn.input))
    ]
    summary = compaction_item(turn.response_id, outcome, seal, index=len(kept))
    return Compacted(
        id=turn.response_id,
        created_at=created_at,
        output=(*kept, summary, *calls),
        usage=wire_usage(outcome.usage),
    )


def _open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls that no result has answered yet."""
    answered = {part.call_id for message in messages for part in message.parts if isinstance(part, ToolResult)}
    return [call for message in messages for call in message.tool_calls if call.call_id not in answered]


def _settled(messages: Sequence[Message]) -> list[Message]:
    """The messages without the calls that no result has answered: a prompt with those cannot go on."""
    waiting = {call.call_id for call in _open_calls(messages)}
    if not waiting:
        return list(messages)
    settled: list[Message] = []
    for message in messages:
        parts = tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.call_id in waiting))
        if parts == message.parts:
            settled.append(message)
        elif parts:
            settled.append(structs.replace(message, parts=parts, sampled=None))
    return settled
