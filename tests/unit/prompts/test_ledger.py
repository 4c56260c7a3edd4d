"""The ledger gives a domain back its own sampled tokens, and nobody else's."""

from __future__ import annotations

from warmlane.conversation.messages import Message, Reasoning, Role, Sampled, Text, ToolCall
from warmlane.prompts import SampledLedger

A, B = b"a" * 16, b"b" * 16


def said(text: str, *ids: int) -> Message:
    return Message(Role.ASSISTANT, (Text(text),), Sampled(ids, text, "t") if ids else None)


def test_a_reply_comes_back_with_its_tokens() -> None:
    ledger = SampledLedger()
    ledger.remember(A, said("hello", 1, 2))
    asked = Message(Role.USER, (Text("hello"),))
    assert ledger.recall(A, [asked, said("hello")]) == (asked, said("hello", 1, 2))


def test_however_its_parts_are_cut_and_without_its_reasoning() -> None:
    ledger = SampledLedger()
    ledger.remember(A, Message(Role.ASSISTANT, (Reasoning("hm"), Text("hello")), Sampled((1,), "hello", "t")))
    back = Message(Role.ASSISTANT, (Text("hel"), Text("lo")))
    assert ledger.recall(A, [back])[0].sampled == Sampled((1,), "hello", "t")


def test_another_domain_finds_nothing() -> None:
    ledger = SampledLedger()
    ledger.remember(A, said("hello", 1))
    assert ledger.recall(B, [said("hello")])[0].sampled is None


def test_tokens_are_bounded_and_the_least_used_go_first() -> None:
    ledger = SampledLedger(max_tokens=4)
    ledger.remember(A, said("one", 1, 2))
    ledger.remember(A, said("two", 3, 4))
    ledger.recall(A, [said("one")])
    ledger.remember(A, said("three", 5))
    found = [m.sampled is not None for m in ledger.recall(A, [said("one"), said("two"), said("three")])]
    assert found == [True, False, True]
    ledger.remember(A, said("too long", 1, 2, 3, 4, 5))
    assert len(ledger) == 2


def test_calls_come_back_in_the_clients_own_json() -> None:
    ledger = SampledLedger()
    made = ToolCall("call_1", "f", '{"a": 1, "b": "é"}')
    ledger.remember(A, Message(Role.ASSISTANT, (Text("see: \n"), made), Sampled((1, 2), "raw", "t")))
    back = Message(Role.ASSISTANT, (Text("see:"), ToolCall("call_1", "f", '{"b":"\\u00e9","a":1}')))
    assert ledger.recall(A, [back])[0].sampled == Sampled((1, 2), "raw", "t")
    other = Message(Role.ASSISTANT, (Text("see:"), ToolCall("call_1", "f", '{"b":"e","a":1}')))
    assert ledger.recall(A, [other])[0].sampled is None
