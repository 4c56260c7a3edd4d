"""Holding a reply to a grammar: which tokens may come next, and when it is complete.

Grammars are compiled and followed by llguidance. Compiling a large one takes tens of milliseconds, so it is done off
the decode thread; following one costs microseconds a token.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from warmlane.engine.backends.base import Tokenizer
from warmlane.engine.joining import joined

Allowed = npt.NDArray[np.bool_]

MAX_GRAMMAR_CHARS = 1_000_000
"""Longest grammar that is looked at."""

MAX_ERROR_CHARS = 400

KEPT_GRAMMARS = 32
KEPT_CHARS = 4_000_000
"""Compiled grammars are kept for the turns that come with the same one again: so many, and of so much text."""

_ENDED = ("NoExtension", "NoExtensionBias", "EndOfSentence")
_QUIET = 0


class GrammarError(Exception):
    """The grammar cannot be used; the message is fit for the client that sent it."""


class GrammarFault(Exception):
    """A reply cannot be held to its grammar any further."""


class Constraint:
    """Where one reply is in its grammar. Used by one thread."""

    def __init__(self, matcher: LLMatcher, n_vocab: int) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._bits = allocate_token_bitmask(1, n_vocab)

    def allowed(self) -> Allowed:
        """Which tokens (shape `[n_vocab]`) may come next, those that end the reply included where it may end; at least
        one. Raises `GrammarFault`."""
        fill_next_token_bitmask(self._matcher, self._bits)
        if self._matcher.is_error():
            raise GrammarFault(_first_line(self._matcher.get_error()))
        octets = self._bits[0].view(np.uint8)
        allowed = np.unpackbits(octets, count=self._n_vocab, bitorder="little").view(np.bool_)
        if not allowed.any():
            raise GrammarFault("no token of the model continues it")
        return allowed

    def accept(self, token: int) -> bool:
        """Go on by an allowed token that does not end the reply. True if the reply can now only end. Raises
        `GrammarFault`."""
        if not self._matcher.consume_token(token):
            raise GrammarFault(_first_line(self._matcher.get_error()))
        if not self._matcher.is_stopped():
            return False
        reason = self._matcher.stop_reason()
        if reason not in _ENDED:
            raise GrammarFault(_first_line(self._matcher.get_error()) or reason)
        return True


class Grammars:
    """Compiles grammars for one model. Safe to use from any thread; its results belong to one each.

    Where control tokens are text (`GenerateRequest.special_text`), a grammar's literals match them as well as their
    spelling; otherwise they match only where the grammar names the token (`<|name|>`).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tries: dict[bool, LLTokenizer] = {}
        self._kept: OrderedDict[tuple[str, bool], LLMatcher] = OrderedDict()
        self._lock = threading.Lock()
        self._building = threading.Lock()

    def compile(self, grammar: str, *, special_text: bool = False) -> Constraint:
        """The beginning of a reply to this grammar (llguidance's Lark syntax). Raises `GrammarError`."""
        key = (grammar, special_text)
        with self._lock:
            pristine = self._kept.get(key)
            if pristine is not None:
                self._kept.move_to_end(key)
        if pristine is None:
            pristine = self._compile(grammar, special_text)
            self._keep(key, pristine)
        return Constraint(pristine.deep_copy(), self._tokenizer.n_vocab)

    def _compile(self, grammar: str, special_text: bool) -> LLMatcher:
        if len(grammar) > MAX_GRAMMAR_CHARS:
            raise GrammarError(f"The grammar has {len(grammar)} characters; at most {MAX_GRAMMAR_CHARS} are taken.")
        trie = self._trie(special_text)
        text = LLMatcher.grammar_from_lark(grammar)
        matcher = LLMatcher(trie, text, log_level=_QUIET, limits=_limits())
        if not matcher.is_error():
            # Finds grammars that no reply matches, and is the work of every first token.
            matcher.compute_bitmask()
        if matcher.is_error():
            raise GrammarError(f"The grammar cannot be used: {matcher.get_error().strip()[:MAX_ERROR_CHARS]}")
        return matcher

    def _keep(self, key: tuple[str, bool], matcher: LLMatcher) -> None:
        with self._lock:
            self._kept[key] = matcher
            while len(self._kept) > KEPT_GRAMMARS or sum(len(text) for text, _ in self._kept) > KEPT_CHARS:
                self._kept.popitem(last=False)

    def _trie(self, special_text: bool) -> LLTokenizer:
        """The vocabulary as llguidance wants it; built on first use, in about 0.3 s for 50,000 tokens."""
        with self._building:
            known = self._tries.get(special_text)
            if known is None:
                if not self._tokenizer.eog:
                    raise GrammarError("This model has no token that ends a reply, so no grammar can be held.")
                vocabulary = _Vocabulary(self._tokenizer, special_text)
                known = LLTokenizer(TokenizerWrapper(vocabulary), eos_token=list(self._tokenizer.eog))
                self._tries[special_text] = known
            return known


class _Vocabulary:
    """What `TokenizerWrapper` wants to know of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, special_text: bool) -> None:
        self._tokenizer = tokenizer
        self._special_text = special_text
        self._eog = frozenset(tokenizer.eog)
        self.eos_token_id = tokenizer.eog[0]
        self.tokens = [tokenizer.piece(token, special=True) for token in range(tokenizer.n_vocab)]
        self.special_token_ids = sorted(self._eog if special_text else tokenizer.control)
        self._ids = {
            piece: token for token, piece in enumerate(self.tokens) if piece and token not in tokenizer.control
        }
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        """How the model itself would write `text`, about which a grammar leaves no choice. The tokens spell it exactly:
        llguidance relies on that."""
        if not isinstance(text, str):
            raise TypeError("text only")
        data = text.encode()
        ids = self._tokenize(text)
        if self._spell(ids) == data:
            return ids
        ids = joined(self._tokenize, text)
        return ids if self._spell(ids) == data else self._longest_pieces(data)

    def _tokenize(self, text: str) -> list[int]:
        ids = self._tokenizer.tokenize(text, special=self._special_text, bos=False)
        if self._special_text and not self._eog.isdisjoint(ids):
            return self._tokenizer.tokenize(text, special=False, bos=False)
        return ids

    def _spell(self, ids: list[int]) -> bytes:
        return b"".join(self.tokens[token] for token in ids)

    def _longest_pieces(self, data: bytes) -> list[int]:
        ids: list[int] = []
        while data:
            sizes = range(min(self._longest, len(data)), 0, -1)
            size = next((n for n in sizes if data[:n] in self._ids), 0)
            if size == 0:
                break
            ids.append(self._ids[data[:size]])
            data = data[size:]
        return ids


def _limits() -> LLParserLimits:
    """Other than llguidance's defaults: room for objects of 2,000 optional properties; less for the states of lexers, 1
    to 2 kB each, of which each running turn has its own; and for grammars, so that none takes seconds to compile. What
    one step may do stays at its defaults, about 15 ms."""
    return LLParserLimits(
        max_items_in_row=10_000, max_lexer_states=50_000, max_grammar_size=100_000, verbose_errors=False
    )


def _first_line(error: str) -> str:
    return error.strip().partition("\n")[0]
