"""What the document says of one method of one path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel

JSON = "application/json"


class Group(StrEnum):
    """What an operation belongs to: a dialect, or the server itself. The schemas of each have its name in front."""

    RESPONSES = "Responses"
    CONVERSATIONS = "Conversations"
    MESSAGES = "Messages"
    CHAT = "Chat"
    MODELS = "Models"
    SERVER = "Server"


@dataclass(frozen=True, slots=True)
class Parameter:
    """`schema` is that of one value, in JSON Schema."""

    name: str
    place: Literal["path", "query", "header"]
    schema: Mapping[str, object]
    description: str = ""

    @property
    def required(self) -> bool:
        return self.place == "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`answers` are what comes with 200, one of them, in any of `media`; none for text. `events` are those of a stream,
    where there may be one; `done`, if it has one, the data of the event behind them. `errors` are the statuses that
    come with the group's envelope, `others` those that come with the same shape as the answer."""

    method: Literal["get", "post", "delete"]
    path: str
    name: str
    summary: str
    group: Group
    answers: tuple[object, ...]
    body: type[BaseModel] | None = None
    events: tuple[object, ...] = ()
    done: str | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: frozenset[int] = field(default_factory=frozenset)
    others: frozenset[int] = field(default_factory=frozenset)
    media: tuple[str, ...] = (JSON,)
