"""From a request and its history to token ids, on one model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from msgspec import structs

from warmlane.conversation.messages import Message, Role, Sampled, Text
from warmlane.conversation.tools import Tool, ToolMode
from warmlane.conversation.turn import TurnRequest
from warmlane.engine.protocol import Engine, PinnedPrefix, TextPiece, ThoughtLimit
from warmlane.engine.vectors import common_prefix
from warmlane.errors import ConfigError, ContextOverflow, InvalidRequest
from warmlane.prompts import ChatTemplate, PromptRenderer, SampledLedger, TemplateRejected
from warmlane.prompts.formats import detect_format, format_named
from warmlane.prompts.formats.base import EventParser, ThoughtMarks
from warmlane.turns.continuing import Begun, ContinuingParser, only_text


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole prompt: its token ids, as they are sent and as int32, the text they come from, what of that opens the
    reply, and what of the reply the client has begun."""

    ids: tuple[int, ...]
    tokens: npt.NDArray[np.int32] = field(repr=False)
    text: str = field(repr=False)
    opening: str = ""
    begun: Begun | None = None

    def __len__(self) -> int:
        """In tokens."""
        return len(self.ids)


class Prompter:
    """Renders and tokenizes for one engine, replaying sampled tokens wherever they are known, and knows how its model
    writes.

    `template` replaces the model's own, `output_format` names the format instead of the one the template lets assume.
    Raises `ConfigError` if there is no template, or no format of that name.
    """

    def __init__(
        self, engine: Engine, ledger: SampledLedger, *, template: str | None = None, output_format: str | None = None
    ) -> None:
        info = engine.info
        source = template or info.chat_template
        if not source:
            raise ConfigError(
                f"The model {info.model} carries no chat template. Give one with --chat-template FILE (Jinja)."
            )
        self._engine = engine
        self._ledger = ledger
        self._template = ChatTemplate(source, bos_token=info.bos_token, eos_token=info.eos_token)
        self.form = detect_format(source) if output_format is None else format_named(output_format)
        self.tokenizer = info.tokenizer
        self._renderer = PromptRenderer(
            self._template,
            self.form,
            special_tokens=info.special_tokens,
            tokenizer=info.tokenizer,
            bos_token=info.bos_token,
            add_bos=info.add_bos,
        )

    def recall(self, domain: bytes, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages, with the tokens of those replies this domain was given."""
        return self._ledger.recall(domain, messages)

    def remember(self, domain: bytes, message: Message) -> None:
        self._ledger.remember(domain, message)

    async def prompt(self, request: TurnRequest, messages: Sequence[Message]) -> Prompt:
        """The prompt that asks for the next reply: the request's instructions and tools, then `messages`, which are
        its history and input. Raises `InvalidRequest` if the template refuses, or opens a reply with a thought where
        one is continued."""
        beginning: Message | None = None
        if request.continues:
            *messages, beginning = messages
        instructions = request.instructions
        head = () if instructions is None else (Message(Role.SYSTEM, (Text(instructions),)),)
        try:
            plan = self._renderer.plan((*head, *messages), tools=request.tools, thinking=request.thinking)
        except TemplateRejected as error:
            raise InvalidRequest(f"This model's chat template does not take these messages: {error.message}") from error
        pieces = [TextPiece(run.text, run.special, run.bos, run.joined) for run in plan.texts]
        ids = plan.assemble(await self._engine.tokenize(pieces) if pieces else [])
        if beginning is None:
            return Prompt(ids, np.asarray(ids, np.int32), plan.text, plan.opening)
        lead = self.form.text_opening if self.reads_markup(request) else ""
        begun = await self._begun(beginning, "" if plan.opening.endswith(lead) else lead)
        ids += begun.token_ids
        prompt = Prompt(ids, np.asarray(ids, np.int32), plan.text + begun.text, plan.opening, begun)
        self._check_continued(request, prompt)
        return prompt

    async def _begun(self, beginning: Message, lead: str) -> Begun:
        """The beginning of a reply behind the markup that leads it in, as far as it is known by the tokens that were
        sampled."""
        text, sampled = lead + beginning.text, beginning.sampled
        if sampled is None or sampled.tokenizer != self.tokenizer or not text.startswith(sampled.text):
            sampled = Sampled((), "", self.tokenizer)
        known = len(sampled.text)
        pieces = [
            TextPiece(text[known : len(lead)], True, joined=bool(known)),
            TextPiece(text[max(known, len(lead)) :], False, joined=bool(known)),
        ]
        tokenized = await self._engine.tokenize([piece for piece in pieces if piece.text])
        return Begun(beginning.text, text, (*sampled.token_ids, *itertools.chain(*tokenized)))

    def _check_continued(self, request: TurnRequest, prompt: Prompt) -> None:
        parser = self._parser(request, prompt, new_call_id=str)
        if prompt.begun is not None and parser is not None and not only_text(parser, prompt.begun):
            raise InvalidRequest(
                "The reply that the last message begins cannot be continued: this model opens its replies with a "
                "thought, or takes part of the message for markup.",
                param="messages",
            )

    async def pinned(
        self, request: TurnRequest, messages: Sequence[Message], prompt: Prompt
    ) -> tuple[PinnedPrefix, ...]:
        """How much of the prompt is to be kept. What a template does not show alone is not pinned."""
        pins = []
        for pin in request.pins:
            n_tokens = len(prompt)
            n_left_out = len(request.input) - pin.n_messages
            if n_left_out > 0:
                try:
                    asked = structs.replace(request, continues=False)
                    part = await self.prompt(asked, messages[: len(messages) - n_left_out])
                except InvalidRequest:
                    continue
                n_tokens = common_prefix(part.tokens, prompt.tokens)
            pins.append(PinnedPrefix(n_tokens, pin.ttl_s))
        return tuple(pins)

    async def thought_limit(self, request: TurnRequest, prompt: Prompt) -> ThoughtLimit | None:
        """The bound that the request sets to the reply's reasoning, if the model can reason."""
        budget, marks = request.thinking.budget_tokens, self._thought_marks(request)
        if budget is None or marks is None:
            return None
        (ending,) = await self._engine.tokenize([TextPiece(marks.ending, special=True, joined=True)])
        return ThoughtLimit(
            max_tokens=budget,
            opens=marks.opens,
            closes=marks.closes,
            ending=tuple(ending),
            inside=self.form.opens_thought(prompt.opening),
        )

    def _thought_marks(self, request: TurnRequest) -> ThoughtMarks | None:
        if not self._template.mentions_reasoning:
            return None
        return self.form.thought_marks(calls=bool(_callable_tools(request)))

    def reads_markup(self, request: TurnRequest) -> bool:
        """Whether a reply may hold more than text: calls, or reasoning the model's template knows of."""
        return bool(_callable_tools(request)) or self._template.mentions_reasoning

    def parser(self, request: TurnRequest, prompt: Prompt, *, new_call_id: Callable[[], str]) -> EventParser | None:
        """A parser of the reply; None where all of it is text."""
        parser = self._parser(request, prompt, new_call_id=new_call_id)
        return parser if parser is None or prompt.begun is None else ContinuingParser(parser, prompt.begun)

    def _parser(self, request: TurnRequest, prompt: Prompt, *, new_call_id: Callable[[], str]) -> EventParser | None:
        if not self.reads_markup(request):
            return None
        return self.form.parser(_callable_tools(request), new_call_id=new_call_id, opening=prompt.opening)

    def warnings(self, request: TurnRequest) -> tuple[str, ...]:
        """What of the request this model or its format cannot do as asked."""
        thinking, template = request.thinking, self._template
        # Without a switch, a model that thinks does so anyway, and one that does not is as asked where it should not.
        unswitched = thinking.enabled is not None and thinking.enabled != template.mentions_reasoning
        ignored = (
            ("thinking", unswitched and not template.knows_thinking_switch),
            ("reasoning effort", thinking.effort is not None and not template.knows_effort),
        )
        named = tuple(f"{name}: this model's template has no switch for it" for name, applies in ignored if applies)
        unbounded = thinking.budget_tokens is not None and self._thought_marks(request) is None
        return (*named, "thinking budget: this model has no reasoning to bound") if unbounded else named

    def check_fits(self, prompt: Prompt) -> None:
        """Raises `ContextOverflow` unless the prompt leaves room for at least one token of output."""
        window = self._engine.info.n_ctx
        if len(prompt) >= window:
            raise ContextOverflow(len(prompt), window)


def _callable_tools(request: TurnRequest) -> tuple[Tool, ...]:
    return () if request.tool_choice.mode is ToolMode.NONE else request.tools
