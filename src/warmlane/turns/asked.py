"""What a request asks of one model, checked and rendered: the same for a turn and for a count of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Dialect, TurnRequest
from warmlane.host import Binding
from warmlane.sessions import canonical_tool_results
from warmlane.turns.history import History, read_history
from warmlane.turns.parts import SpineParts
from warmlane.turns.prompting import Prompt, Prompter


@dataclass(frozen=True, slots=True)
class Asked:
    """`request` with its tool results in the order of the calls they answer, what it continues, and the prompt it would
    prefill cold."""

    request: TurnRequest
    history: History
    prompter: Prompter
    prompt: Prompt

    def whole(self, reply: Message) -> Message:
        """A reply to this with what the client had begun of it."""
        begun = self.prompt.begun
        return reply if begun is None else begun.whole(reply, self.prompter.tokenizer)


async def read_asked(parts: SpineParts, binding: Binding, request: TurnRequest) -> Asked:
    """It changes nothing. Raises `PreviousResponseNotFound`, and `InvalidRequest` where the input does not answer
    exactly the calls that are open, or the model cannot do what is asked."""
    prompter = parts.prompter(binding)
    history = await read_history(parts, binding, request)
    param = "input" if request.dialect is Dialect.RESPONSES else "messages"
    request = structs.replace(request, input=canonical_tool_results(history.messages, request.input, param=param))
    prompt = await prompter.prompt(request, messages_of(prompter, request, history.messages))
    return Asked(request, history, prompter, prompt)


def messages_of(prompter: Prompter, request: TurnRequest, history: tuple[Message, ...]) -> tuple[Message, ...]:
    """The whole dialogue, replies of this domain with their tokens."""
    return (*history, *prompter.recall(request.domain, request.input))
