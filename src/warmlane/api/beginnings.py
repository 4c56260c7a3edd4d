"""A last message of the assistant's that the reply is to go on from."""

from __future__ import annotations

from warmlane.api.fields import refuse
from warmlane.conversation.messages import Message
from warmlane.errors import InvalidRequest


def check_beginning(message: Message, path: str) -> None:
    """Raises `InvalidRequest` for what no reply can go on from, a call in the vendor's words."""
    if message.tool_calls:
        ids = ", ".join(call.call_id for call in message.tool_calls)
        raise InvalidRequest(
            f"{path}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use` "
            "block must have a corresponding `tool_result` block in the next message.",
            param=path,
        )
    if message.reasoning:
        raise refuse(path, "begins the reply with thinking; a reply that is continued may hold text alone.")
