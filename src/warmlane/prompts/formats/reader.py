"""Reads a reply that is laid out as text and calls (`describe.Reply`)."""

from __future__ import annotations

from collections.abc import Callable

from warmlane.prompts.formats import bodies
from warmlane.prompts.formats.describe import Call, JsonCall, Reply, Section
from warmlane.prompts.formats.source import WHITE, Ended, Malformed, Mark, Marks, Reading, Source
from warmlane.prompts.formats.teller import Teller
from warmlane.prompts.formats.values import ToolTypes

Say = Callable[[str], None]


class Stretch:
    """A stretch of text between markup. Where `trim`, white space at its ends is part of the markup, so it is held back
    until text follows; `at_start` of a reply only whole lines of it are, since indentation there may be meant.
    Elsewhere only white space that stands alone behind other markup is."""

    def __init__(self, say: Say, *, trim: bool, at_start: bool = False) -> None:
        self._say = say
        self._trim = trim
        self._at_start = at_start
        self._gap: list[str] = []
        self.fresh = True

    def say(self, text: str) -> None:
        body = text.rstrip(WHITE)
        alone = not body and self.fresh and not self._at_start
        if not body and (self._trim or alone):
            self._gap.append(text)
            return
        if not self._trim:
            self.fresh = self.fresh and not body
            self._say("".join(self._gap) + text)
            self._gap.clear()
            return
        gap = "".join(self._gap)
        if self.fresh:
            lead = gap + text[: len(text) - len(text.lstrip(WHITE))]
            gap = lead[lead.rfind("\n") + 1 :] if self._at_start else ""
            body = body.lstrip(WHITE)
        self.fresh = False
        self._say(gap + body)
        self._gap = [text[len(text.rstrip(WHITE)) :]]

    def cut(self) -> None:
        """Other markup follows; what comes after it is a new stretch."""
        self._gap.clear()
        self.fresh = True
        self._at_start = False

    def end(self) -> None:
        """The reply is over."""
        gap = "".join(self._gap)
        if gap and (self._at_start or not self.fresh):
            self._say(gap)


class ReplyReader:
    """`reading()` reads one reply; it ends with it."""

    def __init__(
        self, layout: Reply, *, source: Source, teller: Teller, types: ToolTypes, calls: bool, inside: bool
    ) -> None:
        self._layout = layout
        self._source = source
        self._teller = teller
        self._bodies = bodies.Reader(source=source, teller=teller, types=types)
        self._inside = inside
        self._sections = layout.sections if calls else ()
        self._calls = {c.opener.text: c for c in layout.calls if c.opener} if calls else {}
        self._bare = layout.bare if calls else ()
        self._text = Stretch(teller.text, trim=layout.trim, at_start=True)
        self.noise: list[str] = []
        self.truncated = False

    def reading(self) -> Reading[None]:
        try:
            if self._inside:
                yield from self._thought()
            elif self._bare:
                yield from self._bare_calls()
            yield from self._running_text()
        except Ended as end:
            if end.mark is not None and self._opens_call(end.mark):
                self.truncated = True
            self._text.end()

    def _opens_call(self, mark: Mark) -> bool:
        return mark.text in self._calls or any(mark == section.opener for section in self._sections)

    def _openers(self) -> list[Mark]:
        return [c.opener for c in self._calls.values() if c.opener] + [section.opener for section in self._sections]

    def _running_text(self) -> Reading[None]:
        thought = self._layout.thought
        opens, closes = (thought.opens, thought.closes) if thought else ((), ())
        marks = Marks([*self._openers(), *map(Mark, (*opens, *closes, *self._layout.passed_over))])
        while True:
            mark = yield from self._source.scan(marks, self._text.say)
            if mark.text in self._layout.passed_over:
                self._text.cut()
            elif self._opens_call(mark):
                yield from self._opened(mark, self._text.say)
            elif not self._text.fresh:
                self._text.say(mark.text)
            else:
                self._text.cut()
                if mark.text in opens:
                    yield from self._thought()

    def _thought(self) -> Reading[None]:
        thought = self._layout.thought
        assert thought is not None
        stretch = Stretch(self._teller.reasoning, trim=thought.trim)
        openers = self._openers() if thought.calls_end_it else []
        marks = Marks([*map(Mark, thought.closes), *openers])
        while True:
            try:
                mark = yield from self._source.scan(marks, stretch.say)
            except Ended as end:
                if end.mark is None:
                    stretch.end()
                raise
            if mark.text in thought.closes or (yield from self._opened(mark, stretch.say)):
                self._text.cut()
                return

    def _opened(self, mark: Mark, fallback: Say) -> Reading[bool]:
        """A section or call whose opener was taken. False if it was text, which was said."""
        section = next((s for s in self._sections if s.opener == mark), None)
        if section is None:
            return (yield from self._call(self._calls[mark.text], mark.text, fallback))
        self._text.cut()
        yield from self._section(section)
        return True

    def _section(self, section: Section) -> Reading[None]:
        heads = {start: call for call in section.calls if call.head for start in call.head.start}
        marks = Marks([*map(Mark, heads), *map(Mark, section.close)])
        empty = True
        while True:
            try:
                mark = yield from self._source.scan(marks, self.noise.append)
            except Ended:
                self.truncated = self.truncated or empty
                raise
            if mark.text in section.close:
                return
            empty = False
            yield from self._call(heads[mark.text], mark.text, self._text.say)

    def _call(self, call: Call, opener: str, fallback: Say) -> Reading[bool]:
        """A call, or several. False if it was none; what was read is then said as text."""
        source, teller = self._source, self._teller
        before = teller.n_calls
        source.record()
        try:
            yield from bodies.read_call(self._bodies, call)
        except Malformed:
            raw = source.recorded()
            some = teller.n_calls > before
            if some or teller.told:
                self._text.cut()
            if teller.broken():
                return True
            if not some:
                fallback(opener + raw)
                return False
            self._text.say(raw)
            return True
        except Ended:
            raw = source.recorded() + source.rest()
            some = teller.n_calls > before
            if opener or some or teller.in_call:
                self._text.cut()
                self.truncated = teller.in_call or not some or bool(raw.strip(WHITE + "[],;"))
            else:
                fallback(raw)
            teller.broken()
            raise
        source.recorded()
        self._text.cut()
        return True

    def _bare_calls(self) -> Reading[None]:
        source = self._source
        source.record()
        try:
            yield from source.spaces()
            first = yield from source.peek()
        except Ended:
            self._text.say(source.recorded())
            raise
        blank = source.recorded()
        call = next((c for c in self._bare if first == ("{" if isinstance(c.body, JsonCall) else "[")), None)
        if call is None:
            self._text.say(blank)
        else:
            yield from self._call(call, "", lambda raw: self._text.say(blank + raw))
