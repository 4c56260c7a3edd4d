"""The client of a coding agent: what it sends at each call, from a seed and the replies so far.

It does what such clients do to a cache: a billing line whose hash changes with every request stands first in the system
prompt; a reminder moves along at the end of the dialogue and is gone from where it was; thoughts are not sent back; and
a small request for a title runs beside the session. Tools are given natively, or as text to a server that refuses them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from warmlane.bench.replies import Reply, ToolUse
from warmlane.bench.text import words

TOOL_NAMES = ("read", "write", "edit", "glob", "grep", "shell", "fetch", "search", "plan", "ask", "test", "commit")
REMINDER_EVERY = 3
THOUGHTS_EVERY = 4


@dataclass(frozen=True, slots=True)
class Words:
    """A block of text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered to the call of that id."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of the session."""

    role: str
    blocks: tuple[Words | ToolUse | ToolResult, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    argument: str

    def as_json(self) -> dict[str, object]:
        """The definition as Messages has it."""
        properties = {self.argument: {"type": "string", "description": f"The {self.argument} to use."}}
        schema = {"type": "object", "properties": properties, "required": [self.argument]}
        return {"name": self.name, "description": self.description, "input_schema": schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSizes:
    """How large a session is. `limit_tokens` ends it before a prompt would grow beyond; a word is little more
    than a token."""

    n_calls: int = 40
    system_words: int = 2900
    result_words: int = 22
    description_words: int = 8
    limit_tokens: int = 7500
    max_tokens: int = 24
    title_every: int = 10

    @property
    def growth_tokens(self) -> int:
        """More than one call adds to the next prompt."""
        return self.max_tokens + 3 * self.result_words + 60


class AgentSession:
    """One session, from the system prompt to the request of the next call.

    `native_tools` sends the tools as tools; without, their definitions are text of the system prompt and results are
    text of the user's.
    """

    def __init__(self, rng: random.Random, sizes: AgentSizes, *, native_tools: bool) -> None:
        self._rng = rng
        self._sizes = sizes
        self._native = native_tools
        self._tools = [
            Tool(name, words(rng, sizes.description_words), rng.choice(("path", "command", "query")))
            for name in TOOL_NAMES
        ]
        rules = words(rng, sizes.system_words)
        self._system = f"You are a coding agent. Work step by step, one short sentence a step.\n{rules}"
        if not native_tools:
            self._system += "\nTools:\n" + "\n".join(json.dumps(tool.as_json()) for tool in self._tools)
        self._entries = [Entry("user", (Words(f"Make the {words(rng, 3)} work. Begin."),))]
        self._n_replies = 0

    def billing_line(self) -> str:
        """Another one each time."""
        return f"x-anthropic-billing-header: cc_version=2.1; cch={self._rng.randrange(16**5):05x}"

    def request(self) -> MessagesRequest:
        """The next call of the session."""
        return MessagesRequest(
            system=self._system,
            entries=tuple(self._entries),
            max_tokens=self._sizes.max_tokens,
            tools=tuple(self._tools) if self._native else (),
        )

    def title_request(self) -> MessagesRequest:
        """The request beside the session."""
        asked = Entry("user", (Words(f"Give a title to a session about the {words(self._rng, 4)}."),))
        return MessagesRequest(system="You write titles of three words.", entries=(asked,), max_tokens=8, tools=())

    def take(self, reply: Reply) -> None:
        """Put the reply into the history, as this client keeps it, and the results of its parallel calls behind it."""
        self._n_replies += 1
        text = _without_thoughts(reply.text) if self._n_replies % THOUGHTS_EVERY == 0 else reply.text
        said: tuple[Words | ToolUse | ToolResult, ...] = (Words(text or "…"), *reply.tool_uses)
        self._entries = [*map(_without_reminder, self._entries), Entry("assistant", said)]
        self._entries.append(Entry("user", self._results(reply)))

    def _results(self, reply: Reply) -> tuple[Words | ToolUse | ToolResult, ...]:
        blocks: list[Words | ToolUse | ToolResult]
        if reply.tool_uses:
            blocks = [ToolResult(call.call_id, self._found()) for call in reply.tool_uses]
        else:
            names = self._rng.sample(TOOL_NAMES, 2)
            blocks = [Words(f"[{name}] {self._found()}\n") for name in names]
        if self._n_replies % REMINDER_EVERY == 0:
            blocks.append(Words(f"{_REMINDER}{words(self._rng, 6)}</system-reminder>"))
        return tuple(blocks)

    def _found(self) -> str:
        return words(self._rng, self._sizes.result_words)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRequest:
    """A request, without its billing line."""

    system: str
    entries: tuple[Entry, ...]
    max_tokens: int
    tools: tuple[Tool, ...]

    def body(self, billing_line: str | None) -> dict[str, object]:
        """The body on Messages, less what every request has."""
        blocks = [billing_line, self.system] if billing_line else [self.system]
        body: dict[str, object] = {
            "system": [{"type": "text", "text": text} for text in blocks],
            "messages": [_message(entry) for entry in self.entries],
            "max_tokens": self.max_tokens,
        }
        if self.tools:
            body["tools"] = [tool.as_json() for tool in self.tools]
        return body

    def as_texts(self) -> list[tuple[str, str]]:
        """Role and text of each message, the system prompt and the tools first: what of it a prompt says in order."""
        head = self.system + "".join(json.dumps(tool.as_json()) for tool in self.tools)
        return [("system", head), *((entry.role, _text(entry)) for entry in self.entries)]

    def answered(self, reply: Reply) -> MessagesRequest:
        """The same with the reply behind it, as it came."""
        said = Entry("assistant", (Words(reply.text), *reply.tool_uses))
        return replace(self, entries=(*self.entries, said))


_REMINDER = "<system-reminder>"


def _without_thoughts(text: str) -> str:
    """The reply as kept by a client that drops what the model thought first. The models this runs on do not think, so
    the first half of the reply stands for it."""
    spoken = text.split(" ")
    return " ".join(spoken[len(spoken) // 2 :])


def _without_reminder(entry: Entry) -> Entry:
    kept = tuple(b for b in entry.blocks if not (isinstance(b, Words) and b.text.startswith(_REMINDER)))
    return Entry(entry.role, kept)


def _message(entry: Entry) -> dict[str, object]:
    return {"role": entry.role, "content": [_block(block) for block in entry.blocks]}


def _block(block: Words | ToolUse | ToolResult) -> dict[str, object]:
    match block:
        case Words(text):
            return {"type": "text", "text": text}
        case ToolUse():
            arguments: object = json.loads(block.arguments)
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": arguments}
        case ToolResult():
            return {"type": "tool_result", "tool_use_id": block.call_id, "content": block.text}


def _text(entry: Entry) -> str:
    return "".join(_block_text(block) for block in entry.blocks)


def _block_text(block: Words | ToolUse | ToolResult) -> str:
    match block:
        case Words(text):
            return text
        case ToolUse():
            return f"{block.name}{block.arguments}"
        case ToolResult():
            return block.text


def common_messages(a: Sequence[tuple[str, str]], b: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """How many leading messages are equal, and how many leading characters the two after those share (0 if their roles
    differ, or one dialogue ends there)."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    if n == min(len(a), len(b)) or a[n][0] != b[n][0]:
        return n, 0
    left, right = a[n][1], b[n][1]
    n_chars = 0
    while n_chars < min(len(left), len(right)) and left[n_chars] == right[n_chars]:
        n_chars += 1
    return n, n_chars
