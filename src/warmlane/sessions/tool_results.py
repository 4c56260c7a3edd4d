"""Tool results in the order of their calls, each call answered exactly once."""

from __future__ import annotations

import msgspec

from warmlane.conversation.messages import Message, Part, Role, ToolResult
from warmlane.errors import InvalidRequest


def open_calls(history: tuple[Message, ...]) -> tuple[str, ...]:
    """The call ids the last assistant turn left open, in the order of the calls."""
    calls: list[str] = []
    for message in history:
        if message.role is Role.ASSISTANT:
            calls += (call.call_id for call in message.tool_calls)
        else:
            answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
            calls = [call_id for call_id in calls if call_id not in answered]
    return tuple(calls)


def canonical_tool_results(
    history: tuple[Message, ...], added: tuple[Message, ...], *, param: str = "input"
) -> tuple[Message, ...]:
    """`added`, with the results that answer an assistant turn right behind it: one tool message a call, in the order of
    the calls, then whatever else was said.

    `history` is what `added` follows. Consecutive assistant messages are one turn. Raises `InvalidRequest` that names
    the call id for a call without a result, a result without an open call, a call answered twice and a call id used
    twice in one turn.
    """
    calls = list(open_calls(history))
    canonical: list[Message] = []
    reply: list[Message] = []
    for message in added:
        if message.role is not Role.ASSISTANT:
            reply.append(message)
            continue
        if reply:
            canonical += _answered(calls, reply, param)
            calls, reply = [], []
        for call in message.tool_calls:
            if call.call_id in calls:
                raise InvalidRequest(f"Two calls of one turn have the id {call.call_id!r}.", param=param)
            calls.append(call.call_id)
        canonical.append(message)
    canonical += _answered(calls, reply, param)
    return tuple(canonical)


def _answered(calls: list[str], reply: list[Message], param: str) -> list[Message]:
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
    for call_id in calls:
        if call_id not in results:
            raise InvalidRequest(f"The tool call {call_id!r} has no result in this request.", param=param)
    return [*(Message(Role.TOOL, (results[call_id],)) for call_id in calls), *others]
