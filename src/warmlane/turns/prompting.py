"""From a request and its history to token ids, on one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from warmlane.conversation.messages import Message, Role, Text
from warmlane.engine.protocol import Engine, TextPiece
from warmlane.errors import ConfigError, ContextOverflow, InvalidRequest
from warmlane.prompts import ChatTemplate, PromptRenderer, SampledLedger, TemplateRejected


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole prompt: its token ids, as they are sent and as int32, and the text they come from."""

    ids: tuple[int, ...]
    tokens: npt.NDArray[np.int32] = field(repr=False)
    text: str = field(repr=False)

    def __len__(self) -> int:
        """In tokens."""
        return len(self.ids)


class Prompter:
    """Renders and tokenizes for one engine, replaying sampled tokens wherever they are known.

    `template` replaces the model's own. Raises `ConfigError` if there is neither.
    """

    def __init__(self, engine: Engine, ledger: SampledLedger, *, template: str | None = None) -> None:
        info = engine.info
        source = template or info.chat_template
        if not source:
            raise ConfigError(
                f"The model {info.model} carries no chat template. Give one with --chat-template FILE (Jinja)."
            )
        self._engine = engine
        self._ledger = ledger
        self.tokenizer = info.tokenizer
        self._renderer = PromptRenderer(
            ChatTemplate(source, bos_token=info.bos_token, eos_token=info.eos_token),
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

    async def prompt(self, instructions: str | None, messages: Sequence[Message]) -> Prompt:
        """The prompt that asks for the next reply. Raises `InvalidRequest` if the template refuses."""
        head = () if instructions is None else (Message(Role.SYSTEM, (Text(instructions),)),)
        try:
            plan = self._renderer.plan((*head, *messages))
        except TemplateRejected as error:
            raise InvalidRequest(f"This model's chat template does not take these messages: {error.message}") from error
        pieces = [TextPiece(run.text, run.special, run.bos) for run in plan.texts]
        ids = plan.assemble(await self._engine.tokenize(pieces) if pieces else [])
        return Prompt(ids, np.asarray(ids, np.int32), plan.text)

    def check_fits(self, prompt: Prompt) -> None:
        """Raises `ContextOverflow` unless the prompt leaves room for at least one token of output."""
        window = self._engine.info.n_ctx
        if len(prompt) >= window:
            raise ContextOverflow(len(prompt), window)
