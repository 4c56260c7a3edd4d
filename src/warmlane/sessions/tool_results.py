"""Tool results in the order of their calls, each call answered exactly once."""

from __future__ import annotations

import json

import msgspec

from warmlane.conversation.messages import Message, Part, Role, ToolCall, ToolResult
from warmlane.errors import InvalidRequest


def open_calls(history: tuple[Message, ...]) -> tuple[str, ...]:
    """The call ids the last assistant turn left open, in the order of the calls."""
    return tuple(_open(history))


def _open(history: tuple[Message, ...]) -> dict[str, bool]:
    """The open calls, in order, and whether each is whole: one that a length limit cut off was never made, so it may be
    answered and need not be."""
    calls: dict[str, bool] = {}
    answering = False
    for message in history:
        if message.role is Role.ASSISTANT:
            if answering:
                calls = {call_id: whole for call_id, whole in calls.items() if whole}
            calls |= {call.call_id: _whole(call) for call in message.tool_calls}
        else:
            for part in message.parts:
                if isinstance(part, ToolResult):
                    calls.pop(part.call_id, None)
        answering = message.role is not Role.ASSISTANT
    return calls


def _whole(call: ToolCall) -> bool:
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError):
        return False
    return True


def canonical_tool_results(
    history: tuple[Message, ...], added: tuple[Message, ...], *, param: str = "input"
) -> tuple[Message, ...]:
    """`added`, with the results that answer an assistant turn right behind it: one tool message a call, in the order of
    the calls, then whatever else was said.

    `history` is what `added` follows. Consecutive assistant messages are one turn. Raises `InvalidRequest` that names
    the call id for a whole call without a result, a result without an open call, a call answered twice and a call id
    used twice in one turn.
    """
    calls = _open(history)
    canonical: list[Message] = []
    reply: list[Message] = []
    for message in added:
        if message.role is not Role.ASSISTANT:
            reply.append(message)
            continue
        if reply:
            canonical += _answered(calls, reply, param)
            calls, reply = {}, []
        for call in message.tool_calls:
            if call.call_id in calls:
                raise InvalidRequest(f"Two calls of one turn have the id {call.call_id!r}.", param=param)
            calls[call.call_id] = _whole(call)
        canonical.append(message)
    canonical += _answered(calls, reply, param)
    return tuple(canonical)


def _answered(calls: dict[str, bool], reply: list[Message], param: str) -> list[Message]:
    """What was said after one assistant turn, results first."""
    results: dict[str, ToolResult] = {}
    others: list[Message] = []
    for message in reply:
        rest: list[Part] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                rest.append(part)
            elif part.call_id in results:
                raise InvalidRequest(f"The tool call {part.call_id!r} is answered twice.", param=param)
            elif part.call_id not in calls:
                raise InvalidRequest(f"No tool call {part.call_id!r} is open for this result.", param=param)
            else:
                results[part.call_id] = part
        if len(rest) == len(message.parts):
            others.append(message)
        elif rest:
            role = Role.USER if message.role is Role.TOOL else message.role
            others.append(msgspec.structs.replace(message, role=role, parts=tuple(rest)))
    for call_id, whole in calls.items():
        if whole and call_id not in results:
            raise InvalidRequest(f"The tool call {call_id!r} has no result in this request.", param=param)
    return [*(Message(Role.TOOL, (results[call_id],)) for call_id in calls if call_id in results), *others]
