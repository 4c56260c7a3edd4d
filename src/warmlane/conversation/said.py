"""What a message says, whatever its form: clients send calls back with other spacing and key order, and trim text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text, ToolCall


@dataclass(frozen=True, slots=True)
class Said:
    """The parts of an assistant's message in the form they are compared in. `calls` are names and canonical arguments;
    ids are left out, because they are ours and not the model's."""

    reasoning: str
    text: str
    calls: tuple[tuple[str, str], ...]


def said(parts: Iterable[Part]) -> Said:
    """Text and reasoning joined over part boundaries, without the space around them."""
    parts = tuple(parts)
    return Said(
        reasoning="".join(p.text for p in parts if isinstance(p, Reasoning)).strip(),
        text="".join(p.text for p in parts if isinstance(p, Text)).strip(),
        calls=tuple((p.name, canonical_arguments(p.arguments)) for p in parts if isinstance(p, ToolCall)),
    )


def same_content(a: Message, b: Message) -> bool:
    """Whether two messages say the same, whatever tokens they were sampled as. Of an assistant's, text and calls
    count: most clients do not send its reasoning back."""
    if a.role is not b.role:
        return False
    if a.parts == b.parts:
        return True
    if a.role is not Role.ASSISTANT:
        return False
    mine, theirs = said(a.parts), said(b.parts)
    return (mine.text, mine.calls) == (theirs.text, theirs.calls)


def canonical_arguments(text: str) -> str:
    """JSON with sorted keys and no spaces, whole numbers without a fraction (JavaScript drops it); other text as it
    is."""
    try:
        value = json.loads(text)
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except (ValueError, RecursionError):
        return text


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
