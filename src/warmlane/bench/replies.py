"""Streams of both dialects as replies: the text, when each piece of it came, and the usage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

import msgspec

from warmlane.errors import BenchError

Event = TypeVar("Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call the model made; `arguments` is its JSON text, `{}` if it was cut short."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A streamed answer. Times are in seconds since the request was sent: `ttft_s` of the first piece of text, thoughts
    and tool calls included, or of the end where the first token was it; `piece_times_s` of every piece; `total_s` of
    the end.

    `output_tokens` and `prompt_tokens` are the server's count; `cached_tokens` are those of the prompt it reused.
    `miss_reason` is why it reused less than it could, where it says so.
    """

    text: str
    ttft_s: float
    piece_times_s: tuple[float, ...]
    total_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    tool_uses: tuple[ToolUse, ...] = ()
    miss_reason: str = ""

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Seconds between neighbouring pieces."""
        times = self.piece_times_s
        return tuple(later - earlier for earlier, later in pairwise(times))


class Transcript(Protocol):
    """Collects the events of one stream."""

    def add(self, data: str, at_s: float) -> bool:
        """Take one event's data; whether it brought a piece of text. Raises `BenchError` for an error event."""
        ...

    def reply(self, total_s: float) -> Reply:
        """The answer. Raises `BenchError` if the stream brought neither text nor a token, or no usage."""
        ...


class SseData:
    """Lines of a server-sent event stream to the data of its events (WHATWG HTML, section 9.2.6)."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def feed(self, line: str) -> str | None:
        """Take a line without its end; the data of the event it completes, if it completes one."""
        if line == "":
            data, self._lines = "\n".join(self._lines), []
            return data or None
        if line.startswith("data:"):
            self._lines.append(line[5:].removeprefix(" "))
        return None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _ChatUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct, frozen=True):
    """llama-server's own: tokens of the prompt that were reused."""

    cache_n: int | None = None


class _ChatDelta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _ChatDelta = _ChatDelta()


class _Facts(msgspec.Struct, frozen=True):
    cache_miss_reason: str = ""


class _ChatChunk(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()
    usage: _ChatUsage | None = None
    timings: _Timings | None = None
    warmlane: _Facts | None = None
    error: msgspec.Raw = msgspec.Raw()


class ChatTranscript:
    """Chat Completions, with `stream_options.include_usage`."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._times: list[float] = []
        self._usage: _ChatUsage | None = None
        self._cached: int | None = None
        self._reason = ""

    def add(self, data: str, at_s: float) -> bool:
        if data == "[DONE]":
            return False
        chunk = _decode(data, _CHAT)
        _check_error(chunk.error)
        self._usage = chunk.usage or self._usage
        if chunk.usage and chunk.usage.prompt_tokens_details:
            self._cached = chunk.usage.prompt_tokens_details.cached_tokens
        if self._cached is None and chunk.timings:
            self._cached = chunk.timings.cache_n
        if chunk.warmlane:
            self._reason = chunk.warmlane.cache_miss_reason
        spoken = False
        for choice in chunk.choices:
            spoken = bool(choice.delta.content or choice.delta.reasoning_content) or spoken
            self._text.append(choice.delta.content or "")
        if spoken:
            self._times.append(at_s)
        return spoken

    def reply(self, total_s: float) -> Reply:
        if self._usage is None:
            raise BenchError("The stream ended without its usage.")
        return Reply(
            text="".join(self._text),
            ttft_s=_first(self._times, self._usage.completion_tokens, total_s),
            piece_times_s=tuple(self._times),
            total_s=total_s,
            prompt_tokens=self._usage.prompt_tokens,
            cached_tokens=self._cached or 0,
            output_tokens=self._usage.completion_tokens,
            miss_reason=self._reason,
        )


class _MessagesUsage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None


class _Message(msgspec.Struct, frozen=True):
    usage: _MessagesUsage = _MessagesUsage()


class _Block(msgspec.Struct, frozen=True):
    type: str = ""
    id: str = ""
    name: str = ""


class _BlockDelta(msgspec.Struct, frozen=True):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _MessagesEvent(msgspec.Struct, frozen=True):
    type: str
    message: _Message = _Message()
    content_block: _Block = _Block()
    delta: _BlockDelta = _BlockDelta()
    usage: _MessagesUsage = _MessagesUsage()
    warmlane: _Facts | None = None
    error: msgspec.Raw = msgspec.Raw()


@dataclass(slots=True)
class _OpenCall:
    call_id: str
    name: str
    pieces: list[str] = field(default_factory=list)

    def close(self) -> ToolUse:
        arguments = "".join(self.pieces)
        try:
            json.loads(arguments)
        except ValueError:
            arguments = "{}"
        return ToolUse(call_id=self.call_id, name=self.name, arguments=arguments)


class MessagesTranscript:
    """Anthropic Messages. Thoughts count as pieces and are not kept: this client drops them from its history."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._times: list[float] = []
        self._calls: list[_OpenCall] = []
        self._fresh = 0
        self._cached = 0
        self._output: int | None = None
        self._reason = ""

    def add(self, data: str, at_s: float) -> bool:
        event = _decode(data, _MESSAGES)
        _check_error(event.error)
        self._count(event.message.usage)
        self._count(event.usage)
        if event.type == "message_delta":
            self._output = event.usage.output_tokens
        if event.warmlane:
            self._reason = event.warmlane.cache_miss_reason
        if event.type == "content_block_start" and event.content_block.type == "tool_use":
            self._calls.append(_OpenCall(event.content_block.id, event.content_block.name))
        delta = event.delta
        self._text.append(delta.text)
        if delta.partial_json and self._calls:
            self._calls[-1].pieces.append(delta.partial_json)
        spoken = bool(delta.text or delta.thinking or delta.partial_json)
        if spoken:
            self._times.append(at_s)
        return spoken

    def reply(self, total_s: float) -> Reply:
        if self._output is None:
            raise BenchError("The stream ended without its usage.")
        return Reply(
            text="".join(self._text),
            ttft_s=_first(self._times, self._output, total_s),
            piece_times_s=tuple(self._times),
            total_s=total_s,
            prompt_tokens=self._fresh + self._cached,
            cached_tokens=self._cached,
            output_tokens=self._output,
            tool_uses=tuple(call.close() for call in self._calls),
            miss_reason=self._reason,
        )

    def _count(self, usage: _MessagesUsage) -> None:
        """The latest count wins: servers repeat the prompt's at the end, some say it there alone."""
        if usage.input_tokens is not None:
            self._fresh = usage.input_tokens + (usage.cache_creation_input_tokens or 0)
        if usage.cache_read_input_tokens is not None:
            self._cached = usage.cache_read_input_tokens


_CHAT = msgspec.json.Decoder(_ChatChunk)
_MESSAGES = msgspec.json.Decoder(_MessagesEvent)


def _decode(data: str, decoder: msgspec.json.Decoder[Event]) -> Event:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise BenchError(f"The stream holds what is not an event of its dialect: {error}.") from None


def _check_error(error: msgspec.Raw) -> None:
    text = bytes(error).decode()
    if text and text != "null":
        raise BenchError(f"The stream ended in an error: {text[:300]}")


def _first(times: list[float], n_output: int, total_s: float) -> float:
    """When the first token was heard of. One that ends the reply at once has no text: the end tells of it."""
    if times:
        return times[0]
    if not n_output:
        raise BenchError("The stream brought no text.")
    return total_s
