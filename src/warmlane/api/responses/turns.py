"""POST /v1/responses: a turn."""

from __future__ import annotations

from warmlane.api import jsonio
from warmlane.api.exchange import PreparedTurn
from warmlane.api.fields import parse
from warmlane.api.guard import Caller
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.events import ResponsesStream
from warmlane.api.responses.render import RESPONSE_PREFIX, ResponseFacts, render_outcome
from warmlane.api.responses.request import (
    ResponsesRequest,
    check_supported,
    input_messages,
    retention_of,
    sampling_of,
    warnings_of,
)
from warmlane.api.settings import Edge
from warmlane.conversation.turn import Dialect, Outcome, TurnRequest
from warmlane.host.view import ModelCard


class Preparer:
    """From the body to a turn and the means to answer it. Raises `InvalidRequest`."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def __call__(self, body: JsonObject, caller: Caller) -> PreparedTurn:
        request = parse(ResponsesRequest, body)
        check_supported(request)
        facts = _facts(
            request,
            id_=RESPONSE_PREFIX + self._edge.new_token(),
            created_at=self._edge.unix_s(),
            card=self._edge.host.card(request.model),
        )
        turn = TurnRequest(
            request_id=caller.request_id,
            response_id=facts.id,
            dialect=Dialect.RESPONSES,
            tenant=caller.tenant,
            domain=self._edge.turns.domain(caller.tenant, request.cache_salt),
            model=request.model,
            input=input_messages(request.input),
            instructions=request.instructions,
            previous_response_id=request.previous_response_id,
            compare_to=request.prompt_cache_options.comparison_response_id if request.prompt_cache_options else None,
            prompt_cache_key=request.prompt_cache_key,
            store=facts.store,
            retention_s=retention_of(request),
            sampling=sampling_of(request),
            max_output_tokens=request.max_output_tokens,
            echo=facts.echo(),
        )

        def answer(outcome: Outcome) -> bytes:
            return jsonio.encode(render_outcome(facts, outcome, completed_at=self._edge.unix_s()))

        stream = ResponsesStream(facts, unix_s=self._edge.unix_s) if request.stream else None
        return PreparedTurn(request=turn, answer=answer, stream=stream, warnings=warnings_of(request))


def _facts(request: ResponsesRequest, *, id_: str, created_at: int, card: ModelCard | None) -> ResponseFacts:
    return ResponseFacts(
        id=id_,
        created_at=created_at,
        model=request.model,
        previous_response_id=request.previous_response_id,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        temperature=_effective(request.temperature, card.temperature if card else None),
        top_p=_effective(request.top_p, card.top_p if card else None),
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        tool_choice="none" if request.tool_choice == "none" else "auto",
        parallel_tool_calls=request.parallel_tool_calls is not False,
        store=request.store is not False,
        metadata=request.metadata or {},
        user=request.user,
        safety_identifier=request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
    )


def _effective(asked: float | None, default: float | None) -> float | None:
    return default if asked is None else asked
