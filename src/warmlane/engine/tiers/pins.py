"""Prefixes that clients asked to keep for a while, whatever else comes by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from warmlane.engine.vectors import Int32Array, common_prefix

MOST_PINS = 256
MOST_PINS_A_DOMAIN = 16

WORTH_PINNING = 64
"""Tokens of a pin that something must hold to be pinned by it, if the pin has so many: the first words of a template
are in every prompt."""


@dataclass(slots=True, eq=False)
class Pin:
    """`until_s` is on the monotonic clock."""

    domain: bytes
    tokens: Int32Array
    until_s: float


class Pins:
    """At most `most` prefixes, and `most_a_domain` of one domain; beyond that the one that ends first goes. Used by one
    thread."""

    def __init__(
        self, *, now: Callable[[], float], most: int = MOST_PINS, most_a_domain: int = MOST_PINS_A_DOMAIN
    ) -> None:
        self._now = now
        self._most = most
        self._most_a_domain = most_a_domain
        self._pins: list[Pin] = []

    def __len__(self) -> int:
        """Of those that have not ended."""
        self._expire()
        return len(self._pins)

    def add(self, domain: bytes, tokens: Int32Array, ttl_s: float) -> Pin:
        """Keep a prefix for `ttl_s` from now on. It takes the place of shorter ones that end no later."""
        self._expire()
        pin = Pin(domain, tokens.copy(), self._now() + ttl_s)
        for other in tuple(self._pins):
            if other.domain == domain and common_prefix(other.tokens, pin.tokens) == other.tokens.size:
                if other.tokens.size == pin.tokens.size:
                    pin.until_s = max(pin.until_s, other.until_s)
                if other.until_s <= pin.until_s:
                    self._pins.remove(other)
        self._pins.append(pin)
        self._bound(domain)
        return pin

    def until_s(self, domain: bytes, tokens: Int32Array, start: int = 0) -> float:
        """Until when something of `tokens[start:]` is pinned; 0 if nothing worth it is."""
        now = self._now()
        return max(
            (
                pin.until_s
                for pin in self._pins
                if pin.domain == domain and pin.until_s > now and _holds_some(pin.tokens, tokens, start)
            ),
            default=0.0,
        )

    def forget(self, domain: bytes, tokens: Int32Array, *, keep: int) -> None:
        """Drop the pins of a domain; with `tokens` only those that agree with them beyond the first `keep`."""
        self._pins = [
            pin
            for pin in self._pins
            if pin.domain != domain or (tokens.size and common_prefix(pin.tokens, tokens) <= keep)
        ]

    def clear(self) -> None:
        self._pins.clear()

    def _expire(self) -> None:
        now = self._now()
        self._pins = [pin for pin in self._pins if pin.until_s > now]

    def _bound(self, domain: bytes) -> None:
        counts = Counter(pin.domain for pin in self._pins)
        if counts[domain] > self._most_a_domain:
            self._drop_first(lambda pin: pin.domain == domain)
        elif len(self._pins) > self._most:
            most = max(counts.values())
            self._drop_first(lambda pin: counts[pin.domain] == most)

    def _drop_first(self, among: Callable[[Pin], bool]) -> None:
        self._pins.remove(min(filter(among, self._pins), key=lambda pin: pin.until_s))


def _holds_some(pinned: Int32Array, tokens: Int32Array, start: int) -> bool:
    wanted = min(WORTH_PINNING, pinned.size - start)
    return wanted > 0 and common_prefix(pinned, tokens) - start >= wanted
