"""POST /v1/chat/completions."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from warmlane.api import jsonio
from warmlane.api.chat.continuing import continues
from warmlane.api.chat.events import ChatStream
from warmlane.api.chat.formats import read_format
from warmlane.api.chat.history import input_messages
from warmlane.api.chat.render import COMPLETION_PREFIX, render_completion
from warmlane.api.chat.request import (
    ChatRequest,
    asked_thinking,
    check_supported,
    sampling_of,
    top_logprobs_of,
    warnings_of,
)
from warmlane.api.exchange import PreparedTurn, TurnEndpoint
from warmlane.api.fields import parse
from warmlane.api.functions import read_choice, read_tools
from warmlane.api.guard import Caller
from warmlane.api.jsonio import JsonObject
from warmlane.api.settings import Edge
from warmlane.conversation.tools import Thinking
from warmlane.conversation.turn import Dialect, Outcome, TurnRequest


def routes(edge: Edge) -> list[BaseRoute]:
    return [Route("/v1/chat/completions", TurnEndpoint(edge, _Preparer(edge)), methods=["POST"])]


class _Preparer:
    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def __call__(self, body: JsonObject, caller: Caller) -> PreparedTurn:
        request = parse(ChatRequest, body)
        check_supported(request)
        tools = read_tools(request.tools or (), canonicalize=self._edge.settings.canonicalize)
        choice = read_choice(request.tool_choice, tools, parallel=request.parallel_tool_calls)
        created = self._edge.unix_s()
        dialogue = input_messages(request.messages)
        goes_on = continues(request, dialogue[-1])
        turn = TurnRequest(
            request_id=caller.request_id,
            response_id=COMPLETION_PREFIX + self._edge.new_token(),
            dialect=Dialect.CHAT,
            tenant=caller.tenant,
            domain=self._edge.turns.domain(caller.tenant, request.cache_salt),
            model=request.model,
            input=dialogue,
            prompt_cache_key=request.prompt_cache_key,
            sampling=sampling_of(request),
            max_output_tokens=request.max_completion_tokens or request.max_tokens,
            stop=tuple(request.stop or ()),
            tools=tools.offered.tools,
            tool_choice=choice.choice,
            text_format=read_format(request.response_format),
            thinking=Thinking(enabled=False) if goes_on else asked_thinking(request),
            top_logprobs=top_logprobs_of(request),
            n_choices=request.n or 1,
            continues=goes_on,
        )

        def answer(outcome: Outcome) -> bytes:
            completion = render_completion(turn.response_id, created=created, model=turn.model, outcome=outcome)
            return jsonio.encode(completion)

        stream = None
        if request.stream:
            stream = ChatStream(
                completion_id=turn.response_id,
                created=created,
                model=turn.model,
                n_choices=turn.n_choices,
                include_usage=bool(request.stream_options and request.stream_options.include_usage),
            )
        return PreparedTurn(
            request=turn,
            answer=answer,
            stream=stream,
            warnings=(*warnings_of(request), *tools.ignored, *choice.ignored),
            canonicalized=tools.offered.canonicalized,
        )
