"""The error tree as HTTP: one status, and the envelope of the route's dialect.

OpenAI: `{"error": {message, type, param, code}}`. Anthropic: `{"type": "error", "error": {type, message}, request_id}`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from warmlane.api import jsonio
from warmlane.conversation.turn import Usage
from warmlane.errors import (
    ContextOverflow,
    ConversationNotFound,
    EngineDied,
    EngineError,
    EngineOutOfMemory,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    PreviousResponseNotFound,
    QueueFull,
    QueueTimeout,
    RequestError,
    ResponseNotFound,
    SessionNotFound,
    StoreUnavailable,
    ThreadsUnsupported,
    TurnTimeout,
    Unauthorized,
    WarmlaneError,
)
from warmlane.turns.cancel import TurnCancelled

INTERNAL_MESSAGE = "The server had an error while processing the request."

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class HttpRefusal(WarmlaneError):
    """Refused by the HTTP edge before a route looked at it: the host, path, method, size or media type is wrong."""

    def __init__(self, status: int, message: str, *, code: str | None = None, allow: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.allow = allow


class FaultDetails(msgspec.Struct, frozen=True):
    """What a client can act on without reading the message."""

    error_code: str


@dataclass(frozen=True, slots=True)
class WireError:
    """An error as both dialects tell it. `overflow` is the Anthropic wording of a prompt that is too long, `spent` what
    a turn that ran had cost by then, `details` what that dialect alone tells beside the message. `again` False: clients
    that repeat requests by themselves should not repeat this one."""

    status: int
    message: str
    openai_type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    retry_after_s: int | None = None
    allow: str | None = None
    overflow: str | None = None
    spent: Usage | None = None
    details: FaultDetails | None = None
    again: bool = True

    @property
    def anthropic_type(self) -> str:
        default = "invalid_request_error" if self.status < 500 else "api_error"
        return _ANTHROPIC_TYPES.get(self.status, default)

    @property
    def anthropic_message(self) -> str:
        if self.overflow is not None:
            return self.overflow
        if self.param is not None and self.param not in self.message:
            return f"{self.param}: {self.message}"
        return self.message


class OpenAIFault(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIEnvelope(msgspec.Struct, frozen=True):
    error: OpenAIFault


class AnthropicFault(msgspec.Struct, frozen=True):
    type: str
    message: str
    details: FaultDetails | UnsetType = UNSET


class AnthropicEnvelope(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    error: AnthropicFault
    request_id: str


def wire_error(error: Exception) -> WireError:
    """What a client is told of `error`."""
    match error:
        case HttpRefusal():
            return WireError(error.status, error.message, code=error.code, allow=error.allow)
        case RequestError():
            return _request_error(error)
        case Overloaded():
            return _overloaded(error)
        case TurnCancelled():
            return WireError(400, error.message, code="response_cancelled")
        case TurnTimeout():
            return WireError(504, error.message, "server_error", "turn_timeout", again=False)
        case EngineDied():
            return WireError(503, _engine_message(error), "server_error", "engine_unavailable", retry_after_s=1)
        case EngineOutOfMemory():
            return WireError(503, _engine_message(error), "server_error", "out_of_memory", retry_after_s=1)
        case EngineError():
            return WireError(500, _engine_message(error), "server_error", "server_error")
        case _:
            return WireError(500, INTERNAL_MESSAGE, "server_error", "server_error")


def is_bug(error: Exception) -> bool:
    """Whether nobody foresaw `error` at the edge: it is then logged, and the client is told nothing of it."""
    return not isinstance(error, HttpRefusal | RequestError | Overloaded | EngineError | TurnTimeout | TurnCancelled)


def _request_error(error: RequestError) -> WireError:
    match error:
        case ContextOverflow():
            overflow = f"prompt is too long: {error.prompt_tokens} tokens > {error.limit} maximum"
            return WireError(400, error.message, code="context_length_exceeded", param=error.param, overflow=overflow)
        case Unauthorized():
            return WireError(401, error.message, code="invalid_api_key")
        case ModelNotFound():
            return WireError(404, error.message, code="model_not_found", param=error.param)
        case ResponseNotFound() | SessionNotFound() | ConversationNotFound():
            return WireError(404, error.message, param=error.param)
        case PreviousResponseNotFound():
            return WireError(400, error.message, code="previous_response_not_found", param=error.param)
        case ThreadsUnsupported():
            details = FaultDetails("thread_unsupported_request")
            return WireError(400, error.message, code="invalid_value", param=error.param, details=details)
        case InvalidRequest():
            return WireError(400, error.message, code="invalid_value", param=error.param)
        case _:
            return WireError(400, error.message, param=error.param)


def _overloaded(error: Overloaded) -> WireError:
    retry_after_s = max(1, error.retry_after_s)
    if isinstance(error, QueueFull):
        return WireError(429, error.message, "rate_limit_error", "queue_full", retry_after_s=retry_after_s)
    match error:
        case QueueTimeout():
            code = "queue_timeout"
        case StoreUnavailable():
            code = "store_unavailable"
        case _:
            code = "service_unavailable"
    return WireError(503, error.message, "overloaded_error", code, retry_after_s=retry_after_s)


def _engine_message(error: EngineError) -> str:
    return error.message or "The engine failed while it ran this turn."


def envelope(error: WireError, *, anthropic: bool, request_id: str) -> bytes:
    """The JSON body of an error response."""
    if anthropic:
        return jsonio.encode(AnthropicEnvelope(error=anthropic_fault(error), request_id=request_id))
    return jsonio.encode(OpenAIEnvelope(error=openai_fault(error)))


def anthropic_fault(error: WireError) -> AnthropicFault:
    details = UNSET if error.details is None else error.details
    return AnthropicFault(type=error.anthropic_type, message=error.anthropic_message, details=details)


def openai_fault(error: WireError) -> OpenAIFault:
    return OpenAIFault(message=error.message, type=error.openai_type, param=error.param, code=error.code)


def error_headers(error: WireError) -> list[tuple[bytes, bytes]]:
    """Headers that belong to the error itself."""
    headers = [(b"content-type", b"application/json")]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if not error.again:
        headers.append((b"x-should-retry", b"false"))
    if error.allow is not None:
        headers.append((b"allow", error.allow.encode()))
    return headers
