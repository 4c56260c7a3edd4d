"""Other names of served models."""

from __future__ import annotations

import pytest

from support.clock import VirtualClock
from warmlane.host import Aliases, Binding, ModelGate, ModelHost
from warmlane.sessions import Lane


async def never(gate: ModelGate) -> Binding:
    raise AssertionError("nothing is loaded here")


def host_of(*names: str, aliases: dict[str, str]) -> ModelHost:
    host = ModelHost(aliases=Aliases(aliases))
    for name in names:
        host.add(name, loader=never, cold=Lane(capacity=1, max_waiting=0, clock=VirtualClock(), name=name))
    return host


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("small", "small"),
        ("claude-haiku-4-5", "small"),
        ("claude-opus-5", "large"),
        ("Claude-haiku", "Claude-haiku"),
        ("gpt-5", "gpt-5"),
        ("", ""),
        ("claude-served", "claude-served"),
    ],
)
def test_a_name_stands_for_a_served_one(name: str, canonical: str) -> None:
    host = host_of("small", "large", "claude-served", aliases={"claude-opus-*": "large", "claude-*": "small"})
    assert host.canonical(name) == canonical


def test_without_aliases_every_name_is_its_own() -> None:
    assert ModelHost().canonical("claude-x") == "claude-x"
