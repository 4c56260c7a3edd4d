"""POST /v1/responses: a turn."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from warmlane.api import jsonio, sse
from warmlane.api.exchange import PreparedTurn
from warmlane.api.fields import parse, refuse
from warmlane.api.functions import ChoiceRead, ToolsRead, read_choice, read_tools
from warmlane.api.guard import Caller
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.background import event_json
from warmlane.api.responses.compaction import compacted, compaction_item, summary_turn
from warmlane.api.responses.drafts import RESPONSE_PREFIX, Seal
from warmlane.api.responses.events import Frame, ResponsesStream
from warmlane.api.responses.input import InputRead, read_input
from warmlane.api.responses.options import FormatRead, read_format, read_thinking
from warmlane.api.responses.render import ResponseFacts, render_outcome
from warmlane.api.responses.request import (
    CompactRequest,
    ResponsesRequest,
    check_supported,
    retention_of,
    sampling_of,
    warnings_of,
)
from warmlane.api.responses.sealed import Seals
from warmlane.api.responses.wire import CompactionItem, Response
from warmlane.api.settings import Edge
from warmlane.conversation.turn import Dialect, Outcome, StopReason, TurnRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRead:
    """A body, each part of it read. `ignored` are the paths of what has no effect."""

    request: ResponsesRequest
    input: InputRead
    tools: ToolsRead
    choice: ChoiceRead
    format: FormatRead
    seals: Seals
    domain: bytes

    @property
    def ignored(self) -> tuple[str, ...]:
        read = (*self.input.ignored, *self.tools.ignored, *self.choice.ignored, *self.format.ignored)
        return (*warnings_of(self.request), *read)


class Preparer:
    """From the body to a turn and the means to answer it. Raises `InvalidRequest`."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def __call__(self, body: JsonObject, caller: Caller) -> PreparedTurn:
        return self.prepare(body, caller)

    def prepare(
        self, body: JsonObject, caller: Caller, *, frame: Frame = sse.named, may_be_empty: bool = False
    ) -> PreparedTurn:
        """`frame` writes the events of a stream; `may_be_empty`: the turn is not run."""
        read = self._read(body, caller)
        continues = read.input.compacts and read.request.continues
        if not (read.input.messages or continues or may_be_empty):
            raise refuse("input", "holds no item that says anything to a model here.")
        if read.input.compacts:
            return self._triggered(read, caller, frame)
        facts, unix_s = self._facts(read), self._edge.unix_s
        seal: Seal | None = read.seals.seal if read.request.encrypts_reasoning else None

        def answer(outcome: Outcome) -> bytes:
            return jsonio.encode(render_outcome(facts, outcome, completed_at=unix_s(), seal=seal))

        stream = ResponsesStream(facts, unix_s=unix_s, seal=seal, frame=frame) if read.request.stream else None
        return PreparedTurn(
            request=_turn(read, facts, caller),
            answer=answer,
            stream=stream,
            warnings=read.ignored,
            canonicalized=read.tools.offered.canonicalized,
        )

    def prepare_background(self, body: JsonObject, caller: Caller) -> tuple[PreparedTurn, Response]:
        """A turn that no connection waits for, its events written as they are logged; and the response as it waits."""
        prepared = self.prepare({**body, "stream": True}, caller, frame=event_json)
        stream = prepared.stream
        if not (prepared.request.store and isinstance(stream, ResponsesStream) and stream.queued is not None):
            raise refuse("store", "must be true for a response in the background: it is fetched later.")
        begun = structs.replace(prepared.request, background=True)
        return replace(prepared, request=begun), stream.queued

    def prepare_compaction(self, body: JsonObject, caller: Caller) -> PreparedTurn:
        """POST /v1/responses/compact."""
        read = self._read(body, caller, of=CompactRequest)
        if not read.input.messages and not read.request.continues:
            raise refuse("input", "must not be empty: there is nothing to compact.")
        turn = _turn(read, self._facts(read), caller)

        def answer(outcome: Outcome) -> bytes:
            return jsonio.encode(compacted(turn, outcome, read.seals.seal, created_at=self._edge.unix_s()))

        ignored = (*read.ignored, *(["stream"] if read.request.stream else []))
        return PreparedTurn(request=summary_turn(turn), answer=answer, stream=None, warnings=ignored, kept=False)

    def _triggered(self, read: RequestRead, caller: Caller, frame: Frame) -> PreparedTurn:
        """A response whose one item is the compaction: it is neither stored nor chained on."""
        facts, unix_s, seal = structs.replace(self._facts(read), store=False), self._edge.unix_s, read.seals.seal

        def summary(outcome: Outcome) -> CompactionItem:
            return compaction_item(facts.id, outcome, seal)

        def answer(outcome: Outcome) -> bytes:
            whole = structs.replace(outcome, stop_reason=StopReason.STOP)
            return jsonio.encode(render_outcome(facts, whole, completed_at=unix_s(), output=(summary(outcome),)))

        stream = ResponsesStream(facts, unix_s=unix_s, frame=frame, summary=summary) if read.request.stream else None
        ignored = (*read.ignored, *(["store"] if read.request.store else []))
        turn = summary_turn(_turn(read, facts, caller))
        return PreparedTurn(request=turn, answer=answer, stream=stream, warnings=ignored, kept=False)

    def _read(self, body: JsonObject, caller: Caller, *, of: type[ResponsesRequest] = ResponsesRequest) -> RequestRead:
        request = parse(of, body)
        check_supported(request)
        domain = self._edge.turns.domain(caller.tenant, request.cache_salt)
        seals = Seals(self._edge.turns, domain)
        said = read_input(request.input, seals)
        tools = read_tools(request.tools or (), canonicalize=self._edge.settings.canonicalize)
        return RequestRead(
            request=request,
            input=said,
            tools=tools,
            choice=read_choice(request.tool_choice, tools, parallel=request.parallel_tool_calls),
            format=read_format(request.text),
            seals=seals,
            domain=domain,
        )

    def _facts(self, read: RequestRead) -> ResponseFacts:
        request, card = read.request, self._edge.host.card(read.request.model)
        _, reasoning = read_thinking(request.reasoning)
        return ResponseFacts(
            id=RESPONSE_PREFIX + self._edge.new_token(),
            created_at=self._edge.unix_s(),
            model=request.model,
            previous_response_id=request.previous_response_id,
            conversation_id=request.conversation_id,
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            max_tool_calls=request.max_tool_calls,
            temperature=_effective(request.temperature, card.temperature if card else None),
            top_p=_effective(request.top_p, card.top_p if card else None),
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            top_logprobs=request.top_logprobs or 0,
            tools=read.tools.echo,
            tool_choice=read.choice.echo,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            text=read.format.echo,
            reasoning=reasoning,
            truncation=request.truncation or "disabled",
            store=request.store is not False,
            background=request.background is True,
            metadata=request.metadata or {},
            user=request.user,
            safety_identifier=request.safety_identifier,
            prompt_cache_key=request.prompt_cache_key,
        )


def _turn(read: RequestRead, facts: ResponseFacts, caller: Caller) -> TurnRequest:
    request = read.request
    thinking, _ = read_thinking(request.reasoning)
    return TurnRequest(
        request_id=caller.request_id,
        response_id=facts.id,
        dialect=Dialect.RESPONSES,
        tenant=caller.tenant,
        domain=read.domain,
        model=request.model,
        input=read.input.messages,
        instructions=request.instructions,
        previous_response_id=request.previous_response_id,
        conversation_id=request.conversation_id,
        compare_to=request.prompt_cache_options.comparison_response_id if request.prompt_cache_options else None,
        prompt_cache_key=request.prompt_cache_key,
        store=facts.store,
        retention_s=retention_of(request),
        sampling=sampling_of(request),
        max_output_tokens=request.max_output_tokens,
        tools=read.tools.offered.tools,
        tool_choice=read.choice.choice,
        text_format=read.format.format,
        thinking=thinking,
        top_logprobs=request.logprobs,
        echo=facts.echo(),
    )


def _effective(asked: float | None, default: float | None) -> float | None:
    return default if asked is None else asked
