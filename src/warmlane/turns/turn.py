"""One turn, in order. Read `_run` from top to bottom.

The turn runs in a task of the host's. What may be aborted stands inside `flag.heeded()`; everything from the commit on
does not, so once a reply is committed its row is written, its session adopted or disposed, its disposals flushed and
its seat handed over, whatever the connection does.
"""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog

from warmlane.clock import Timer
from warmlane.conversation.events import Failed, Finished, Loading, Validated
from warmlane.conversation.messages import Role
from warmlane.conversation.turn import (
    Dialect,
    Outcome,
    Timings,
    TurnRequest,
)
from warmlane.engine.protocol import PinnedPrefix, ThoughtLimit
from warmlane.errors import EngineDied, EngineFault, QueueTimeout, Unavailable, WarmlaneError
from warmlane.host import Binding
from warmlane.sessions import Lease, LeaseQuery
from warmlane.store import stored_turn
from warmlane.turns.asked import Asked, messages_of, read_asked
from warmlane.turns.cache_facts import cache_facts
from warmlane.turns.cancel import CancelFlag, TurnCancelled
from warmlane.turns.choices import Ask, Choices
from warmlane.turns.constraint import Constraint, constraint_of
from warmlane.turns.diagnosis import diagnose
from warmlane.turns.history import History
from warmlane.turns.leftovers import Leftover
from warmlane.turns.parts import ModelPermit, SpineParts
from warmlane.turns.prompting import Prompt
from warmlane.turns.reader import ReplyReader
from warmlane.turns.reply import Reply
from warmlane.turns.report import report
from warmlane.turns.stream import ReaderStalled, TurnStream
from warmlane.turns.suspects import fingerprint
from warmlane.turns.traces import Trace, tools_digest

log = structlog.stdlib.get_logger("warmlane.turn")

LOADING_AFTER_S = 0.5
"""How long a client waits for a model that loads before it is told so; a load that fails sooner has a status."""


class _BindingChanged(Exception):
    """The model was swapped or unloaded while the turn waited for its seat."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A validated request, its model, what the reply is held to and how much of the prompt is to stay warm."""

    binding: Binding
    asked: Asked
    constraint: Constraint
    pins: tuple[PinnedPrefix, ...]
    thought: ThoughtLimit | None


