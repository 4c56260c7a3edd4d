"""Why so little was cached, as each dialect tells it: whole or streamed, the same facts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from support import strict
from support.dialects import PATHS, body_of
from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns, outcome
from warmlane.conversation.events import Finished, Started, TextDelta, Validated
from warmlane.conversation.messages import Text
from warmlane.conversation.turn import CacheFacts, CacheOutcome, Divergence, DivergenceCause

WHOLE_OR_STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
LEFT = Divergence(cause=DivergenceCause.PREFIX_LEFT, offset=6, missed_tokens=1_000, before="old way", now="new way")
EVICTED = Divergence(cause=DivergenceCause.EVICTED, offset=1_206, missed_tokens=1_200)
CHANGED = structs.replace(LEFT, cause=DivergenceCause.MESSAGES_CHANGED)


def plain(divergence: Divergence) -> dict[str, Any]:
    return {
        "cause": divergence.cause.value,
        "offset": divergence.offset,
        "missed_tokens": divergence.missed_tokens,
        "before": divergence.before,
        "now": divergence.now,
    }


async def answered(
    name: str, divergence: Divergence | None, *, streamed: bool, **fields: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer's first object that has usage, and its last event; of one that is whole twice itself."""
    cache = CacheFacts(CacheOutcome.PREFIX_HIT, "no_key", 6, divergence)
    end = Finished(structs.replace(outcome(Text("yes")), cache=cache))
    turns = FakeTurns([Validated(), Started(1_219, 6, divergence), TextDelta("yes"), end])
    async with edge_client(turns) as client:
        got = await client.post(
            PATHS[name], json=body_of(name, [("user", "x")], model=MODEL, stream=streamed, **fields)
        )
    if not streamed:
        body = got.json()
        {"responses": strict.response, "messages": strict.message, "chat": strict.completion}[name](body)
        return body, body
    events = strict.sse(got)
    match name:
        case "responses":
            strict.response_stream(events)
            return events[-1]["response"], events[-1]["response"]
        case "messages":
            strict.message_stream(events)
            return next(e["message"] for e in events if e["type"] == "message_start"), events[-1]
        case _:
            strict.completion_stream(events, usage=True)
            return events[-1], events[-1]


@WHOLE_OR_STREAMED
@pytest.mark.parametrize("divergence", [None, LEFT, EVICTED, CHANGED], ids=["none", "left", "evicted", "changed"])
@pytest.mark.parametrize("name", PATHS)
async def test_reason_offset_and_both_sides_are_told(name: str, divergence: Divergence | None, streamed: bool) -> None:
    _, last = await answered(name, divergence, streamed=streamed)
    told = last["prompt_cache_diagnostics" if name == "responses" else "warmlane"]
    assert (told["session_cache"], told["cached_tokens"], told["cache_miss_reason"]) == ("prefix_hit", 6, "no_key")
    assert told.get("divergence") == (None if divergence is None else plain(divergence))


@WHOLE_OR_STREAMED
@pytest.mark.parametrize(
    ("divergence", "kind"),
    [
        (None, "cache_hit"),
        (LEFT, "unavailable"),
        (EVICTED, "unavailable"),
        (CHANGED, "cache_miss"),
        (Divergence(cause=DivergenceCause.NOT_FOUND), "comparison_response_not_found"),
    ],
)
async def test_responses_calls_nothing_a_hit_that_left_its_prefix(
    divergence: Divergence | None, kind: str, streamed: bool
) -> None:
    _, last = await answered("responses", divergence, streamed=streamed)
    told = last["prompt_cache_diagnostics"]
    assert told["type"] == kind
    assert (told.get("cache_missed_tokens"), told.get("reason")) == (
        (1_000, "input_changed") if kind == "cache_miss" else (None, None)
    )


@WHOLE_OR_STREAMED
async def test_messages_diagnoses_for_the_vendor_only_where_a_message_was_named(streamed: bool) -> None:
    named = {"diagnostics": {"previous_message_id": "msg_1"}}
    for divergence, reason in (
        (None, None),
        (EVICTED, {"type": "unavailable", "cache_missed_input_tokens": 1_200, "offset_tokens": 1_206}),
    ):
        first, _ = await answered("messages", divergence, streamed=streamed, **named)
        assert first["diagnostics"] == (None if reason is None else {"cache_miss_reason": reason})
        first, _ = await answered("messages", divergence, streamed=streamed)
        assert first["diagnostics"] is None
    first, _ = await answered("messages", CHANGED, streamed=streamed, **named)
    assert json.dumps(first["diagnostics"]).count("way") == 2
