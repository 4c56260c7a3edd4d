"""The document itself, OpenAPI 3.1: schemas of bodies from the models that read them, and of answers from what writes
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec
from pydantic.json_schema import models_json_schema

import warmlane
from warmlane.api.errors import AnthropicEnvelope, OpenAIEnvelope
from warmlane.api.jsonio import JsonObject
from warmlane.api.openapi.operation import JSON, Group, Operation

_REASONS: Final = {
    400: "What was asked is wrong; the message names the field.",
    401: "The API key is wrong or missing.",
    403: "The Host is not served here, or the caller may not do this.",
    404: "There is no such thing, or it is another tenant's.",
    413: "The body is too large.",
    415: "The body is not JSON in UTF-8.",
    429: "There are too many turns; `Retry-After` says when to try again.",
    500: "The server, or the engine, failed on this request.",
    503: "The server is draining, or the engine or the store is away; `Retry-After` says when to try again.",
    504: "The turn ran longer than this server lets one run.",
}
_RETRIED: Final = frozenset({429, 503})

_ENVELOPES: Final[Mapping[Group, tuple[object, ...]]] = {
    Group.MESSAGES: (AnthropicEnvelope,),
    Group.MODELS: (OpenAIEnvelope, AnthropicEnvelope),
}

_STREAM: Final = "text/event-stream"


def document(operations: Sequence[Operation], *, needs_key: bool) -> JsonObject:
    """What `operations` are, as JSON. `needs_key`: nobody is served without one."""
    schemas: JsonObject = {}
    paths: dict[str, JsonObject] = {}
    for group in Group:
        mine = [operation for operation in operations if operation.group is group]
        shapes = _Shapes(group, mine)
        schemas.update(shapes.components)
        for operation in mine:
            paths.setdefault(operation.path, {})[operation.method] = _operation(operation, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Warmlane",
            "version": warmlane.__version__,
            "description": "Any other path is a 404, any other method of these a 405 with `Allow`, in the same shapes.",
        },
        "security": [*([] if needs_key else [{}]), {"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


class _Shapes:
    """The schemas of one group, by what they are of. Their names begin with the group's, as two dialects have much of
    the same name."""

    def __init__(self, group: Group, operations: Iterable[Operation]) -> None:
        operations = tuple(operations)
        ref = f"#/components/schemas/{group.value}.{{name}}"
        self.envelopes = _ENVELOPES.get(group, (OpenAIEnvelope,))
        shapes = [*self.envelopes]
        for operation in operations:
            shapes += [*operation.answers, *operation.events]
        written, components = msgspec.json.schema_components(shapes, schema_hook=_any_json, ref_template=ref)
        self._written = [(shape, cast(JsonObject, schema)) for shape, schema in zip(shapes, written, strict=True)]
        bodies = list(dict.fromkeys(o.body for o in operations if o.body is not None))
        refs, definitions = models_json_schema(
            [(body, "validation") for body in bodies], ref_template=ref.replace("{name}", "{model}")
        )
        self._read = {body: cast(JsonObject, refs[body, "validation"]) for body in bodies}
        named = {**components, **cast(JsonObject, definitions.get("$defs", {}))}
        self.components: JsonObject = {f"{group.value}.{name}": schema for name, schema in named.items()}

    def written(self, shapes: tuple[object, ...]) -> JsonObject:
        """One of the shapes; any text if there are none."""
        schemas = [next(schema for known, schema in self._written if known is shape) for shape in shapes]
        return {"anyOf": schemas} if len(schemas) > 1 else schemas[0] if schemas else {"type": "string"}

    def read(self, body: type[object]) -> JsonObject:
        return next(schema for known, schema in self._read.items() if known is body)


def _any_json(kind: type[object]) -> JsonObject:
    """`object` in a struct is the client's own JSON."""
    if kind is object:
        return {"description": "Any JSON."}
    raise NotImplementedError(kind)


def _operation(operation: Operation, shapes: _Shapes) -> JsonObject:
    told: JsonObject = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group.value],
        "responses": _responses(operation, shapes),
    }
    if operation.parameters:
        told["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.required,
                "schema": parameter.schema,
                **({"description": parameter.description} if parameter.description else {}),
            }
            for parameter in operation.parameters
        ]
    if operation.body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": shapes.read(operation.body)}}}
    if 401 not in operation.errors:
        told["security"] = [{}]
    return told


def _responses(operation: Operation, shapes: _Shapes) -> JsonObject:
    content: JsonObject = {media: {"schema": shapes.written(operation.answers)} for media in operation.media}
    told: JsonObject = {
        str(status): {"description": _REASONS[status], "content": content} for status in operation.others
    }
    if operation.events:
        content = {**content, _STREAM: {"schema": _event(shapes.written(operation.events), done=operation.done)}}
    told["200"] = {"description": "Done.", "content": content}
    failure: JsonObject = {JSON: {"schema": shapes.written(shapes.envelopes)}}
    for status in operation.errors:
        told[str(status)] = {"description": _REASONS[status], "content": failure}
        if status in _RETRIED:
            told[str(status)] = {**cast(JsonObject, told[str(status)]), "headers": _RETRY_AFTER}
    return dict(sorted(told.items()))


def _event(data: JsonObject, *, done: str | None) -> JsonObject:
    """One event of a stream: its fields, of which `data` is JSON."""
    told: JsonObject = {"contentMediaType": JSON, "contentSchema": data}
    if done is not None:
        told = {"if": {"const": done}, "else": told}
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": told}, "required": ["data"]}


_RETRY_AFTER: Final[JsonObject] = {
    "Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "integer", "minimum": 1}}
}
