"""Remembers what turns prefilled, so that a later one that reuses less than it could is told why.

A trace is found by response id, in its own security domain only; so the excerpts a client is shown are its own text.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt

from warmlane.conversation.tools import Tool
from warmlane.conversation.turn import Divergence, DivergenceCause

EXCERPT_CHARS = 40
"""Shown of each side from the first difference on, and this much again before it."""

MAX_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """One turn: its model, instructions, prompt and reply tokens (int32), their text, and a digest of its tools."""

    model: str
    instructions: str | None
    tokens: npt.NDArray[np.int32]
    text: str = field(repr=False)
    tools: bytes = b""

    def answered(self, token_ids: tuple[int, ...], text: str) -> Trace:
        """With the reply behind the prompt."""
        tokens = np.concatenate([self.tokens, np.asarray(token_ids, np.int32)])
        return replace(self, tokens=tokens, text=self.text + text)


class TraceLog:
    """The traces of recent turns; `max_tokens` bounds the sum of their lengths, the oldest go first."""

    def __init__(self, *, max_tokens: int = MAX_TOKENS) -> None:
        self._traces: OrderedDict[tuple[bytes, str], Trace] = OrderedDict()
        self._known: defaultdict[tuple[bytes, str], _Prefixes] = defaultdict(_Prefixes)
        self._max_tokens = max_tokens
        self._tokens = 0

    def remember(self, domain: bytes, response_id: str, trace: Trace) -> None:
        if len(trace.tokens) > self._max_tokens:
            return
        if (domain, response_id) in self._traces:
            self._drop([(domain, response_id)])
        self._traces[domain, response_id] = trace
        self._known[domain, trace.model].add(trace.tokens)
        self._tokens += len(trace.tokens)
        while self._tokens > self._max_tokens:
            self._drop([next(iter(self._traces))])

    def forget(self, response_ids: Iterable[str]) -> None:
        """The responses were deleted: nothing of them is compared or shown any more."""
        gone = frozenset(response_ids)
        self._drop(key for key in tuple(self._traces) if key[1] in gone)

    def forget_domain(self, domain: bytes) -> None:
        """Nothing of the domain is compared or shown any more."""
        self._drop(key for key in tuple(self._traces) if key[0] == domain)

    def _drop(self, keys: Iterable[tuple[bytes, str]]) -> None:
        for key in keys:
            gone = self._traces.pop(key)
            self._tokens -= len(gone.tokens)
            known = self._known[key[0], gone.model]
            known.remove(gone.tokens)
            if not known:
                del self._known[key[0], gone.model]

    def compare(self, domain: bytes, response_id: str, now: Trace) -> Divergence | None:
        """How `now`, a prompt, leaves the turn of `response_id`; None if it extends it, or is a part of it."""
        before = self._traces.get((domain, response_id))
        if before is None:
            return Divergence(cause=DivergenceCause.NOT_FOUND)
        offset = common_prefix(before.tokens, now.tokens) if before.model == now.model else 0
        if before.model == now.model and offset == min(len(before.tokens), len(now.tokens)):
            return None
        shown = _common_text(before.text, now.text)
        return Divergence(
            cause=_cause(before, now),
            offset=offset,
            missed_tokens=len(before.tokens) - offset,
            before=_excerpt(before.text, shown),
            now=_excerpt(now.text, shown),
        )

    def known(self, domain: bytes, now: Trace) -> int:
        """How many leading tokens of this prompt turns of its domain and model have been through."""
        known = self._known.get((domain, now.model))
        return 0 if known is None else known.longest(now.tokens)


class _Prefixes:
    """Sequences of tokens in the order of their bytes, in which those that share most stand together: what begins like
    given tokens is found in as many comparisons as the logarithm of how many there are."""

    def __init__(self) -> None:
        self._sorted: list[bytes] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, tokens: npt.NDArray[np.int32]) -> None:
        insort(self._sorted, tokens.tobytes())

    def remove(self, tokens: npt.NDArray[np.int32]) -> None:
        """Of one that was added; of equal ones any."""
        del self._sorted[bisect_left(self._sorted, tokens.tobytes())]

    def longest(self, tokens: npt.NDArray[np.int32]) -> int:
        """How many leading tokens it shares with the one that shares most."""
        at = bisect_left(self._sorted, tokens.tobytes())
        beside = self._sorted[max(0, at - 1) : at + 1]
        return max((common_prefix(np.frombuffer(data, np.int32), tokens) for data in beside), default=0)


def tools_digest(tools: Sequence[Tool]) -> bytes:
    """Of tools as the prompt shows them, their order included; b"" of none."""
    return hashlib.blake2b(msgspec.msgpack.encode(tools), digest_size=16).digest() if tools else b""


def common_prefix(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """How many leading tokens two sequences share."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


def _cause(before: Trace, now: Trace) -> DivergenceCause:
    if before.model != now.model:
        return DivergenceCause.MODEL_CHANGED
    if before.instructions != now.instructions:
        return DivergenceCause.SYSTEM_CHANGED
    if before.tools != now.tools:
        return DivergenceCause.TOOLS_CHANGED
    return DivergenceCause.MESSAGES_CHANGED


def _common_text(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def _excerpt(text: str, at: int) -> str:
    return text[max(0, at - EXCERPT_CHARS) : at + EXCERPT_CHARS]
