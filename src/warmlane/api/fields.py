"""What the request models of the three dialects share: field types, ranges, paths, warnings.

The models are our own and lenient: an unknown field is kept, never refused, and named in `X-Warmlane-Warnings`. Types
are strict (a bool is no number, a string no number) and every error names its field's path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from warmlane.api.jsonio import JsonObject
from warmlane.errors import InvalidRequest

MAX_STOP_SEQUENCES = 32
MAX_STOP_CHARS = 1000
MAX_CACHE_SALT_BYTES = 256
MAX_INT = 2**31 - 1
"""Larger token counts and top_k say the same as this one."""


class OrString:
    """Beside an annotation whose validator also takes a string: says so in the JSON Schema."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(core)]}


ModelName = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 256})]
"""Judged before the rest of a body: see `body.model_of`."""

Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


def _clamp(value: object) -> object:
    return MAX_INT if isinstance(value, int) and value > MAX_INT else value


MaxTokens = Annotated[int, BeforeValidator(_clamp), Field(ge=1)]
TopK = Annotated[int, BeforeValidator(_clamp), Field(ge=0)]


def _string_as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
StopList = Annotated[
    list[_StopString], BeforeValidator(_string_as_list), Field(max_length=MAX_STOP_SEQUENCES), OrString()
]


def _salt(value: object) -> object:
    if isinstance(value, str) and not 1 <= len(value.encode("utf-8", "replace")) <= MAX_CACHE_SALT_BYTES:
        raise ValueError(f"must have 1 to {MAX_CACHE_SALT_BYTES} bytes in UTF-8")
    return value


CacheSalt = Annotated[str, BeforeValidator(_salt)]


class Lenient(BaseModel):
    """Base of every request model."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, allow_inf_nan=False)

    @property
    def unknown(self) -> list[str]:
        """Names of fields given (not null) that this model does not know."""
        return [name for name, value in (self.model_extra or {}).items() if value is not None]


class Block(Lenient):
    """One part of a message's content. Which fields count depends on `type`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    thinking: str | None = None


def as_blocks(value: object) -> object:
    """A string as one `text` part."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return value


Content = Annotated[list[Block], BeforeValidator(as_blocks), OrString()]
"""A string, or an array of parts; a string becomes one `text` part."""

FOREIGN = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "n", "best_of", "logit_bias"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "min_tokens", "ignore_eos"),
        *("stop", "stop_sequences", "stop_token_ids", "logprobs", "top_logprobs"),
        *("response_format", "output_format", "json_schema", "grammar", "structured_outputs"),
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("system", "instructions", "messages", "input", "prompt", "previous_response_id", "conversation"),
        *("tools", "tool_choice", "functions", "function_call"),
    }
)
"""Fields of another dialect or server that ask for another answer: refused where a request model does not know them."""

_NEUTRAL_AT_1 = frozenset({"n", "best_of", "repetition_penalty"})

M = TypeVar("M", bound=BaseModel)

_WORDING = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "too_short": "must not be empty",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
_CONTENT_WORDING = "must be a string or an array"
_MAX_PATH_CHARS = 200


def parse(model: type[M], body: JsonObject, *, at: tuple[int | str, ...] = ()) -> M:
    """Validate a body, or what stands `at` a path of one. Raises `InvalidRequest` for its first wrong field."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = path_of((*at, *first["loc"]))
    wording = _WORDING.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] == "list_type" and path.endswith(("content", "system", "input", "output", "stop")):
        wording = _CONTENT_WORDING
    raise InvalidRequest(f"'{path}': {wording[:1].lower()}{wording[1:]}.", param=path or None)


def path_of(loc: Iterable[int | str]) -> str:
    """`("messages", 2, "content", 0)` as `messages[2].content[0]`."""
    path = ""
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")[:_MAX_PATH_CHARS]


def refuse(path: str, message: str) -> InvalidRequest:
    """The error for a field that is understood and not supported."""
    return InvalidRequest(f"'{path}': {message}", param=path)


def refuse_given(fields: Sequence[tuple[str, object]]) -> None:
    """Refuse each field that asks for something this server does not do: given, not null, not empty, not false."""
    for path, value in fields:
        if value not in (None, False, "", [], {}):
            raise refuse(path, "is not supported by this server.")


def refuse_foreign(request: Lenient) -> None:
    """Refuse what this route does not know and what would change the answer. Raises `InvalidRequest`."""
    for name, value in (request.model_extra or {}).items():
        neutral = value is False or value in (None, "", [], {}) or (name in _NEUTRAL_AT_1 and value == 1)
        if name in FOREIGN and not neutral:
            raise refuse(name, "is not a field of this route, and would change the answer; leave it out.")


def text_of(block: Block, path: str, *, types: Collection[str] = ("text",)) -> str:
    """What a block of one of `types`, or a refusal, says. Raises `InvalidRequest` for any other."""
    if block.type in types:
        if block.text is None:
            raise refuse(f"{path}.text", "is required.")
        return block.text
    if block.type == "refusal":
        if block.refusal is None:
            raise refuse(f"{path}.refusal", "is required.")
        return block.refusal
    raise refuse(f"{path}.type", f"content of type {block.type[:64]!r} is not supported by this server.")