class Turn:
    """One request on its way. `run` never raises; every end is told to the stream exactly once."""

    def __init__(
        self, parts: SpineParts, request: TurnRequest, permit: ModelPermit, stream: TurnStream, flag: CancelFlag
    ) -> None:
        self._parts = parts
        self._request = request
        self._permit = permit
        self._stream = stream
        self._flag = flag
        self._queued_s = 0.0
        self._validated = False
        self._choices: Choices | None = None
        self._prefilled: Trace | None = None
        self._outcome: Outcome | None = None
        self._history = History()
        self._deleted = False

    @property
    def continues(self) -> tuple[str, str] | None:
        """Id and tenant of the response that the client named as the one before."""
        previous = self._request.previous_response_id
        return None if previous is None else (previous, self._request.tenant)

    @property
    def speaks_in(self) -> tuple[str, str] | None:
        """Id and tenant of the conversation that the client named."""
        conversation = self._request.conversation_id
        return None if conversation is None else (conversation, self._request.tenant)

    def delete(self) -> None:
        """The client deleted the response this turn will be: stop, or if it has committed leave no row."""
        self._deleted = True
        self._flag.set(TurnCancelled("The response was deleted."))

    def cancel(self) -> None:
        """Stop, unless it has committed."""
        self._flag.set(TurnCancelled("The response was cancelled."))

    async def run(self) -> None:
        failure: WarmlaneError | None = None
        try:
            await self._run()
        except WarmlaneError as error:
            failure = error
        except ReaderStalled:
            failure = TurnCancelled("The reader took nothing for the drain timeout.")
        except Exception:
            log.exception("turn_failed", request_id=self._request.request_id)
            failure = EngineFault("The server failed on this turn.")
        finally:
            self._permit.release()
        if failure is not None:
            if self._request.background:
                self._parts.leftovers.note(self._request.response_id, self._leftover())
            await self._stream.finish(Failed(failure, None if self._choices is None else self._choices.spent))
        report(
            self._parts.metrics,
            self._request,
            self._outcome,
            failure,
            queued_s=self._queued_s,
            log_text=self._parts.log_text,
        )

    def _leftover(self) -> Leftover | None:
        """What this turn has left in the cache though it did not end well."""
        if self._prefilled is None:
            return None
        spent = None if self._choices is None else self._choices.spent
        if spent is None:
            return Leftover(self._prefilled.tokens)
        return Leftover(self._prefilled.tokens, spent.cached_tokens, answered=spent.output_tokens > 0)

    async def _run(self) -> None:
        deadline = self._flag.set_at(self._permit.deadline, self._parts.queue_timeout())
        try:
            try:
                await self._attempt(deadline)
            except _BindingChanged:
                self._permit.rebind()
                await self._attempt(deadline)
        except _BindingChanged:
            raise Unavailable("The model was replaced twice while this turn waited.") from None
        finally:
            deadline.cancel()

    async def _attempt(self, deadline: Timer) -> None:
        prepared = await self._prepare()
        if not self._validated:
            self._validated = True
            asked = prepared.asked
            warnings = (*asked.prompter.warnings(asked.request), *prepared.constraint.warnings)
            await self._stream.put(Validated(warnings))
        await self._seated(prepared, deadline)

    async def _seated(self, prepared: _Prepared, deadline: Timer) -> None:
        binding, registry = prepared.binding, prepared.binding.registry
        async with AsyncExitStack() as held:
            await self._take_seat(binding, held)
            deadline.cancel()
            lease = registry.lease(self._query())
            try:
                try:
                    async with self._flag.heeded():
                        await registry.flush_after_lease(lease)
                        prompt = await self._prompt(lease, prepared)
                        trace = self._prefilled = self._trace(binding, prompt)
                        with self._parts.suspects(binding).watched(fingerprint(lease.domain, prompt.tokens)):
                            choices = await self._generate(lease, prepared, trace, prompt)
                    self._outcome = self._commit(lease, prepared, trace, choices)
                except BaseException:
                    await registry.give_back(lease)
                    raise
                await self._settle(binding, lease, self._outcome)
            finally:
                await registry.flush_before_leave(lease)

    async def _take_seat(self, binding: Binding, held: AsyncExitStack) -> None:
        """Lane, then reader. Raises `_BindingChanged` if the model is not what the turn was prepared for any more."""
        try:
            async with self._flag.heeded():
                seat = await held.enter_async_context(binding.lane.enter(self._permit.lane_permit))
                await held.enter_async_context(binding.gate.reader())
        except QueueTimeout:
            raise self._parts.queue_timeout(retry_after_s=binding.lane.retry_after_s()) from None
        except Unavailable:
            if self._parts.host.is_current(binding):
                raise
        if not self._parts.host.is_current(binding):
            raise _BindingChanged
        self._queued_s = seat.waited_s
        self._parts.metrics.queue_wait_s.labels(binding.name).observe(seat.waited_s)

    async def _bound(self) -> Binding:
        """The model, once it is resident."""
        clock = self._parts.clock
        loading = clock.call_at(clock.now() + LOADING_AFTER_S, lambda: self._stream.tell(Loading()))
        try:
            return await self._permit.bound()
        finally:
            loading.cancel()

    async def _prepare(self) -> _Prepared:
        """History, rendering and every check that needs the model: nothing is leased yet.

        No unload waits for this, so the engine may go meanwhile: `_BindingChanged` is raised then.
        """
        request = self._request
        async with self._flag.heeded():
            binding = await self._bound()
            try:
                asked = await read_asked(self._parts, binding, request)
                pins = await _pinned(asked)
                thought = await asked.prompter.thought_limit(asked.request, asked.prompt)
            except EngineDied:
                if self._parts.host.is_current(binding):
                    raise
                raise _BindingChanged from None
            asked.prompter.check_fits(asked.prompt)
            constraint = await constraint_of(asked.prompter.form, request, opening=asked.prompt.opening)
            self._parts.suspects(binding).check(fingerprint(request.domain, asked.prompt.tokens))
        self._request, self._history = asked.request, asked.history
        return _Prepared(binding, asked, constraint, pins, thought)

    def _query(self) -> LeaseQuery:
        request = self._request
        return LeaseQuery(
            previous_response_id=self._history.previous_response_id,
            prompt_cache_key=request.prompt_cache_key,
            instructions=_canonical_instructions(request),
            tenant=request.tenant,
            domain=request.domain,
            history=(*self._history.messages, *request.input),
            stateless=_stateless(request),
            response_id=request.response_id,
            other_model=self._history.other_model,
        )

    async def _prompt(self, lease: Lease, prepared: _Prepared) -> Prompt:
        """The prompt that extends what the engine really holds: rendered again only where the leased session knows
        replies by their tokens that the history did not."""
        request, asked = self._request, prepared.asked
        known = asked.history.messages
        if lease.hit and self._history.previous_response_id is not None and lease.session.history != known:
            messages = messages_of(asked.prompter, request, lease.session.history)
            prompt = await asked.prompter.prompt(request, messages)
            asked.prompter.check_fits(prompt)
            return prompt
        return asked.prompt

    def _trace(self, binding: Binding, prompt: Prompt) -> Trace:
        instructions = _canonical_instructions(self._request)
        return Trace(binding.name, instructions, prompt.tokens, prompt.text, tools_digest(self._request.tools))

    async def _generate(self, lease: Lease, prepared: _Prepared, trace: Trace, prompt: Prompt) -> Choices:
        request, prompter, registry = self._request, prepared.asked.prompter, prepared.binding.registry
        diagnosis = diagnose(self._parts.traces, request, self._history.previous_response_id, trace)

        def reply() -> Reply:
            # Where there is markup the engine sees it too, and a stop string must not match in it.
            parser = prompter.parser(request, prompt, new_call_id=self._new_call_id)
            reader = ReplyReader(parser, stop=request.stop if parser else (), logprobs=request.top_logprobs is not None)
            return Reply(reader, diagnosis=diagnosis, now=self._parts.clock.now)

        markup = prompter.reads_markup(request)
        ask = Ask(
            request=request,
            prompt=prompt.ids,
            stop=() if markup else request.stop,
            grammar=prepared.constraint.grammar,
            special_text=markup and prompter.form.special_text,
            pins=prepared.pins,
            thought=prepared.thought,
        )
        choices = self._choices = Choices(ask, [reply() for _ in range(request.n_choices)], self._stream.put)
        self._parts.domains.note(request.tenant, request.domain)
        if registry.paged:
            await choices.at_once(lease.session, discard=lambda sibling: registry.discard(lease, sibling))
        else:
            await choices.in_turn(lease.session)
        return choices

    def _new_call_id(self) -> str:
        prefix = "toolu" if self._request.dialect is Dialect.MESSAGES else "call"
        return f"{prefix}_{self._parts.new_call_id()}"

    def _commit(self, lease: Lease, prepared: _Prepared, trace: Trace, choices: Choices) -> Outcome:
        """The reply becomes part of the conversation. No await: it happens whole or not at all."""
        first, prompter, domain = choices.first, prepared.asked.prompter, self._request.domain
        ended, leading = first.ending(), choices.leading
        message = first.message(prompter.tokenizer)
        others = choices.others(prompter.tokenizer)
        whole = [prepared.asked.whole(said) for said in (message, *(other.message for other in others))]
        asked = messages_of(prompter, self._request, prepared.asked.history.messages)
        history = (*(asked[:-1] if self._request.continues else asked), whole[0])
        prompt = trace.tokens
        trace = trace.answered(ended.token_ids, ended.token_text)
        lease.session.commit(history, len(trace.tokens))
        # The last: where another choice says the same, the tokens of the first are warmer.
        for said in reversed(whole):
            prompter.remember(domain, said)
        self._parts.traces.remember(domain, self._request.response_id, trace)
        return Outcome(
            message=message,
            stop_reason=first.stop_reason,
            stop_sequence=ended.stop_sequence,
            usage=choices.usage,
            cache=cache_facts(lease, leading, prompt),
            logprobs=first.reader.logprobs,
            others=others,
            timings=Timings(self._queued_s * 1000, leading.ending().prefill_ms, choices.decode_ms),
        )

    async def _settle(self, binding: Binding, lease: Lease, outcome: Outcome) -> None:
        """Row, adoption, terminal event, in this order: who chains on seeing the event must hit."""
        request, registry = self._request, binding.registry
        if request.store:
            try:
                await self._save(outcome)
                if self._deleted:
                    await self._parts.store.delete(request.response_id, request.tenant)
            except BaseException:
                await registry.abandon(lease)
                raise
        adoption = registry.adopt(lease, request.response_id, retention_s=request.retention_s)
        if await self._stream.finish(Finished(outcome)):
            adoption.keep()
        else:
            adoption.revoke()

    async def _save(self, outcome: Outcome) -> None:
        """Raises `TurnCancelled` if this was begun in the background and its row is gone: deleted, or ended by another
        server that took this one for dead."""
        row = stored_turn(self._request, outcome.without_excerpts(), created_at=self._parts.unix_now())
        store, continued = self._parts.store, self._history.continued
        if not self._request.background:
            await store.save(row, continued=continued)
        elif not await store.runs.complete(row, continued=continued):
            raise TurnCancelled("The response was deleted, or given up by another server.")


async def _pinned(asked: Asked) -> tuple[PinnedPrefix, ...]:
    if not asked.request.pins:
        return ()
    messages = messages_of(asked.prompter, asked.request, asked.history.messages)
    return await asked.prompter.pinned(asked.request, messages, asked.prompt)


def _stateless(request: TurnRequest) -> bool:
    """Whether the client replays its history and names no session: Messages, and Chat without a key."""
    if request.dialect is Dialect.CHAT:
        return request.prompt_cache_key is None
    return request.dialect is Dialect.MESSAGES


def _canonical_instructions(request: TurnRequest) -> str | None:
    """What the registry's instruction gate compares: the field where the dialect has one, else the system messages the
    history opens with."""
    if request.instructions is not None or request.dialect is Dialect.RESPONSES:
        return request.instructions
    opening = tuple(itertools.takewhile(lambda m: m.role in (Role.SYSTEM, Role.DEVELOPER), request.input))
    return "\n\n".join(message.text for message in opening) if opening else None
