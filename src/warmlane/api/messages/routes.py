"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from warmlane.api import jsonio
from warmlane.api.body import read_request
from warmlane.api.exchange import PreparedTurn, TurnEndpoint
from warmlane.api.fields import parse
from warmlane.api.guard import Caller, caller_of
from warmlane.api.headers import canonical_headers, warning_headers
from warmlane.api.jsonio import JsonObject
from warmlane.api.messages.caching import cache_lifetime, pins
from warmlane.api.messages.content import DialogueReader
from warmlane.api.messages.events import MessagesStream
from warmlane.api.messages.render import MESSAGE_PREFIX, ReplyRenderer
from warmlane.api.messages.request import (
    CreateMessageRequest,
    MessagesRequest,
    check_continued,
    check_supported,
    sampling_of,
    text_format_of,
    thinking_of,
    warnings_of,
)
from warmlane.api.messages.thoughts import Thoughts
from warmlane.api.messages.tools import read_choice, read_tools
from warmlane.api.messages.wire import TokenCount
from warmlane.api.settings import Edge
from warmlane.conversation.messages import Role
from warmlane.conversation.turn import Dialect, Outcome, TurnRequest


def routes(edge: Edge) -> list[BaseRoute]:
    return [
        Route("/v1/messages", TurnEndpoint(edge, _Preparer(edge)), methods=["POST"]),
        Route("/v1/messages/count_tokens", _CountTokens(edge), methods=["POST"]),
    ]


class _Preparer:
    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def __call__(self, body: JsonObject, caller: Caller) -> PreparedTurn:
        request = parse(CreateMessageRequest, body)
        asked = _read(self._edge, request, caller)
        render = ReplyRenderer(
            message_id=asked.turn.response_id,
            model=asked.turn.model,
            thoughts=asked.thoughts,
            lifetime=cache_lifetime(request),
            compared=asked.turn.compare_to is not None,
        )

        def answer(outcome: Outcome) -> bytes:
            return jsonio.encode(render.reply(outcome))

        return PreparedTurn(
            request=asked.turn,
            answer=answer,
            stream=MessagesStream(render, request_id=caller.request_id) if request.stream else None,
            warnings=asked.warnings,
            canonicalized=asked.canonicalized,
        )


class _CountTokens:
    """Takes no permit: nothing is generated."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, body = await read_request(self._edge, scope, receive)
        request = parse(MessagesRequest, body)
        asked = _read(self._edge, request, caller_of(scope))
        cache_lifetime(request)
        count = await self._edge.turns.count_tokens(asked.turn)
        response = Response(jsonio.encode(TokenCount(count)), media_type="application/json")
        response.raw_headers.extend(warning_headers(asked.warnings))
        response.raw_headers.extend(canonical_headers(asked.canonicalized))
        await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _Asked:
    turn: TurnRequest
    thoughts: Thoughts
    warnings: tuple[str, ...]
    canonicalized: tuple[str, ...]


def _read(edge: Edge, request: MessagesRequest, caller: Caller) -> _Asked:
    """The turn, the same for both endpoints, so that they count alike. Raises `InvalidRequest`."""
    check_supported(request)
    warnings = warnings_of(request)
    tools = read_tools(request.tools or (), canonicalize=edge.settings.canonicalize, warnings=warnings)
    domain = edge.turns.domain(caller.tenant, request.cache_salt)
    omitted = request.thinking is not None and request.thinking.display == "omitted"
    thoughts = Thoughts(edge.signer, edge.turns, domain=domain, omitted=omitted)
    reader = DialogueReader(thoughts, canonicalize=edge.settings.canonicalize)
    dialogue = reader.read(request.system, request.messages)
    goes_on = bool(dialogue) and dialogue[-1].role is Role.ASSISTANT
    if goes_on:
        check_continued(request, dialogue[-1])
    turn = TurnRequest(
        request_id=caller.request_id,
        response_id=MESSAGE_PREFIX + edge.new_token(),
        dialect=Dialect.MESSAGES,
        tenant=caller.tenant,
        domain=domain,
        model=request.model,
        input=dialogue,
        sampling=sampling_of(request),
        max_output_tokens=request.max_tokens,
        stop=tuple(request.stop_sequences or ()),
        compare_to=request.diagnostics.previous_message_id if request.diagnostics else None,
        tools=tools.tools,
        tool_choice=read_choice(request.tool_choice, tools),
        text_format=text_format_of(request),
        thinking=thinking_of(request),
        continues=goes_on,
        pins=pins(request, reader.ends),
    )
    return _Asked(turn, thoughts, (*warnings, *reader.warnings), (*tools.canonicalized, *reader.changes))
