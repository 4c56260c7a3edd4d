"""What a reply may be made of: tools to call, the form of its text, whether to think first."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function the model may call. `parameters` is the JSON text of its JSON Schema, keys in the order in which the
    prompt shows them."""

    name: str
    description: str | None = None
    parameters: str = '{"type":"object","properties":{}}'
    strict: bool = False


class ToolMode(StrEnum):
    """`auto`: may call; `none`: must not; `required`: must, at least once."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """`allowed`: the only tools that may be called, though the prompt shows all of them; None allows all."""

    mode: ToolMode = ToolMode.AUTO
    allowed: tuple[str, ...] | None = None
    parallel: bool = True


class TextFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The reply's text must be one JSON value: any object, or one of `schema` (JSON text of a JSON Schema). `name` is
    the client's, for the prompt."""

    schema: str | None = None
    name: str | None = None
    strict: bool = False


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to think first: None leaves it to the model's template. `effort` is passed to templates that know it;
    `budget_tokens` bounds the reasoning."""

    enabled: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that could have come instead; `logprob` is natural."""

    token: str
    logprob: float
    data: bytes


class TokenLogprob(msgspec.Struct, frozen=True):
    """A sampled token of the reply's text; `data` are its bytes, `top` the likeliest ones, best first."""

    token: str
    logprob: float
    data: bytes
    top: tuple[TopLogprob, ...] = ()
