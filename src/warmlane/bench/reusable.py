"""How much of a prompt could have been reused: its longest common token prefix with what the server has seen before.

Servers do not show their tokens, so there are two ways. A llama-server of the same model tells its own
(`/apply-template`, `/tokenize`): exact, and used where its count of the first prompt equals the measured server's.
Else the dialogues are compared message by message and character by character, and the server itself is asked how many
tokens the common part has (`/v1/messages/count_tokens`). That also counts what closes a message and opens the reply, so
it is an upper bound, some five tokens high at most; a prompt whose system prompt is another has nothing reusable there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

import msgspec

from warmlane.bench.agent_script import Entry, MessagesRequest, Words, common_messages
from warmlane.bench.client import BenchClient
from warmlane.bench.replies import Reply
from warmlane.errors import BenchError


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was answered."""

    request: MessagesRequest
    reply: Reply


class Reference(Protocol):
    """Says what is reusable; told of every exchange in order."""

    @property
    def method(self) -> str:
        """How, in words for the report."""
        ...

    async def reusable(self, request: MessagesRequest, reply: Reply) -> int:
        """Tokens of the request's prompt that are a prefix of an earlier prompt and its output, at most the prompt less
        one; the request then counts as seen, with its reply. Raises `BenchError`."""
        ...


async def pick_reference(client: BenchClient, server: BenchClient | None, first: Exchange) -> Reference:
    """The exact way if `server`, a llama-server, counts the first prompt as the measured server did."""
    if server is not None:
        served = ServedTokens(server)
        try:
            if len(await served.tokens(first.request)) == first.reply.prompt_tokens:
                return served
        except BenchError:
            pass
    return CountedTokens(client)


class _Prompt(msgspec.Struct, frozen=True):
    prompt: str


class _Tokens(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class ServedTokens:
    """Exact, from a llama-server's tokenizer. Replies are taken as their text would be tokenized."""

    method = "reusable tokens from llama-server's tokenizer, the billing line left out"

    def __init__(self, server: BenchClient) -> None:
        self._server = server
        self._seen: list[tuple[int, ...]] = []

    async def reusable(self, request: MessagesRequest, reply: Reply) -> int:
        tokens = await self.tokens(request)
        longest = max((common_prefix(tokens, seen) for seen in self._seen), default=0)
        self._seen.append(await self.tokens(request, reply.text))
        return min(longest, reply.prompt_tokens - 1)

    async def tokens(self, request: MessagesRequest, output: str = "") -> tuple[int, ...]:
        """The token ids of a prompt with an output behind it."""
        messages = [{"role": role, "content": text} for role, text in request.as_texts()]
        rendered = await self._server.post("/apply-template", {"messages": messages}, _Prompt)
        body = {"content": rendered.prompt + output, "add_special": True, "parse_special": True}
        return (await self._server.post("/tokenize", body, _Tokens)).tokens


class CountedTokens:
    """An upper bound, from the count endpoint of the measured server."""

    method = "reusable tokens from the server's own count of common text (an upper bound), the billing line left out"

    def __init__(self, client: BenchClient) -> None:
        self._client = client
        self._seen: list[Exchange] = []

    async def reusable(self, request: MessagesRequest, reply: Reply) -> int:
        texts = request.as_texts()
        best: tuple[tuple[int, int], Exchange] | None = None
        for seen in self._seen:
            common = common_messages(texts, seen.request.answered(seen.reply).as_texts())
            if best is None or common > best[0]:
                best = (common, seen)
        self._seen.append(Exchange(request, reply))
        if best is None or best[0][0] == 0:
            return 0
        (n_messages, n_chars), seen = best
        if n_messages == len(seen.request.entries) + 2:
            count = seen.reply.prompt_tokens + seen.reply.output_tokens
        else:
            count = await self._client.count_tokens(cut(request, n_messages, n_chars).body(None))
        return min(count, reply.prompt_tokens - 1)


def cut(request: MessagesRequest, n_messages: int, n_chars: int) -> MessagesRequest:
    """The request of the first `n_messages` (the system prompt is one), and of `n_chars` of the message behind them."""
    entries = list(request.entries[: n_messages - 1])
    if n_chars:
        entries.append(Entry("user", (Words(request.as_texts()[n_messages][1][:n_chars]),)))
    elif not entries or entries[-1].role == "assistant":
        entries.append(Entry("user", (Words("."),)))
    return replace(request, entries=tuple(entries))


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
