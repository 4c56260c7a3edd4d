"""What a reply is held to, and what of the client's schemas no grammar can hold it to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from warmlane.conversation.turn import TurnRequest
from warmlane.errors import InvalidRequest
from warmlane.prompts.formats import OutputFormat
from warmlane.prompts.schema import enforceable, enforceable_arguments


@dataclass(frozen=True, slots=True)
class Constraint:
    """`grammar` is in llguidance's Lark syntax, None where the reply may be anything. `warnings` name what of a schema
    is not enforced."""

    grammar: str | None = None
    warnings: tuple[str, ...] = ()


async def constraint_of(form: OutputFormat, request: TurnRequest, *, opening: str) -> Constraint:
    """Schemas take time, so they are read off the event loop, and noted only where they are enforced.

    Raises `InvalidRequest` for a choice of tools the format cannot be held to, a schema that is no JSON object, and any
    constraint where the client has begun the reply: what it began may not be what the grammar allows.
    """
    if not request.tools and request.text_format is None:
        return Constraint()
    return await asyncio.to_thread(_constrained, form, request, opening)


def _constrained(form: OutputFormat, request: TurnRequest, opening: str) -> Constraint:
    grammar = form.grammar(request.tools, request.tool_choice, request.text_format, opening=opening)
    if grammar is None:
        return Constraint()
    if request.continues:
        raise InvalidRequest(
            "The reply that the last message begins cannot be held to a schema or to a choice of tools: leave that "
            "message out, or structured output, strict tools and the choice.",
            param="messages",
        )
    return Constraint(grammar, tuple(_unenforced(request)))


def _unenforced(request: TurnRequest) -> Iterator[str]:
    for index, tool in enumerate(request.tools):
        for note in enforceable_arguments(tool.parameters).warnings:
            yield f"tools[{index}] ({tool.name}): {note}"
    if request.text_format is not None and request.text_format.schema is not None:
        for note in enforceable(request.text_format.schema).warnings:
            yield f"text format: {note}"
