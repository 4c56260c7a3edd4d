"""A prompt that is not tokenized yet: runs of text, and runs of tokens that were sampled before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextRun:
    """Text to tokenize. With `special`, the texts of control tokens become those tokens. `bos` asks for the model's
    opening tokens in front; `joined` text goes on behind sampled tokens."""

    text: str
    special: bool
    bos: bool = False
    joined: bool = False


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens exactly as the model sampled them."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """The runs of one prompt, in order, its whole text, and what of that opens the reply it asks for.

    Equal leading runs give equal leading tokens, which is what keeps a longer conversation's prompt an extension of
    the shorter one's.
    """

    runs: tuple[TextRun | TokenRun, ...]
    text: str = ""
    opening: str = ""

    @property
    def texts(self) -> tuple[TextRun, ...]:
        return tuple(run for run in self.runs if isinstance(run, TextRun))

    def assemble(self, tokenized: list[list[int]]) -> tuple[int, ...]:
        """The prompt's token ids, given those of each of `texts`."""
        ids: list[int] = []
        remaining = iter(tokenized)
        for run in self.runs:
            ids.extend(run.token_ids if isinstance(run, TokenRun) else next(remaining))
        return tuple(ids)
