"""Output items while they are written, and when they are done: the same for a stream and for an answer in one piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from msgspec import UNSET

from warmlane.api.responses.sealed import Sealed, SealedReasoning
from warmlane.api.responses.wire import (
    FunctionCallItem,
    ItemStatus,
    Logprob,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    SummaryText,
    TopLogprob,
)
from warmlane.conversation.messages import Message, Part, Reasoning, Sampled, Text, ToolCall
from warmlane.conversation.tools import TokenLogprob

RESPONSE_PREFIX = "resp_"

Seal = Callable[[Sealed], str]


class Kind(StrEnum):
    """What an item is; the value is the prefix of its id."""

    MESSAGE = "msg"
    REASONING = "rs"
    CALL = "fc"
    COMPACTION = "cmp"


def item_id(response_id: str, kind: Kind, index: int) -> str:
    """The id of output item `index`: the response's own digits and the index, so that it is the same each time."""
    return f"{kind.value}_{response_id.removeprefix(RESPONSE_PREFIX)}{index:04x}"


@dataclass(slots=True, kw_only=True)
class ItemDraft:
    """One item. `call` is the id and name of a function call, `sampled` what goes sealed with reasoning."""

    kind: Kind
    id: str
    index: int
    call: tuple[str, str] = ("", "")
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    sampled: Sampled | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def part(self) -> OutputText:
        """The one content part of a message."""
        return OutputText(self.text, logprobs=tuple(self.logprobs))

    def opened(self) -> OutputItem:
        """The item as it is announced: nothing in it yet."""
        if self.kind is Kind.CALL:
            return FunctionCallItem(self.id, "in_progress", *self.call)
        return (ReasoningItem if self.kind is Kind.REASONING else MessageItem)(self.id, "in_progress")

    def done(self, status: ItemStatus, seal: Seal | None) -> OutputItem:
        """The item as it stays. With `seal`, reasoning carries its encrypted content."""
        if self.kind is Kind.CALL:
            return FunctionCallItem(self.id, status, *self.call, self.text)
        if self.kind is Kind.MESSAGE:
            return MessageItem(self.id, status, (self.part,))
        sealed = UNSET if seal is None else seal(SealedReasoning(self.text, self.sampled))
        return ReasoningItem(self.id, status, (SummaryText(self.text),), sealed)


def output_items(
    response_id: str,
    message: Message,
    *,
    cut: bool = False,
    logprobs: Sequence[TokenLogprob] = (),
    seal: Seal | None = None,
) -> tuple[OutputItem, ...]:
    """An assistant message as output items; never none, as a message of no words is still the model's answer.

    Neighbouring parts of one kind are one item, as in a stream. `cut` marks the last item incomplete. The first
    reasoning item carries the reply's tokens, if any does.
    """
    drafts = list(_drafts(response_id, message))
    _share(logprobs, [draft for draft in drafts if draft.kind is Kind.MESSAGE])
    thoughts = next((draft for draft in drafts if draft.kind is Kind.REASONING), None)
    if thoughts is not None:
        thoughts.sampled = message.sampled
    last = len(drafts) - 1
    return tuple(draft.done("incomplete" if cut and draft.index == last else "completed", seal) for draft in drafts)


def wire_logprobs(logprobs: Sequence[TokenLogprob]) -> list[Logprob]:
    return [
        Logprob(
            each.token,
            each.logprob,
            tuple(each.data),
            tuple(TopLogprob(top.token, top.logprob, tuple(top.data)) for top in each.top),
        )
        for each in logprobs
    ]


def _drafts(response_id: str, message: Message) -> Iterator[ItemDraft]:
    groups = list(_grouped(message.parts)) or [(Kind.MESSAGE, [Text("")])]
    for index, (kind, parts) in enumerate(groups):
        draft = ItemDraft(kind=kind, id=item_id(response_id, kind, index), index=index)
        for part in parts:
            if isinstance(part, ToolCall):
                draft.call = (part.call_id, part.name)
                draft.pieces.append(part.arguments)
            else:
                draft.pieces.append(part.text)
        yield draft


def _grouped(parts: tuple[Part, ...]) -> Iterator[tuple[Kind, list[Part]]]:
    said = [part for part in parts if not (isinstance(part, Text | Reasoning) and not part.text)]
    for kind, group in groupby(said, key=_kind):
        if kind is Kind.CALL:
            yield from ((kind, [call]) for call in group)
        else:
            yield kind, list(group)


def _kind(part: Part) -> Kind:
    if isinstance(part, ToolCall):
        return Kind.CALL
    return Kind.REASONING if isinstance(part, Reasoning) else Kind.MESSAGE


def _share(logprobs: Sequence[TokenLogprob], messages: list[ItemDraft]) -> None:
    """Each message its own tokens, by the bytes they make up; the last takes what is left."""
    rest = deque(wire_logprobs(logprobs))
    for draft in messages[:-1]:
        size = len(draft.text.encode("utf-8", "surrogatepass"))
        while rest and size > 0:
            draft.logprobs.append(rest.popleft())
            size -= len(draft.logprobs[-1].bytes)
    if messages:
        messages[-1].logprobs.extend(rest)
