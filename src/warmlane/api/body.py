"""Reading a request's body: bounded while it arrives, JSON only."""

from __future__ import annotations

from starlette.types import Receive, Scope

from warmlane.api import jsonio
from warmlane.api.errors import HttpRefusal
from warmlane.api.settings import Edge
from warmlane.errors import InvalidRequest

DISCARD_FACTOR = 4
"""How many times the limit is read and thrown away, so that a client that writes before it reads sees the 413."""

MAX_MODEL_NAME_CHARS = 256


class ClientGone(Exception):
    """The connection was closed before the request was whole."""


async def read_request(edge: Edge, scope: Scope, receive: Receive) -> tuple[str, jsonio.JsonObject]:
    """The served model that a POST asks for, by its name or an alias, and its body, which names that model too.

    Raises what `read_json` and `model_of` raise.
    """
    return served(edge, await read_json(scope, receive, max_bytes=edge.settings.max_body_bytes))


def served(edge: Edge, body: jsonio.JsonObject) -> tuple[str, jsonio.JsonObject]:
    """The served model that a body asks for, and the body with that one's name. Raises `InvalidRequest`."""
    model = edge.host.canonical(model_of(body))
    return model, {**body, "model": model}


async def read_json(scope: Scope, receive: Receive, *, max_bytes: int) -> jsonio.JsonObject:
    """The JSON object of a POST.

    Raises `HttpRefusal` for a media type, encoding or size that is not taken, `InvalidRequest` for bad JSON,
    `ClientGone` if the client leaves.
    """
    headers = {name: value.decode("latin-1").strip().lower() for name, value in scope["headers"]}
    _check_media(headers)
    return jsonio.decode_object(await _read(headers, receive, max_bytes))


def model_of(body: jsonio.JsonObject) -> str:
    """The model a body names. Raises `InvalidRequest`."""
    model = body.get("model")
    if model is None:
        raise InvalidRequest("'model' is required: the id of a model, as listed by GET /v1/models.", param="model")
    if not isinstance(model, str) or not model or len(model) > MAX_MODEL_NAME_CHARS:
        raise InvalidRequest(
            f"'model' must be a string of 1 to {MAX_MODEL_NAME_CHARS} characters.",
            param="model",
        )
    return model


def _check_media(headers: dict[bytes, str]) -> None:
    media, *parameters = (part.strip() for part in headers.get(b"content-type", "").split(";"))
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise HttpRefusal(415, "The Content-Type must be application/json.", code="unsupported_media_type")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8"):
            raise HttpRefusal(415, "The charset must be utf-8.", code="unsupported_media_type")
    if headers.get(b"content-encoding", "identity") not in ("identity", ""):
        raise HttpRefusal(415, "Content-Encoding is not supported; send the body plain.", code="unsupported_encoding")


async def _read(headers: dict[bytes, str], receive: Receive, max_bytes: int) -> bytes:
    declared = headers.get(b"content-length", "")
    refused = declared.isdecimal() and int(declared[:20]) > max_bytes
    if refused and headers.get(b"expect") == "100-continue":
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        refused = refused or size > max_bytes
        if refused:
            chunks.clear()
            if size > max_bytes * DISCARD_FACTOR:
                break
        else:
            chunks.append(chunk)
    if refused:
        raise _too_large(max_bytes)
    if size == 0:
        raise InvalidRequest("The request has no body; send a JSON object.")
    return b"".join(chunks)


def _too_large(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(413, f"The request body is over the limit of {max_bytes} bytes.", code="request_too_large")
