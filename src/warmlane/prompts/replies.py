"""Where a rendered prompt repeats a sampled reply, so that the tokens sampled can stand there.

A reply that the template repeats to the letter is found by its text. One it writes differently (other spacing in the
JSON of a call, other markup around it) is found by what stands around it, and replaced if the sampled text, read by the
model's output format, says what the message says and the template shows all of it. A template that leaves old reasoning
out, and a client that changed a message, get their text; there reuse ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from warmlane.conversation.messages import Message, Role, Sampled
from warmlane.conversation.said import Said, said
from warmlane.conversation.tools import Tool
from warmlane.prompts.control_text import ControlText
from warmlane.prompts.formats.base import OutputFormat
from warmlane.prompts.marks import ReplyMarks

REMEMBERED_READINGS = 512


@dataclass(frozen=True, slots=True)
class Found:
    """`rendered[start:end]` is what `token_ids` stand for."""

    start: int
    end: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one reply is, anchor included, and the next begins."""

    rendered: str
    anchor_start: int
    anchor_end: int
    end: int

    @property
    def anchor(self) -> str:
        return self.rendered[self.anchor_start : self.anchor_end]


class ReplyFinder:
    """Finds replies in the prompts of one model. `tokenizer` is the fingerprint their ids must have been made with.
    `drops_text`: its template has no place for text beside calls, which the tokens then bring back."""

    def __init__(
        self,
        marks: ReplyMarks,
        control: ControlText,
        form: OutputFormat,
        *,
        tokenizer: str,
        drops_text: bool = False,
    ) -> None:
        self._drops_text = drops_text
        self._marks = marks
        self._control = control
        self._tokenizer = tokenizer
        self._anchor = re.compile("|".join(map(re.escape, marks.anchors))) if marks.anchors else None

        @lru_cache(maxsize=REMEMBERED_READINGS)
        def read(text: str, tools: tuple[Tool, ...], opening: str) -> Said:
            parser = form.parser(tools, new_call_id=lambda: "", opening=opening)
            parser.feed(text)
            parser.finish()
            return said(parser.parts)

        self._read = read

    def opening(self, rendered: str) -> str:
        """What the prompt ends with from where the reply is opened; "" if that cannot be told."""
        at = max((rendered.rfind(anchor) for anchor in self._marks.anchors), default=-1)
        return rendered[at:] if at >= 0 else ""

    def find(
        self,
        rendered: str,
        shown: Sequence[Message],
        originals: Mapping[int, Message],
        tools: tuple[Tool, ...],
        guard: str,
    ) -> Iterator[Found]:
        """In order and apart. `shown` are the messages as they were rendered; `originals` are those with sampled tokens
        as they were given, by the identity of their `sampled`."""
        replies = [message for message in shown if message.role is Role.ASSISTANT]
        anchors = self._anchors(rendered, len(replies))
        position = 0
        for index, message in enumerate(replies):
            sampled = message.sampled
            if sampled is None or not sampled.token_ids or sampled.tokenizer != self._tokenizer:
                continue
            spoken = self._control.guard(sampled.text, guard)
            if anchors is None:
                found = self._search(rendered, spoken, sampled, position)
            else:
                end = anchors[index + 1][0] if index + 1 < len(anchors) else len(rendered)
                place = _Place(rendered, *anchors[index], end)
                original = originals.get(id(sampled), message)
                found = self._to_the_letter(place, spoken, sampled) or self._in_other_words(
                    place, original, sampled, tools, guard
                )
            if found is not None:
                yield found
                position = found.end

    def _anchors(self, rendered: str, n_replies: int) -> list[tuple[int, int]] | None:
        """The anchor of each reply, and of the one asked for: where it begins and ends. None if they cannot be told
        apart, or are not as many as the replies."""
        if self._anchor is None or not self._marks.certain:
            return None
        anchors = [match.span() for match in self._anchor.finditer(rendered)]
        return anchors if n_replies <= len(anchors) <= n_replies + 1 else None

    def _search(self, rendered: str, spoken: str, sampled: Sampled, position: int) -> Found | None:
        """The first place behind an opening where the reply stands to the letter."""
        starts = [
            at + len(opening)
            for opening in self._marks.openings()
            if (at := rendered.find(opening + spoken, position)) >= 0
        ]
        if not starts:
            return None
        start = min(starts)
        return Found(start, start + len(spoken), sampled.token_ids)

    def _to_the_letter(self, place: _Place, spoken: str, sampled: Sampled) -> Found | None:
        for tail in self._tails(place):
            start = place.anchor_end + len(tail)
            if place.rendered.startswith(spoken, start):
                return Found(start, start + len(spoken), sampled.token_ids)
        return None

    def _in_other_words(
        self, place: _Place, message: Message, sampled: Sampled, tools: tuple[Tool, ...], guard: str
    ) -> Found | None:
        closing = self._marks.closing
        for tail in self._tails(place):
            start = place.anchor_end + len(tail)
            end = place.rendered.find(closing, start, place.end) if closing else -1
            if end < 0:
                return None
            reading = self._read(sampled.text, _with_called(tools, message), place.anchor + tail)
            segment = place.rendered[start:end].replace(guard, "")
            if reading == said(message.parts) and self._shows(segment, reading):
                return Found(start, end, sampled.token_ids)
        return None

    def _shows(self, segment: str, reading: Said) -> bool:
        """Whether what was said is all there; arguments aside, which a template writes in its own way."""
        text = "" if self._drops_text and reading.calls else reading.text
        if reading.reasoning not in segment or text not in segment:
            return False
        at = 0
        for name, _ in reading.calls:
            at = segment.find(name, at)
            if at < 0:
                return False
            at += len(name)
        return True

    def _tails(self, place: _Place) -> list[str]:
        return [tail for tail in self._marks.tails if place.rendered.startswith(tail, place.anchor_end)]


def _with_called(tools: tuple[Tool, ...], message: Message) -> tuple[Tool, ...]:
    """Tools may have been taken away since they were called; the calls are read as calls all the same."""
    known = {tool.name for tool in tools}
    missing = dict.fromkeys(call.name for call in message.tool_calls if call.name not in known)
    return (*tools, *(Tool(name=name) for name in missing))
