"""Prompts from a seed: words that no other conversation has in the same order, so nothing is warm by accident."""

from __future__ import annotations

import random

WORDS = tuple(
    (
        "river harbour lantern copper meadow winter engine paper garden mountain signal violet market bridge candle "
        "forest silver window ladder ocean kettle marble orchard compass feather granite pepper tunnel velvet walnut"
    ).split()
)


def words(rng: random.Random, n_words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


def opening(rng: random.Random, n_words: int) -> str:
    """The first thing a user says: `n_words` of material and a question that takes a long answer."""
    return f"{words(rng, n_words)}.\nTell a long story in which all of these words appear."


def follow_up(rng: random.Random) -> str:
    """A later thing the user says, some 10 words long."""
    return f"Go on with the {words(rng, 2)}, and tell what became of the {words(rng, 1)}."


def short_chat(rng: random.Random) -> str:
    return f"Explain in detail how a {words(rng, 1)} differs from a {words(rng, 2)}, and give many examples."


def instructions(rng: random.Random, n_words: int) -> str:
    """A system prompt of `n_words`."""
    return f"You are an assistant of the {words(rng, 2)} company. House rules: {words(rng, max(0, n_words - 11))}."
