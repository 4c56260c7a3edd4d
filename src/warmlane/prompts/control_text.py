"""Keeps text that merely looks like a control token from becoming one.

A client may send the characters `<|im_end|>`. If they reached the tokenizer together with the template's own markup
they would end the message. So each occurrence in content is broken with a guard character before the template runs;
afterwards the unbroken ones are the template's own, and the guarded ones are tokenized as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from warmlane.prompts.plan import TextRun

_GUARDS = tuple(chr(c) for c in (0x10FFFD, 0x10FFFC, 0x10FFFB, 0x10FFFA))
"""Candidates from the last private-use plane; one is used that no content of the request holds."""


class ControlText:
    """Knows the texts of a tokenizer's control tokens."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        texts = sorted({t for t in special_tokens if len(t) > 1}, key=lambda t: (-len(t), t))
        self._pattern = re.compile("|".join(map(re.escape, texts))) if texts else None

    def pick_guard(self, contents: Iterable[str]) -> str:
        """A character that appears in none of `contents`."""
        held = [c for c in contents if not c.isascii()]
        for guard in _GUARDS:
            if not any(guard in c for c in held):
                return guard
        return next(chr(c) for c in range(0xF0000, 0xFFFFE) if not any(chr(c) in h for h in held))

    def guard(self, content: str, guard: str) -> str:
        """`content` with each control token's text broken after its first character."""
        if self._pattern is None:
            return content
        return self._pattern.sub(lambda m: m[0][0] + guard + m[0][1:], content)

    def holds(self, text: str) -> bool:
        """Whether a control token's text is part of `text`."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def leading(self, text: str) -> str:
        """The control token's text that `text` begins with, space aside; "" if there is none."""
        match = self._pattern.match(text.lstrip()) if self._pattern else None
        return match[0] if match else ""

    def from_last(self, text: str) -> str:
        """`text` from its last control token on; all of it where it holds none."""
        last = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            last = match.start()
        return text[last:]

    def runs(self, text: str, guard: str, *, bos: bool, joined: bool = False) -> Iterator[TextRun]:
        """Text runs of a rendered stretch: one run where nothing was guarded; otherwise the template's own control
        tokens apart from the text between them."""
        if guard not in text:
            if text or bos:
                yield TextRun(text, special=True, bos=bos, joined=joined)
            return
        position = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            if match.start() > position:
                between = text[position : match.start()].replace(guard, "")
                yield TextRun(between, special=False, bos=bos, joined=joined)
                bos = joined = False
            yield TextRun(match[0], special=True, bos=bos)
            bos = joined = False
            position = match.end()
        if position < len(text):
            yield TextRun(text[position:].replace(guard, ""), special=False, bos=bos, joined=joined)
