"""The vocabulary in which a family's way of writing is described. Pure data: `reader` reads by it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warmlane.prompts.formats.source import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What names something: `start`, then text up to one of `ends` that matches `pattern` (groups: `name` of the tool,
    `id` of the call, `key` and `kind` of a parameter, `empty` where nothing follows). `viable` matches every beginning
    of such a text."""

    start: tuple[str, ...] = ()
    ends: tuple[str, ...]
    keep_end: bool = False
    pattern: re.Pattern[str]
    viable: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonArguments:
    """The arguments are one JSON object; the head names the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCall:
    """The whole call is a JSON object with a member for the name and one for the arguments, in any order; or several of
    them, as a list or one after the other. Members that are not among `members` are passed over; None allows all."""

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    call_id: str | None = None
    members: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """One element a parameter, with its value as bare text.

    `values` end at marks; a mark with `keep` ends one whose closing tag is missing. `kind` of the head says whether a
    value is a string (`true`, `string`) or JSON (anything else); without one the tool's schema does. One newline after
    the head is markup where `newline`. `entities`: keys are written with XML's `&amp;` and `&quot;`.
    """

    head: Head
    values: tuple[Mark, ...]
    newline: bool = False
    entities: bool = False
    close: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseObject:
    """Gemma's own object syntax: bare keys, strings between `quote`s, and JSON's other values."""

    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCalls:
    """A Python list of calls with keyword arguments that are literals."""


Body = JsonArguments | JsonCall | Parameters | LooseObject | PythonCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How one call is written: an opener among the text (or in a section, where it is the head's start), a head if the
    body does not name the tool, the body, and what closes it, which may be missing.

    `instead`: what the body may be in place of head and body, told by its first bracket. `known`: only a tool that was
    offered makes it a call; used where the opener may well be text.
    """

    opener: Mark | None = None
    head: Head | None = None
    body: Body
    instead: JsonCall | None = None
    close: tuple[str, ...] = ()
    known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Calls between markup of their own. Other text inside is passed over."""

    opener: Mark
    calls: tuple[Call, ...]
    close: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Reasoning between `opens` and `closes`. `trim`: white space at both ends is markup. `calls_end_it`: so does a
    call."""

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    trim: bool = False
    calls_end_it: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How a reply is laid out: perhaps a thought, then text and calls.

    `bare`: calls without an opener, at the very start only. `passed_over`: markup that means nothing here. `trim`:
    white space between text and other markup is markup.
    """

    thought: Thought | None = None
    calls: tuple[Call, ...] = ()
    sections: tuple[Section, ...] = ()
    bare: tuple[Call, ...] = ()
    passed_over: tuple[str, ...] = ()
    trim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """A reply made of messages with headers (Harmony), the first of which the prompt opened.

    A header stands between `start` and `body`, begins with `role`, and names a channel, and a recipient if the message
    is a call; `header` matches a whole one, `viable` what may become one, `header_parts` are what may follow the role.
    `recipient_prefix` marks the client's own tools, `nobody` are recipients that mean none, `thoughts` the channels
    that are reasoning.
    """

    start: str
    role: str
    body: str
    ends: tuple[str, ...]
    header_parts: tuple[str, ...]
    header: re.Pattern[str]
    viable: re.Pattern[str]
    channel: re.Pattern[str]
    recipient: re.Pattern[str]
    recipient_prefix: str
    nobody: tuple[str, ...]
    thoughts: tuple[str, ...]


Layout = Reply | Messages
